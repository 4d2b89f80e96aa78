//! Which process column holds which columns of the matrix.
//!
//! Columns are distributed in blocks of NB, as one process column factors a panel. All that depends
//! on who owns which block reads it here: panels, their broadcasts and slots, the local matrix, the
//! substitution.
//!
//! Process columns of equal speed get the blocks in turn. Those of unequal rates get them by a
//! table, dealt from the last block to the first, each to the process column that would then be the
//! first to finish (Beaumont, Boudet, Petitet, Rastello and Robert, IEEE Trans. Computers 2001):
//! what is left of the matrix before any panel is divided by the rates, as well as blocks allow.

use std::ops::Range;
use std::sync::Arc;

use crate::layout::{Cyclic, spans};

/// The distribution of block columns to process columns. A copy costs little.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnMap {
    cyclic: Cyclic,
    /// Where the blocks do not go in turn.
    table: Option<Arc<Table>>,
}

/// The owner of each block of a matrix.
#[derive(Debug, PartialEq, Eq)]
struct Table {
    /// For each block its owner, and the number of blocks before it that the owner has.
    places: Vec<(u32, u32)>,
    /// The blocks of each process column, in order.
    blocks: Vec<Vec<u32>>,
}

impl Table {
    /// A table for the columns `0..=n` in blocks of `nb`. Column `n`, which is b, counts only where
    /// it shares a block with others.
    fn new(n: usize, nb: usize, rates: &[f64]) -> Self {
        let panels = n.div_ceil(nb);
        let mut counts = vec![0; rates.len()];
        let mut owners: Vec<usize> =
            (0..panels).rev().map(|k| deal(k, &mut counts, rates)).collect();
        owners.reverse();
        if n.is_multiple_of(nb) {
            owners.push(deal(panels, &mut counts, rates));
        }
        let mut blocks = vec![Vec::new(); rates.len()];
        let place = |(k, owner): (usize, usize)| {
            let own: &mut Vec<u32> = &mut blocks[owner];
            own.push(k as u32);
            (owner as u32, own.len() as u32 - 1)
        };
        let places = owners.into_iter().enumerate().map(place).collect();
        Self { places, blocks }
    }

    fn owner(&self, k: usize) -> usize {
        self.places[k].0 as usize
    }

    fn index(&self, k: usize) -> usize {
        self.places[k].1 as usize
    }

    /// The block with this index among those of a process column, if there is one.
    fn block(&self, owner: usize, index: usize) -> Option<usize> {
        self.blocks[owner].get(index).map(|&k| k as usize)
    }
}

/// Gives block `k` to the process column that then finishes first, and counts it there. Of several
/// it takes the first from `k` mod Q on, so that those of equal rates get blocks in turn.
fn deal(k: usize, counts: &mut [usize], rates: &[f64]) -> usize {
    let q = rates.len();
    let time = |&me: &usize| (counts[me] + 1) as f64 / rates[me];
    let in_turn = (0..q).map(|step| (k + step) % q);
    let owner = in_turn.min_by(|a, b| time(a).total_cmp(&time(b))).expect("a process column");
    counts[owner] += 1;
    owner
}

impl ColumnMap {
    /// Blocks of `nb` columns go to `q` process columns in turn.
    pub fn cyclic(nb: usize, q: usize) -> Self {
        Self { cyclic: Cyclic { nb, procs: q }, table: None }
    }

    /// Blocks of `nb` of the columns `0..=n` go to process columns of these relative `rates`, in
    /// any unit. Equal rates give [`Self::cyclic`]. Takes time in proportion to Q N / NB.
    ///
    /// # Panics
    /// When there is no rate, or one is not a positive number.
    pub fn with_rates(n: usize, nb: usize, rates: &[f64]) -> Self {
        assert!(!rates.is_empty(), "a rate for each process column");
        assert!(rates.iter().all(|rate| *rate > 0.0 && rate.is_finite()), "{rates:?}");
        let map = Self::cyclic(nb, rates.len());
        if rates.iter().all(|rate| *rate == rates[0]) {
            return map;
        }
        Self { table: Some(Arc::new(Table::new(n, nb, rates))), ..map }
    }

    /// Whether blocks go to process columns in turn.
    pub fn is_cyclic(&self) -> bool {
        self.table.is_none()
    }

    /// Columns of a block.
    pub fn nb(&self) -> usize {
        self.cyclic.nb
    }

    /// Number of process columns.
    pub fn q(&self) -> usize {
        self.cyclic.procs
    }

    /// This distribution as a block-cyclic one, which checksums of groups of Q blocks need.
    ///
    /// # Panics
    /// When blocks do not go in turn.
    pub fn as_cyclic(&self) -> Cyclic {
        assert!(self.is_cyclic(), "checksums need blocks in turn");
        self.cyclic
    }

    /// The process column that holds column `g`.
    pub fn owner(&self, g: usize) -> usize {
        self.block_owner(g / self.nb())
    }

    /// Number of the columns `0..n` that process column `me` holds, which is also the local index
    /// of the first column at or beyond `n` that it holds.
    pub fn count_before(&self, n: usize, me: usize) -> usize {
        let Some(table) = &self.table else { return self.cyclic.count_before(n, me) };
        let (blocks, rest) = (n / self.nb(), n % self.nb());
        let own = table.blocks[me].partition_point(|&k| (k as usize) < blocks);
        let holds_rest = table.block(me, own) == Some(blocks);
        own * self.nb() + if holds_rest { rest } else { 0 }
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
        (0..self.q()).map(move |me| self.count_before(n, me))
    }

    /// The local index of column `g` on its owner.
    pub fn local(&self, g: usize) -> usize {
        self.block_index(g / self.nb()) * self.nb() + g % self.nb()
    }

    /// The column with local index `l` on process column `me`.
    ///
    /// # Panics
    /// Where blocks do not go in turn: when `me` has no such column.
    pub fn global(&self, l: usize, me: usize) -> usize {
        let Some(table) = &self.table else { return self.cyclic.global(l, me) };
        table.blocks[me][l / self.nb()] as usize * self.nb() + l % self.nb()
    }

    /// The columns in `global` that process column `me` holds, in order, as contiguous spans: for
    /// each, the first local index, the first column, and the length.
    pub fn spans(
        &self,
        global: Range<usize>,
        me: usize,
    ) -> impl Iterator<Item = (usize, usize, usize)> {
        let local = self.count_before(global.start, me)..self.count_before(global.end, me);
        spans(self.nb(), self.q(), local, move |l| self.global(l, me))
    }

    /// The process column that owns block `k`, which is panel `k`.
    pub fn block_owner(&self, k: usize) -> usize {
        self.table.as_ref().map_or(k % self.q(), |table| table.owner(k))
    }

    /// The number of blocks before block `k` that its owner has.
    pub fn block_index(&self, k: usize) -> usize {
        self.table.as_ref().map_or(k / self.q(), |table| table.index(k))
    }

    /// The block that comes `count` before block `k` among those of its owner, if there is one.
    pub fn earlier_block(&self, k: usize, count: usize) -> Option<usize> {
        let Some(table) = &self.table else { return k.checked_sub(self.q() * count) };
        table.block(table.owner(k), table.index(k).checked_sub(count)?)
    }

    /// The next block after `k`, of `blocks` in all, that the owner of block `k` has.
    pub fn next_block(&self, k: usize, blocks: usize) -> Option<usize> {
        let next = match &self.table {
            None => Some(k + self.q()),
            Some(table) => table.block(table.owner(k), table.index(k) + 1),
        };
        next.filter(|&next| next < blocks)
    }

    /// The owner of the first block after `k` that another process column owns. `None` if there is
    /// no such block, or if blocks go in turn: then it is the next process column.
    pub fn next_owner(&self, k: usize) -> Option<usize> {
        let table = self.table.as_ref()?;
        let later = table.places[k + 1..].iter().map(|(owner, _)| *owner as usize);
        later.into_iter().find(|&owner| owner != table.owner(k))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A matrix in blocks of `nb`, and the rates of its process columns: equal or not.
    fn cases() -> impl Strategy<Value = (usize, usize, Vec<u32>)> {
        let rates = prop_oneof![
            (1u32..5, 1usize..8).prop_map(|(rate, q)| vec![rate; q]),
            prop::collection::vec(1u32..9, 1..8),
            prop::collection::vec(prop_oneof![Just(1u32), Just(50), Just(137)], 1..8),
        ];
        (0usize..300, 1usize..20, rates)
    }

    fn map((n, nb, rates): &(usize, usize, Vec<u32>)) -> ColumnMap {
        // In another unit, as the unit must not matter.
        let rates: Vec<f64> = rates.iter().map(|&rate| f64::from(rate) / 64.0).collect();
        ColumnMap::with_rates(*n, *nb, &rates)
    }

    /// The owner of each block, by whole numbers alone.
    fn naive_owners((n, nb, rates): &(usize, usize, Vec<u32>)) -> Vec<usize> {
        let (panels, q) = (n.div_ceil(*nb), rates.len());
        let blocks = (n + 1).div_ceil(*nb);
        let mut counts = vec![0u32; q];
        let mut owners = vec![0; blocks];
        for k in (0..panels).rev().chain(panels..blocks) {
            let mut best = k % q;
            for step in 1..q {
                let other = (k + step) % q;
                if (counts[other] + 1) * rates[best] < (counts[best] + 1) * rates[other] {
                    best = other;
                }
            }
            counts[best] += 1;
            owners[k] = best;
        }
        owners
    }

    proptest! {
        #[test]
        fn every_column_has_one_place(case in cases(), until in 0usize..=300) {
            let (map, owners) = (map(&case), naive_owners(&case));
            let (n, nb, q) = (until.min(case.0 + 1), case.1, case.2.len());
            let mut next = vec![0; q];
            for g in 0..n {
                let me = map.owner(g);
                prop_assert_eq!(me, owners[g / nb]);
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
        fn blocks_of_an_owner_follow_each_other(case in cases()) {
            let (map, owners) = (map(&case), naive_owners(&case));
            let panels = case.0.div_ceil(case.1);
            for me in 0..case.2.len() {
                let own: Vec<_> = (0..panels).filter(|&k| owners[k] == me).collect();
                for (index, &k) in own.iter().enumerate() {
                    prop_assert_eq!(map.block_owner(k), me);
                    prop_assert_eq!(map.block_index(k), index);
                    prop_assert_eq!(map.next_block(k, panels), own.get(index + 1).copied());
                    for count in 0..own.len() {
                        let earlier = index.checked_sub(count).map(|at| own[at]);
                        prop_assert_eq!(map.earlier_block(k, count), earlier);
                    }
                    let other = owners[k..].iter().copied().find(|&owner| owner != me);
                    prop_assert_eq!(map.next_owner(k), other.filter(|_| !map.is_cyclic()));
                }
            }
        }

        #[test]
        fn equal_rates_deal_blocks_in_turn(n in 0usize..300, nb in 1usize..20, q in 1usize..9) {
            let cyclic = ColumnMap::cyclic(nb, q);
            prop_assert_eq!(&ColumnMap::with_rates(n, nb, &vec![1.37; q]), &cyclic);
            let table = Table::new(n, nb, &vec![1.37; q]);
            for k in 0..(n + 1).div_ceil(nb) {
                prop_assert_eq!(table.owner(k), cyclic.block_owner(k));
                prop_assert_eq!(table.index(k), cyclic.block_index(k));
            }
        }

        /// What is left before any panel would not be done earlier with one block elsewhere, and
        /// no process column has more than a block less than its share.
        #[test]
        fn blocks_that_are_left_are_in_proportion_to_the_rates(case in cases()) {
            let (owners, rates) = (naive_owners(&case), &case.2);
            let panels = case.0.div_ceil(case.1);
            for left in (0..panels).map(|k| &owners[k..panels]) {
                let count = |me| left.iter().filter(|&&owner| owner == me).count() as u32;
                let counts: Vec<u32> = (0..rates.len()).map(count).collect();
                let sum: u32 = rates.iter().sum();
                for (a, &blocks) in counts.iter().enumerate() {
                    prop_assert!((blocks + 1) * sum > left.len() as u32 * rates[a], "{counts:?}");
                    for (b, others) in counts.iter().enumerate() {
                        prop_assert!(blocks * rates[b] <= (others + 1) * rates[a], "{counts:?}");
                    }
                }
            }
        }
    }

    /// The part of the time of all process columns that they compute, if all wait for the slowest
    /// in each step.
    fn efficiency(panels: usize, rates: &[f64]) -> f64 {
        let (map, all) = (ColumnMap::with_rates(panels, 1, rates), rates.iter().sum::<f64>());
        let (mut ideal, mut real) = (0.0, 0.0);
        for k in 0..panels {
            let rows = (panels - k - 1) as f64;
            let left = |me| map.count_before(panels, me) - map.count_before(k + 1, me);
            let times = rates.iter().enumerate().map(|(me, rate)| left(me) as f64 / rate);
            real += rows * times.fold(0.0, f64::max);
            ideal += rows * rows / all;
        }
        ideal / real
    }

    #[test]
    fn unequal_columns_lose_no_more_than_equal_ones() {
        let equal = efficiency(500, &[1.0; 8]);
        let slow_last = [1.37, 1.37, 1.37, 1.37, 1.37, 1.37, 1.37, 1.0];
        let half_slow = [1.0, 1.37, 1.0, 1.37, 1.0, 1.37, 1.0, 1.37];
        for rates in [slow_last, half_slow] {
            let unequal = efficiency(500, &rates);
            assert!(unequal > equal - 0.01, "{unequal}, {equal} with equal rates");
        }
        // In turn, all wait for the slow one.
        assert!(equal > 0.95, "{equal}");
    }

    /// A process column may own successive panels, and none of the last Q.
    #[test]
    fn fast_columns_own_successive_blocks() {
        let map = ColumnMap::with_rates(12, 1, &[1.0, 5.0, 1.0]);
        let owners: Vec<_> = (0..12).map(|k| map.block_owner(k)).collect();
        assert_eq!(owners, [0, 1, 1, 1, 1, 2, 0, 1, 1, 1, 1, 1]);
        assert_eq!([1, 4, 6, 7].map(|k| map.next_owner(k)), [Some(2), Some(2), Some(1), None]);
    }
}
