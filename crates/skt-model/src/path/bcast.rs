//! When a panel reaches each process column (`comm::panel_bcast`).
//!
//! A message takes a latency plus its bytes over the bandwidth. A rank sends one message after the
//! other, in the order in which it posts them. A message that has arrived is forwarded at the next
//! call into MPI: between two products of the trailing update, which are short until then, or while
//! the rank waits for the panel. Once posted, data moves without the processors.
//!
//! A panel is sent in pieces. The last piece decides when the panel has arrived: it leaves a rank
//! after the pieces that have arrived since the previous call, all of which leave in the same call.

use skt_terms::choice::Bcast;
use skt_terms::rings::{long_members, ring_heads};
use skt_terms::tree;

use super::clock::{Moment, Part};
use super::work;

/// The work of one process column while a panel is being broadcast.
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
    /// The first call into MPI at or after `arrival`, and the seconds since the previous call, if
    /// there is one within the product.
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

/// How messages are sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wire {
    pub latency_seconds: f64,
    pub byte_seconds: f64,
    /// Whether a piece is forwarded as soon as it arrives.
    pub prompt: bool,
    /// Number of pieces of a panel in a ring.
    pub pieces: usize,
}

/// When a panel arrives, and when the sends that forward it are done.
#[derive(Debug, Clone)]
pub(super) struct Arrivals {
    /// The arrival, by process column.
    pub here: Vec<Moment>,
    /// When the column's buffer is free again, by process column.
    pub sent: Vec<Moment>,
}

/// Sends `bytes` from column `root`, which has them at `from`, to all others.
pub(super) fn arrivals(
    topology: Bcast,
    wire: &Wire,
    root: usize,
    from: Moment,
    bytes: f64,
    windows: &[Window],
) -> Arrivals {
    let q = windows.len();
    let mut all = Arrivals { here: vec![from; q], sent: vec![Moment::default(); q] };
    let mut way = Route { wire, root, bytes, windows, all: &mut all };
    let heads = ring_heads(topology, q);
    let mut sending = from;
    let members = long_members(topology, q);
    for (i, &head) in heads.iter().enumerate() {
        sending = way.send(0, sending, head, bytes);
        if members.is_none() {
            let end = heads.get(i + 1).copied().unwrap_or(q);
            way.ring(head..end, wire.pieces);
        }
    }
    if let Some(members) = members {
        way.long(&members, sending);
    }
    all
}

struct Route<'a> {
    wire: &'a Wire,
    root: usize,
    bytes: f64,
    windows: &'a [Window],
    all: &'a mut Arrivals,
}

impl Route<'_> {
    fn column(&self, relative: usize) -> usize {
        (relative + self.root) % self.windows.len()
    }

    /// Sends one message at `start`, and returns when the sender's link is free.
    fn send(&mut self, from: usize, start: Moment, to: usize, bytes: f64) -> Moment {
        let (from, to) = (self.column(from), self.column(to));
        let done = start.after(Part::Bcast, bytes * self.wire.byte_seconds);
        self.all.here[to] = done.after(Part::Bcast, self.wire.latency_seconds);
        self.all.sent[from] = done;
        done
    }

    /// Sends one message to a rank that also gets others: the last of them counts.
    fn add(&mut self, from: usize, start: Moment, to: usize, bytes: f64) {
        let column = self.column(to);
        let else_here = self.all.here[column];
        self.send(from, start, to, bytes);
        self.all.here[column] = self.all.here[column].and(else_here);
    }

    /// Sends from the first of `ranks`, which has the message or will have it, to the others in
    /// turn.
    fn ring(&mut self, ranks: impl Iterator<Item = usize> + Clone, pieces: usize) {
        for (from, to) in ranks.clone().zip(ranks.skip(1)) {
            let (start, bytes) = self.passes_on(from, self.bytes / pieces as f64);
            let start = start.and(self.all.sent[self.column(from)]);
            self.add(from, start, to, bytes);
        }
    }

    /// When a rank forwards the last piece of what it gets, and the number of bytes that it
    /// forwards at that time.
    fn passes_on(&self, relative: usize, piece_bytes: f64) -> (Moment, f64) {
        let column = self.column(relative);
        let arrived = self.all.here[column];
        if self.wire.prompt {
            return (arrived, piece_bytes);
        }
        let (call, since) = self.windows[column].next_call(arrived);
        let bytes = since.map_or(self.bytes, |since| since / self.wire.byte_seconds);
        // With an infinite bandwidth `bytes` may be NaN, which `min` ignores.
        (call, bytes.min(self.bytes).max(piece_bytes))
    }

    /// Sends pieces down a binary tree of `members`, then around their ring, after what the root
    /// has sent by `from`.
    fn long(&mut self, members: &[usize], from: Moment) {
        let count = members.len();
        let piece_bytes = self.bytes / count as f64;
        for (member, &relative) in members.iter().enumerate() {
            let mut sending =
                if member == 0 { from } else { self.passes_on(relative, piece_bytes).0 };
            for child in tree::children(count, member) {
                let bytes = piece_bytes * tree::subtree(count, child).len() as f64;
                sending = self.send(relative, sending, members[child], bytes);
            }
        }
        if count > 1 {
            let spread = self.all.sent[self.column(0)];
            self.add(0, spread, members[1], self.bytes - piece_bytes);
        }
        self.ring(members[1..].iter().copied(), count);
    }
}

/// Number of copies of the panel that the root sends before it waits itself.
pub(super) fn root_copies(topology: Bcast, q: usize) -> f64 {
    let heads = ring_heads(topology, q).len() as f64;
    // Every piece but its own, twice: down the tree and around the ring.
    let spread = |members: Vec<usize>| 2.0 - 2.0 / members.len().max(1) as f64;
    heads + long_members(topology, q).map_or(0.0, spread)
}

/// Seconds until the last of `q` columns has a panel of `bytes`, if all wait for it.
pub(super) fn idle_seconds(topology: Bcast, wire: &Wire, bytes: f64, q: usize) -> f64 {
    let now = Window { start: Moment::default(), end: Moment::default(), rows: 0.0 };
    let all = arrivals(topology, wire, 0, Moment::default(), bytes, &vec![now; q]);
    all.here.iter().map(|moment| moment.at_seconds).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIRE: Wire = Wire { latency_seconds: 1.0, byte_seconds: 1.0, prompt: false, pieces: 1 };

    fn idle(topology: Bcast, q: usize, bytes: f64) -> f64 {
        idle_seconds(topology, &WIRE, bytes, q)
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
        let all = arrivals(Bcast::Long, &WIRE, 0, Moment::default(), 100.0, &windows);
        assert_eq!(all.here[3].at_seconds, idle(Bcast::Long, 4, 100.0));
    }

    #[test]
    fn the_root_sends_so_many_copies_before_it_waits() {
        for &topology in Bcast::ALL {
            for q in 1..9 {
                let now = Window { start: Moment::default(), end: Moment::default(), rows: 0.0 };
                let windows = vec![now; q];
                let all = arrivals(topology, &WIRE, 0, Moment::default(), 840.0, &windows);
                let off = all.sent[0].at_seconds - 840.0 * root_copies(topology, q);
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
        let wire = Wire { pieces: 10, prompt: true, ..WIRE };
        // The first hop takes the whole message, each other hop a piece and a latency more.
        let got = idle_seconds(Bcast::OneRing, &wire, 100.0, 6);
        assert_eq!(got, 101.0 + 4.0 * 11.0);
    }

    #[test]
    fn pieces_that_have_come_since_the_last_call_leave_together() {
        // There are calls every 10 s; the last of 20 bytes is at rank 1 after 21 s.
        let at = |seconds| Moment::default().after(Part::Product, seconds);
        let window = Window { start: at(0.0), end: at(100.0), rows: 10.0 * 192.0 };
        let last = |pieces| {
            let wire = Wire { pieces, ..WIRE };
            arrivals(Bcast::OneRing, &wire, 0, at(0.0), 20.0, &[window; 3]).here[2].at_seconds
        };
        assert_eq!(last(1), 30.0 + 20.0 + 1.0);
        assert_eq!(last(4), 30.0 + 5.0 + 1.0);
        // In the second since the call at 20 s, more than a piece has arrived.
        assert_eq!(last(40), 30.0 + 1.0 + 1.0);
    }
}
