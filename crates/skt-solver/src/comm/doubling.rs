//! Recursive doubling: after log2(size) rounds each rank has what all had.
//!
//! In the round of step s a rank exchanges all that it has with the rank whose number differs in
//! that bit. If the group's size is not a power of two, the ranks beyond the largest power are
//! *folded*: rank `r + power` sends what it has to rank `r` before the first round, and gets the
//! result from it after the last one.
//!
//! The data is stored in *places*, one for each rank; a folded rank's place follows its partner's.
//! So each message has contiguous places:
//!
//! ```text
//! size 6       place   0   1   2   3   4   5
//!              rank    0   4   1   5   2   3
//! rank 0       gets from 4 |1|, from 1 |2 3|, from 2 |4 5|, and sends |0 .. 5| to 4
//! ```

use std::ops::Range;

use skt_comm::{Comm, Result, Tag};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Round {
    pub partner: usize,
    /// Places that this rank sends; empty where it only receives.
    pub out: Range<usize>,
    /// Places that this rank receives; empty where it only sends.
    pub into: Range<usize>,
}

fn power(size: usize) -> usize {
    1 << size.ilog2()
}

/// The number of places of the ranks below `rank` and of their folded ranks.
fn places_before(rank: usize, size: usize) -> usize {
    rank + rank.min(size - power(size))
}

pub(crate) fn place(rank: usize, size: usize) -> usize {
    match rank.checked_sub(power(size)) {
        Some(partner) => places_before(partner, size) + 1,
        None => places_before(rank, size),
    }
}

pub(crate) fn rounds(me: usize, size: usize) -> impl Iterator<Item = Round> {
    let power = power(size);
    let is_folded = me >= power;
    let partner = if is_folded { me - power } else { me + power };
    let has_fold = partner < size;
    let of_one = |rank: usize| place(rank, size)..place(rank, size) + 1;
    let fold = |out: Range<usize>, into: Range<usize>| Round { partner, out, into };
    let (first, last) = if is_folded {
        (fold(of_one(me), 0..0), fold(0..0, 0..size))
    } else {
        (fold(0..0, of_one(partner)), fold(0..size, 0..0))
    };
    let steps = if is_folded { 0 } else { power.ilog2() };
    let doubling = (0..steps).map(move |bit| {
        let step = 1 << bit;
        let partner = me ^ step;
        let of_group = |rank: usize| {
            let first = rank & !(step - 1);
            places_before(first, size)..places_before(first + step, size)
        };
        Round { partner, out: of_group(me), into: of_group(partner) }
    });
    let (first, last) = (has_fold.then_some(first), has_fold.then_some(last));
    first.into_iter().chain(doubling).chain(last)
}

impl Round {
    pub(crate) fn receives(&self) -> bool {
        !self.into.is_empty()
    }

    /// Sends `out` to the partner and receives `into` from it, where not empty.
    pub(crate) fn exchange(
        &self,
        comm: &Comm,
        out: &[f64],
        into: &mut [f64],
        tag: Tag,
    ) -> Result<()> {
        match (self.out.is_empty(), self.into.is_empty()) {
            (false, true) => comm.send(out, self.partner, tag),
            (true, _) => comm.recv(into, self.partner, tag),
            (false, false) => comm.sendrecv(out, self.partner, into, self.partner, tag),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        /// Ranks that do a round only when their partner is at the matching one complete their
        /// rounds, send nothing that they do not have, receive nothing twice below the power, and
        /// have all in the end.
        #[test]
        fn all_ranks_get_all_parts(size in 1..200usize) {
            let mut rounds: Vec<VecDeque<Round>> =
                (0..size).map(|rank| rounds(rank, size).collect()).collect();
            let mut held: Vec<Vec<bool>> = (0..size)
                .map(|rank| (0..size).map(|at| at == place(rank, size)).collect())
                .collect();
            while let Some(me) = (0..size).find(|&me| {
                let round = rounds[me].front();
                let partner = round.and_then(|round| rounds[round.partner].front());
                partner.is_some_and(|partner| partner.partner == me)
            }) {
                let mine = rounds[me].pop_front().unwrap();
                let theirs = rounds[mine.partner].pop_front().unwrap();
                prop_assert_eq!((&mine.out, &mine.into), (&theirs.into, &theirs.out));
                for (round, from, to) in [(&mine, me, mine.partner), (&theirs, mine.partner, me)] {
                    for at in round.out.clone() {
                        prop_assert!(held[from][at]);
                        prop_assert!(!held[to][at] || to >= power(size));
                        held[to][at] = true;
                    }
                }
            }
            prop_assert!(rounds.iter().all(VecDeque::is_empty));
            prop_assert!(held.iter().flatten().all(|&has| has));
        }
    }
}
