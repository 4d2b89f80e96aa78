//! When a panel reaches each process column (`comm::panel_bcast`).
//!
//! A message takes a latency plus its bytes over the bandwidth. A rank sends one message after the
//! other, in the order in which it posts them. A message that has arrived is forwarded at the next
//! call into MPI: between two products of the trailing update, which are short until then, or while
//! the rank waits for the panel. Once posted, data moves without the processors.
//!
//! A panel is sent in pieces. The last piece decides when the panel has arrived: it leaves a rank
//! after the pieces that have arrived since the previous call, all of which leave in the same call.

use skt_host::panel_edges::{Edge, Pieces, RowOrder};

use super::clock::{Moment, Part};
use super::placement::EdgeWeights;
use super::work;

#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    /// The start of its trailing product.
    pub start: Moment,
    /// The end of its trailing product; from then on it waits for the panel.
    pub end: Moment,
    /// Number of rows of the product.
    pub rows: f64,
}

impl Window {
    /// The first at or after `arrival`, and the seconds since the previous one within the product.
    fn next_call(&self, arrival: Moment) -> (Moment, Option<f64>) {
        if arrival.at_seconds >= self.end.at_seconds {
            return (arrival, Some(0.0));
        }
        let part_seconds = (self.end.at_seconds - self.start.at_seconds)
            / work::products_while_passing_on(self.rows);
        let waited = arrival.at_seconds - self.start.at_seconds;
        let parts = (waited / part_seconds).ceil().max(1.0);
        let since = waited - (parts - 1.0) * part_seconds;
        let since = (parts > 1.0).then_some(since);
        let call = self.start.after(Part::Product, parts * part_seconds);
        // Rounding must not put the call into the past, nor after the end.
        let call = if call.at_seconds > self.end.at_seconds { self.end } else { call.and(arrival) };
        (call, since)
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Wire<'a> {
    pub latency_seconds: f64,
    pub byte_seconds: f64,
    /// What the ranks of a node do to that; `None`: each of them has a link.
    pub weights: Option<&'a EdgeWeights<'a>>,
    /// Whether a piece is forwarded as soon as it arrives.
    pub prompt: bool,
    /// The edges among the process columns.
    pub edges: &'a [Edge],
    /// Number of pieces of a panel.
    pub pieces: usize,
}

#[derive(Debug, Clone)]
pub(super) struct Arrivals {
    /// The arrival, by process column.
    pub here: Vec<Moment>,
    /// When the column's buffer is free again, by process column.
    pub sent: Vec<Moment>,
}

/// Sends `bytes` from the first column of an `order`, which has them at `from`, to all others.
pub(super) fn arrivals(
    wire: &Wire,
    order: RowOrder,
    from: Moment,
    bytes: f64,
    windows: &[Window],
) -> Arrivals {
    let q = windows.len();
    let mut all = Arrivals { here: vec![from; q], sent: vec![Moment::default(); q] };
    let part = |pieces| bytes * (pieces as f64 / wire.pieces as f64);
    for edge in wire.edges {
        let [sender, receiver] = [edge.from, edge.to].map(|relative| order.rank(relative));
        let whole = part(edge.pieces.len(wire.pieces));
        let (start, sent_bytes) = if edge.from == 0 {
            (from, whole)
        } else {
            let (call, ready) = wire.forwards(&windows[sender], all.here[sender], part(1), bytes);
            // The pieces of a subtree arrive together; of the others the last one counts.
            (call, if matches!(edge.pieces, Pieces::Subtree(_)) { whole } else { ready })
        };
        let start = start.and(all.sent[sender]);
        let weight = wire.weight(sender, receiver);
        let done = start.after(Part::Bcast, sent_bytes * weight * wire.byte_seconds);
        all.sent[sender] = done;
        // Of the messages that a rank gets the last one counts.
        let arrival = done.after(Part::Bcast, wire.latency_seconds);
        all.here[receiver] = arrival.and(all.here[receiver]);
    }
    all
}

impl Wire<'_> {
    fn weight(&self, sender: usize, receiver: usize) -> f64 {
        self.weights.map_or(1.0, |weights| weights.between(sender, receiver))
    }

    /// When a rank forwards the last piece of `bytes`, which arrives at `arrival`, and the number
    /// of bytes that it forwards at that time.
    fn forwards(
        &self,
        window: &Window,
        arrival: Moment,
        piece_bytes: f64,
        bytes: f64,
    ) -> (Moment, f64) {
        if self.prompt {
            return (arrival, piece_bytes);
        }
        let (call, since) = window.next_call(arrival);
        let ready = since.map_or(bytes, |since| since / self.byte_seconds);
        // With an infinite bandwidth `ready` may be NaN, which `min` ignores.
        (call, ready.min(bytes).max(piece_bytes))
    }

    /// Of the panel, by the first column of an `order` before it waits, by the time of their bytes.
    pub(super) fn root_copies(&self, order: RowOrder) -> f64 {
        let from_root = self.edges.iter().filter(|edge| edge.from == 0);
        let sent = from_root.map(|edge| {
            self.weight(order.rank(0), order.rank(edge.to)) * edge.pieces.len(self.pieces) as f64
        });
        sent.sum::<f64>() / self.pieces as f64
    }

    /// Seconds until the last of `q` columns has a panel of `bytes`, if all wait for it.
    pub(super) fn idle_seconds(&self, bytes: f64, q: usize) -> f64 {
        let now = Window { start: Moment::default(), end: Moment::default(), rows: 0.0 };
        let order = RowOrder::new(0, None, q);
        let all = arrivals(self, order, Moment::default(), bytes, &vec![now; q]);
        all.here.iter().map(|moment| moment.at_seconds).fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use skt_host::choice::Bcast;
    use skt_host::panel_edges::route;

    const WIRE: Wire = Wire {
        latency_seconds: 1.0,
        byte_seconds: 1.0,
        weights: None,
        prompt: false,
        edges: &[],
        pieces: 1,
    };

    fn in_turn(q: usize) -> RowOrder {
        RowOrder::new(0, None, q)
    }

    fn with_wire<T>(topology: Bcast, q: usize, used: impl Fn(&Wire) -> T) -> T {
        let route = route(topology, q);
        used(&Wire { edges: &route.edges, pieces: route.pieces(1), ..WIRE })
    }

    fn idle(topology: Bcast, q: usize, bytes: f64) -> f64 {
        with_wire(topology, q, |wire| wire.idle_seconds(bytes, q))
    }

    #[test]
    fn rings_by_hand() {
        // One byte per message: a hop takes 2 s, a second message of the root leaves 1 s later.
        assert_eq!(idle(Bcast::OneRing, 1, 1.0), 0.0);
        assert_eq!(idle(Bcast::OneRing, 6, 1.0), 5.0 * 2.0);
        assert_eq!(idle(Bcast::OneRingM, 6, 1.0), 1.0 + 4.0 * 2.0);
        assert_eq!(idle(Bcast::TwoRing, 6, 1.0), 1.0 + 3.0 * 2.0);
        // Heads 1, 2 and 4; the last one forwards to one more.
        assert_eq!(idle(Bcast::TwoRingM, 6, 1.0), 2.0 + 2.0 * 2.0);
    }

    #[test]
    fn long_moves_the_message_about_twice() {
        // The root sends 2 + 1 pieces down and 3 around; then come 2 hops of the last piece.
        let piece = 25.0;
        assert_eq!(idle(Bcast::Long, 4, 100.0), 6.0 * piece + 1.0 + 2.0 * (piece + 1.0));
        assert_eq!(idle(Bcast::Long, 1, 100.0), 0.0);
        assert_eq!(idle(Bcast::LongM, 2, 100.0), 101.0);
    }

    #[test]
    fn the_roll_goes_on_while_the_root_multiplies() {
        let window = |end| Window { start: Moment::default(), end, rows: 1.0 };
        let busy_until = |seconds| Moment::default().after(Part::Product, seconds);
        let mut windows = [window(Moment::default()); 4];
        windows[0] = window(busy_until(1000.0));
        let all = with_wire(Bcast::Long, 4, |wire| {
            arrivals(wire, in_turn(4), Moment::default(), 100.0, &windows)
        });
        assert_eq!(all.here[3].at_seconds, idle(Bcast::Long, 4, 100.0));
    }

    #[test]
    fn the_root_sends_so_many_copies_before_it_waits() {
        for topology in Bcast::ALL {
            for q in 1..9 {
                let now = Window { start: Moment::default(), end: Moment::default(), rows: 0.0 };
                let off = with_wire(topology, q, |wire| {
                    let all = arrivals(wire, in_turn(q), Moment::default(), 840.0, &vec![now; q]);
                    all.sent[0].at_seconds - 840.0 * wire.root_copies(in_turn(q))
                });
                assert!(off.abs() < 1e-9, "{topology:?}, {q}: {off}");
            }
        }
    }

    #[test]
    fn a_rank_passes_on_between_two_products() {
        let at = |seconds| Moment::default().after(Part::Product, seconds);
        let window = Window { start: at(10.0), end: at(14.0), rows: 4.0 * 192.0 };
        let call = |seconds| window.next_call(at(seconds)).0.at_seconds;
        assert_eq!([3.0, 10.0, 10.5, 11.0, 11.5].map(call), [11.0, 11.0, 11.0, 11.0, 12.0]);
        assert_eq!([13.5, 14.0, 20.0].map(call), [14.0, 14.0, 20.0]);
    }

    #[test]
    fn pieces_shorten_a_ring() {
        let edges = &route(Bcast::OneRing, 6).edges;
        let wire = Wire { pieces: 10, prompt: true, edges, ..WIRE };
        // The first hop takes the whole message, each other hop a piece and a latency more.
        let got = wire.idle_seconds(100.0, 6);
        assert_eq!(got, 101.0 + 4.0 * 11.0);
    }

    #[test]
    fn pieces_that_have_come_since_the_last_call_leave_together() {
        // There are calls every 10 s; the last of 20 bytes is at rank 1 after 21 s.
        let at = |seconds| Moment::default().after(Part::Product, seconds);
        let window = Window { start: at(0.0), end: at(100.0), rows: 10.0 * 192.0 };
        let edges = &route(Bcast::OneRing, 3).edges;
        let last = |pieces| {
            let wire = Wire { pieces, edges, ..WIRE };
            arrivals(&wire, in_turn(3), at(0.0), 20.0, &[window; 3]).here[2].at_seconds
        };
        assert_eq!(last(1), 30.0 + 20.0 + 1.0);
        assert_eq!(last(4), 30.0 + 5.0 + 1.0);
        // In the second since the call at 20 s, more than a piece has arrived.
        assert_eq!(last(40), 30.0 + 1.0 + 1.0);
    }
}
