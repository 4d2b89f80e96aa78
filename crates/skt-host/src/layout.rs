//! How the matrix is distributed: the P x Q process grid, the block-cyclic map of rows and columns
//! to it, and the leading dimension of the local matrix.
//!
//! The map works on one dimension at a time: blocks of `nb` global indices go to `procs` processes
//! in turn, the first block to process 0.
//!
//! Rows are distributed in small blocks ([`Cyclic::rows`]), so that all process rows have the same
//! number of rows of the trailing matrix, and of each diagonal block. With blocks of NB, one
//! process row would have up to NB rows more to multiply than others, and would alone send the rows
//! that pivots displace. Columns: [`crate::columns`].

use std::ops::Range;

/// The largest order of a matrix: the generator's index `1 + i + j N`, with b as column N, then
/// still fits into 64 bits.
pub const N_MAX: usize = u32::MAX as usize;

/// Doubles per cache line of most processors. Where lines are longer, a row begins in the middle of
/// a line, which costs at most a part of a line at its ends.
const LINE: usize = 8;

/// One dimension of a block-cyclic distribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cyclic {
    /// Block size.
    pub nb: usize,
    /// Number of processes.
    pub procs: usize,
}

/// The largest number of rows in a block.
const ROW_BLOCK: usize = 8;

impl Cyclic {
    /// The distribution of rows to `p` process rows, for panels of `nb` columns.
    pub fn rows(nb: usize, p: usize) -> Self {
        let block = if p == 1 { nb } else { (nb / p).clamp(1, ROW_BLOCK) };
        Self { nb: block, procs: p }
    }

    /// The process that holds global index `g` (HPL_indxg2p).
    pub fn owner(self, g: usize) -> usize {
        (g / self.nb) % self.procs
    }

    /// Number of the global indices `0..n` that process `me` holds (HPL_numroc). This is also the
    /// local index of the first index at or beyond `n` that it holds.
    pub fn count_before(self, n: usize, me: usize) -> usize {
        let (blocks, rest) = (n / self.nb, n % self.nb);
        let whole = (blocks + self.procs - 1 - me) / self.procs * self.nb;
        whole + if blocks % self.procs == me { rest } else { 0 }
    }

    /// The local index of global index `g` on its owner (HPL_indxg2l).
    pub fn local(self, g: usize) -> usize {
        g / (self.nb * self.procs) * self.nb + g % self.nb
    }

    /// The global index of local index `l` on process `me` (HPL_indxl2g).
    pub fn global(self, l: usize, me: usize) -> usize {
        (l / self.nb * self.procs + me) * self.nb + l % self.nb
    }

    /// The indices in `global` that process `me` holds, in order, as contiguous spans: for each,
    /// the first local index, the first global index, and the length.
    pub fn spans(
        self,
        global: Range<usize>,
        me: usize,
    ) -> impl Iterator<Item = (usize, usize, usize)> {
        let local = self.count_before(global.start, me)..self.count_before(global.end, me);
        spans(self.nb, self.procs, local, move |l| self.global(l, me))
    }
}

/// The local indices of a process, which holds blocks of `nb`, as spans of which each is contiguous
/// in `global`, too: a block, or all if there is one process.
pub(crate) fn spans(
    nb: usize,
    procs: usize,
    local: Range<usize>,
    global: impl Fn(usize) -> usize,
) -> impl Iterator<Item = (usize, usize, usize)> {
    let mut next = local.start;
    std::iter::from_fn(move || {
        let start = next;
        next = if procs == 1 { local.end } else { ((start / nb + 1) * nb).min(local.end) };
        (start < local.end).then(|| (start, global(start), next - start))
    })
}

/// The grid nearest to a square with `P <= Q` and `P Q = ranks`.
pub fn near_square(ranks: usize) -> (usize, usize) {
    let ranks = ranks.max(1);
    let p = (1..=ranks.isqrt()).rev().find(|&p| ranks.is_multiple_of(p)).unwrap_or(1);
    (p, ranks / p)
}

/// The leading dimension for rows of `doubles` doubles: a multiple of a cache line that is not a
/// multiple of a page, because elements at distances of whole pages share few cache sets.
pub fn leading_dimension(doubles: usize) -> usize {
    let ld = doubles.next_multiple_of(LINE).max(LINE);
    if ld.is_multiple_of(512) { ld + LINE } else { ld }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_index_has_one_place(n in 0usize..200, nb in 1usize..40, procs in 1usize..8) {
            let map = Cyclic { nb, procs };
            let mut next = vec![0; procs];
            for g in 0..n {
                let me = map.owner(g);
                prop_assert_eq!(map.local(g), next[me]);
                prop_assert_eq!(map.global(next[me], me), g);
                next[me] += 1;
            }
            for (me, &count) in next.iter().enumerate() {
                prop_assert_eq!(map.count_before(n, me), count);
            }
        }

        #[test]
        fn stretches_are_the_indices_that_a_process_holds(
            from in 0usize..100, len in 0usize..100, nb in 1usize..40, procs in 1usize..8,
        ) {
            let map = Cyclic { nb, procs };
            for me in 0..procs {
                let held: Vec<_> = (from..from + len).filter(|&g| map.owner(g) == me).collect();
                let spans = map.spans(from..from + len, me);
                let listed: Vec<_> = spans
                    .inspect(|&(local, global, len)| {
                        assert!(len > 0 && map.local(global) == local && map.owner(global) == me);
                    })
                    .flat_map(|(_, global, len)| global..global + len)
                    .collect();
                prop_assert_eq!(listed, held);
            }
        }

        #[test]
        fn rows_are_dealt_out_evenly(n in 0usize..3000, nb in 1usize..300, p in 1usize..20) {
            let map = Cyclic::rows(nb, p);
            let counts: Vec<_> = (0..p).map(|me| map.count_before(n, me)).collect();
            let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            prop_assert!(most - least <= ROW_BLOCK, "{:?}", counts);
        }
    }

    #[test]
    fn near_square_grids_hold_all_ranks() {
        let cases = [
            (0, (1, 1)),
            (1, (1, 1)),
            (2, (1, 2)),
            (4, (2, 2)),
            (6, (2, 3)),
            (7, (1, 7)),
            (48, (6, 8)),
        ];
        for (ranks, grid) in cases {
            assert_eq!(near_square(ranks), grid);
        }
    }
}
