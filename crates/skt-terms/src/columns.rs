//! Which process column holds which columns of the matrix.
//!
//! Columns are distributed in blocks of NB, as one process column factors a panel. All that depends
//! on who owns which block reads it here: panels, their broadcasts and slots, the local matrix, the
//! substitution.

use std::ops::Range;

use crate::layout::Cyclic;

/// The distribution of block columns to process columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnMap {
    cyclic: Cyclic,
}

impl ColumnMap {
    /// Blocks of `nb` columns go to `q` process columns in turn.
    pub fn cyclic(nb: usize, q: usize) -> Self {
        Self { cyclic: Cyclic { nb, procs: q } }
    }

    /// This distribution as a block-cyclic one, which checksums of groups of Q blocks need.
    pub fn as_cyclic(&self) -> Cyclic {
        self.cyclic
    }

    /// The process column that holds column `g`.
    pub fn owner(&self, g: usize) -> usize {
        self.cyclic.owner(g)
    }

    /// Number of the columns `0..n` that process column `me` holds, which is also the local index
    /// of the first column at or beyond `n` that it holds.
    pub fn count_before(&self, n: usize, me: usize) -> usize {
        self.cyclic.count_before(n, me)
    }

    /// The largest number of the columns `0..n` that a process column holds.
    pub fn max_count_before(&self, n: usize) -> usize {
        self.counts_before(n).max().unwrap_or(0)
    }

    /// The smallest number of the columns `0..n` that a process column holds.
    pub fn min_count_before(&self, n: usize) -> usize {
        self.counts_before(n).min().unwrap_or(0)
    }

    /// A process column that holds the most of the columns `0..n`.
    pub fn widest(&self, n: usize) -> usize {
        let most = self.max_count_before(n);
        self.counts_before(n).position(|count| count == most).unwrap_or(0)
    }

    fn counts_before(&self, n: usize) -> impl Iterator<Item = usize> {
        (0..self.cyclic.procs).map(move |me| self.count_before(n, me))
    }

    /// The local index of column `g` on its owner.
    pub fn local(&self, g: usize) -> usize {
        self.cyclic.local(g)
    }

    /// The column with local index `l` on process column `me`.
    pub fn global(&self, l: usize, me: usize) -> usize {
        self.cyclic.global(l, me)
    }

    /// The columns in `global` that process column `me` holds, in order, as contiguous spans: for
    /// each, the first local index, the first column, and the length.
    pub fn spans(
        &self,
        global: Range<usize>,
        me: usize,
    ) -> impl Iterator<Item = (usize, usize, usize)> {
        self.cyclic.spans(global, me)
    }

    /// The process column that owns block `k`, which is panel `k`.
    pub fn block_owner(&self, k: usize) -> usize {
        k % self.cyclic.procs
    }

    /// The number of blocks before block `k` that its owner has.
    pub fn block_index(&self, k: usize) -> usize {
        k / self.cyclic.procs
    }

    /// The block that comes `count` before block `k` among those of its owner, if there is one.
    pub fn earlier_block(&self, k: usize, count: usize) -> Option<usize> {
        k.checked_sub(self.cyclic.procs * count)
    }

    /// The next block after `k`, of `blocks` in all, that the owner of block `k` has.
    pub fn next_block(&self, k: usize, blocks: usize) -> Option<usize> {
        Some(k + self.cyclic.procs).filter(|&next| next < blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_column_has_one_place(n in 0usize..300, nb in 1usize..20, q in 1usize..8) {
            let map = ColumnMap::cyclic(nb, q);
            let mut next = vec![0; q];
            for g in 0..n {
                let me = map.owner(g);
                prop_assert_eq!(map.local(g), next[me]);
                prop_assert_eq!(map.global(next[me], me), g);
                next[me] += 1;
            }
            for (me, &count) in next.iter().enumerate() {
                prop_assert_eq!(map.count_before(n, me), count);
                let held: Vec<_> = (0..n).filter(|&g| map.owner(g) == me).collect();
                let spans = map.spans(0..n, me).flat_map(|(_, g, len)| g..g + len);
                prop_assert_eq!(spans.collect::<Vec<_>>(), held);
            }
            prop_assert_eq!(map.max_count_before(n), *next.iter().max().unwrap());
            prop_assert_eq!(map.min_count_before(n), *next.iter().min().unwrap());
            prop_assert_eq!(next[map.widest(n)], map.max_count_before(n));
        }

        #[test]
        fn blocks_of_an_owner_follow_each_other(blocks in 1usize..60, q in 1usize..8) {
            let map = ColumnMap::cyclic(1, q);
            for me in 0..q {
                let own: Vec<_> = (0..blocks).filter(|&k| map.block_owner(k) == me).collect();
                for (index, &k) in own.iter().enumerate() {
                    prop_assert_eq!(map.block_index(k), index);
                    prop_assert_eq!(map.next_block(k, blocks), own.get(index + 1).copied());
                    for count in 0..own.len() {
                        let earlier = index.checked_sub(count).map(|at| own[at]);
                        prop_assert_eq!(map.earlier_block(k, count), earlier);
                    }
                }
            }
        }
    }
}
