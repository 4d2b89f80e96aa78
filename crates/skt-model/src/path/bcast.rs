//! When a panel reaches each process column (`comm::panel_bcast`).
//!
//! A message takes a latency and its bytes over the bandwidth. A rank sends one
//! message after the other, in the order in which it posts them. What has arrived
//! is passed on at the next call into MPI: between two products of the trailing
//! update, or while the rank waits for the panel. Once posted, data moves without
//! the processors.

use skt_terms::choice::Bcast;
use skt_terms::rings::ring_heads;
use skt_terms::tree;

use super::clock::{Moment, Part};
use super::work;

/// What one process column does while a panel is being broadcast.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    /// Its trailing product begins.
    pub start: Moment,
    /// Its trailing product ends; then it waits for the panel.
    pub end: Moment,
    /// Rows of the product.
    pub rows: f64,
}

impl Window {
    /// The first call into MPI at or after `arrival`.
    fn next_call(&self, arrival: Moment) -> Moment {
        if arrival.at_seconds >= self.end.at_seconds {
            return arrival;
        }
        let piece_seconds =
            (self.end.at_seconds - self.start.at_seconds) / work::products(self.rows);
        let waited = arrival.at_seconds - self.start.at_seconds;
        let pieces = (waited / piece_seconds).ceil().max(1.0);
        let call = self.start.after(Part::Product, pieces * piece_seconds);
        // Rounding must not make a call of the past, nor one after the end.
        if call.at_seconds > self.end.at_seconds { self.end } else { call.and(arrival) }
    }
}

/// How messages travel.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wire {
    pub latency_seconds: f64,
    pub byte_seconds: f64,
    /// What arrives is passed on at once.
    pub prompt: bool,
    /// Pieces that a ring passes on before it has the whole; 1 for none.
    pub segments: usize,
}

/// When the panel is there, and when the sends that pass it on are done.
#[derive(Debug, Clone)]
pub(super) struct Arrivals {
    /// By process column.
    pub here: Vec<Moment>,
    /// By process column: its buffer is free again.
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
    let mut way = Way { wire, root, bytes, windows, all: &mut all };
    let heads = ring_heads(topology, q);
    let mut sending = from;
    for (i, &head) in heads.iter().enumerate() {
        sending = way.send(0, sending, head, bytes);
        if topology == Bcast::LongM {
            continue;
        }
        let end = heads.get(i + 1).copied().unwrap_or(q);
        way.ring(head..end);
    }
    match topology {
        Bcast::Long => way.long(&(0..q).collect::<Vec<_>>(), from),
        Bcast::LongM => way.long(&(0..q).filter(|&r| r != 1).collect::<Vec<_>>(), sending),
        _ => {}
    }
    all
}

struct Way<'a> {
    wire: &'a Wire,
    root: usize,
    bytes: f64,
    windows: &'a [Window],
    all: &'a mut Arrivals,
}

impl Way<'_> {
    fn column(&self, relative: usize) -> usize {
        (relative + self.root) % self.windows.len()
    }

    /// One message, sent from `start` on. Returns when the sender's link is free.
    fn send(&mut self, from: usize, start: Moment, to: usize, bytes: f64) -> Moment {
        let (from, to) = (self.column(from), self.column(to));
        let done = start.after(Part::Bcast, bytes * self.wire.byte_seconds);
        self.all.here[to] = done.after(Part::Bcast, self.wire.latency_seconds);
        self.all.sent[from] = done;
        done
    }

    /// From the first of `ranks`, which has it or will, to the others in turn.
    fn ring(&mut self, ranks: std::ops::Range<usize>) {
        let segment_bytes = self.bytes / self.wire.segments as f64;
        for to in ranks.start + 1..ranks.end {
            let from = to - 1;
            let arrived = self.all.here[self.column(from)];
            if self.wire.segments == 1 {
                let start = self.passes_on(from, arrived);
                self.send(from, start, to, self.bytes);
            } else {
                // All but the last segment have gone before.
                self.send(from, arrived, to, segment_bytes);
            }
        }
    }

    fn passes_on(&self, relative: usize, arrived: Moment) -> Moment {
        if self.wire.prompt {
            arrived
        } else {
            self.windows[self.column(relative)].next_call(arrived)
        }
    }

    /// Pieces down a binary tree of `members`, then around their ring. The second
    /// part begins when a member waits for the panel; a member needs all to its
    /// left for it, and the next one to take its pieces.
    fn long(&mut self, members: &[usize], from: Moment) {
        let count = members.len();
        let piece_bytes = self.bytes / count as f64;
        let mut holds = vec![from; count];
        for member in 0..count {
            let mut sending =
                if member == 0 { from } else { self.passes_on(members[member], holds[member]) };
            for child in tree::children(count, member) {
                let bytes = piece_bytes * tree::subtree(count, child).len() as f64;
                sending = self.send(members[member], sending, members[child], bytes);
                holds[child] = self.all.here[self.column(members[child])];
            }
        }
        let waits = |member: usize| {
            let column = self.column(members[member]);
            holds[member].and(self.windows[column].end)
        };
        let steps = count as f64 - 1.0;
        let hop = self.wire.latency_seconds + piece_bytes * self.wire.byte_seconds;
        // The root hands its pieces over when it waits itself, behind what it has sent before.
        let root = self.column(0);
        let mut ready = from.and(self.windows[root].end).and(self.all.sent[root]);
        let mut ends = vec![from; count];
        for (member, end) in ends.iter_mut().enumerate().skip(1) {
            ready = ready.and(waits(member)).and(waits((member + 1).min(count - 1)));
            *end = ready.after(Part::Bcast, steps * hop);
        }
        for member in 1..count {
            let column = self.column(members[member]);
            self.all.here[column] = ends[member];
            self.all.sent[column] = ends[member];
        }
        // Then it goes on.
        let handed = self.all.sent[root].and(from).and(self.windows[root].end);
        self.all.sent[root] =
            handed.after(Part::Bcast, steps * piece_bytes * self.wire.byte_seconds);
    }
}

/// Copies of the panel that the root sends, before it waits itself.
pub(super) fn root_copies(topology: Bcast, q: usize) -> f64 {
    let spread = |members: usize| 1.0 - 1.0 / members.max(1) as f64;
    let heads = ring_heads(topology, q).len() as f64;
    match topology {
        Bcast::Long => heads + spread(q),
        Bcast::LongM => heads + spread(q.saturating_sub(1)),
        _ => heads,
    }
}

/// Seconds until the last of `q` columns has a panel of `bytes` where all wait for it.
pub(super) fn idle_seconds(topology: Bcast, wire: &Wire, bytes: f64, q: usize) -> f64 {
    let now = Window { start: Moment::default(), end: Moment::default(), rows: 0.0 };
    let all = arrivals(topology, wire, 0, Moment::default(), bytes, &vec![now; q]);
    all.here.iter().map(|moment| moment.at_seconds).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIRE: Wire = Wire { latency_seconds: 1.0, byte_seconds: 1.0, prompt: false, segments: 1 };

    fn idle(topology: Bcast, q: usize, bytes: f64) -> f64 {
        idle_seconds(topology, &WIRE, bytes, q)
    }

    #[test]
    fn rings_by_hand() {
        // One byte a message: a hop takes 2 s, a second message of the root leaves 1 s later.
        assert_eq!(idle(Bcast::OneRing, 1, 1.0), 0.0);
        assert_eq!(idle(Bcast::OneRing, 6, 1.0), 5.0 * 2.0);
        assert_eq!(idle(Bcast::OneRingM, 6, 1.0), 1.0 + 4.0 * 2.0);
        assert_eq!(idle(Bcast::TwoRing, 6, 1.0), 1.0 + 3.0 * 2.0);
        // Heads 1, 2 and 4; the last has one more behind it.
        assert_eq!(idle(Bcast::TwoRingM, 6, 1.0), 2.0 + 2.0 * 2.0);
    }

    #[test]
    fn long_moves_the_message_about_twice() {
        // Down: 2 + 1 pieces and 2 latencies; around: 3 hops of 1 piece.
        let pieces = 25.0;
        assert_eq!(idle(Bcast::Long, 4, 100.0), (3.0 * pieces + 2.0) + 3.0 * (pieces + 1.0));
        assert_eq!(idle(Bcast::Long, 1, 100.0), 0.0);
        assert_eq!(idle(Bcast::LongM, 2, 100.0), 101.0);
    }

    #[test]
    fn the_roll_begins_when_the_root_waits() {
        let window = |end| Window { start: Moment::default(), end, rows: 1.0 };
        let busy_until = |seconds| Moment::default().after(Part::Product, seconds);
        let mut windows = [window(Moment::default()); 4];
        windows[0] = window(busy_until(1000.0));
        let all = arrivals(Bcast::Long, &WIRE, 0, Moment::default(), 100.0, &windows);
        assert_eq!(all.here[1].at_seconds, 1000.0 + 3.0 * 26.0);
        assert_eq!(all.sent[0].at_seconds, 1000.0 + 3.0 * 25.0);
    }

    #[test]
    fn the_root_sends_so_many_copies_before_it_waits() {
        for &topology in Bcast::ALL {
            for q in 1..9 {
                let now = Window { start: Moment::default(), end: Moment::default(), rows: 0.0 };
                let windows = vec![now; q];
                let all = arrivals(topology, &WIRE, 0, Moment::default(), 840.0, &windows);
                // Then the roll, of all pieces but its own.
                let rolled = match topology {
                    Bcast::Long => 840.0 * (1.0 - 1.0 / q as f64),
                    Bcast::LongM if q > 1 => 840.0 * (1.0 - 1.0 / (q as f64 - 1.0)),
                    _ => 0.0,
                };
                // Before that it waits for the others, which have what the tree sends them.
                let waited = all.sent[0].at_seconds - rolled - 840.0 * root_copies(topology, q);
                assert!(waited.abs() < 1e-9, "{topology:?}, {q}: {waited}");
            }
        }
    }

    #[test]
    fn a_rank_passes_on_between_two_products() {
        let at = |seconds| Moment::default().after(Part::Product, seconds);
        let window = Window { start: at(10.0), end: at(14.0), rows: 4096.0 };
        let call = |seconds| window.next_call(at(seconds)).at_seconds;
        assert_eq!([3.0, 10.0, 10.5, 11.0, 11.5].map(call), [11.0, 11.0, 11.0, 11.0, 12.0]);
        assert_eq!([13.5, 14.0, 20.0].map(call), [14.0, 14.0, 20.0]);
    }

    #[test]
    fn segments_shorten_a_ring() {
        let wire = Wire { segments: 10, prompt: true, ..WIRE };
        // The first hop takes all of it, the others a segment and a latency more.
        let got = idle_seconds(Bcast::OneRing, &wire, 100.0, 6);
        assert_eq!(got, 101.0 + 4.0 * 11.0);
    }
}
