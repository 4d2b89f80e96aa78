//! Ranks that share a node, and what this does to their messages.
//!
//! In each step of an exchange a number of ranks send at the same time. Messages that leave a node
//! share its link, messages within a node do not touch it. So the time of a byte depends on who
//! sends: the node that sends most decides. It is given as a multiple of the time that a byte takes
//! on a link that is not shared.

use std::cell::RefCell;
use std::collections::BTreeMap;

use skt_host::choice::Pmap;

use super::RunParams;

/// The ranks of a node. Ranks that follow each other share one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Placement {
    /// Number of ranks on a node, which share the machine's bandwidth.
    pub ranks_per_node: usize,
    /// The order of ranks in the process grid.
    pub pmap: Pmap,
    /// Seconds of a byte between two ranks of a node, relative to the link: other messages within
    /// the node do not slow it down.
    pub inner_share: f64,
}

impl Placement {
    /// Each rank has the machine's bandwidth to itself.
    pub const ALONE: Placement =
        Placement { ranks_per_node: 1, pmap: Pmap::RowMajor, inner_share: 1.0 };
}

/// A process row and a process column.
type Position = (usize, usize);

impl RunParams {
    fn node(&self, (row, column): Position) -> usize {
        let rank = match self.placement.pmap {
            Pmap::RowMajor => row * self.q + column,
            Pmap::ColumnMajor => column * self.p + row,
        };
        rank / self.placement.ranks_per_node
    }

    /// The time of a byte if all these pairs of sender and receiver send at the same time.
    fn weight(&self, pairs: impl Iterator<Item = (Position, Position)>) -> f64 {
        if self.placement.ranks_per_node == 1 {
            return 1.0;
        }
        let mut leaving = BTreeMap::<usize, usize>::new();
        let mut weight: f64 = 0.0;
        for (sender, receiver) in pairs {
            let node = self.node(sender);
            if node == self.node(receiver) {
                weight = weight.max(self.placement.inner_share);
            } else {
                *leaving.entry(node).or_default() += 1;
            }
        }
        leaving.into_values().map(|count| count as f64).fold(weight, f64::max)
    }
}

/// The time of a byte in the exchanges within process columns.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ColumnWeights {
    pub doubling: Vec<f64>,
    /// From the ranks beyond the power of two and back to them.
    pub leaning: f64,
    /// From each rank to each other one, on average.
    pub spread: f64,
    /// Around the ring.
    pub roll: f64,
}

impl ColumnWeights {
    /// The first `columns` process columns exchange at the same time.
    pub(super) fn new(run: &RunParams, columns: usize) -> Self {
        let p = run.p;
        let power = 1usize << p.ilog2();
        let weight = |rows: std::ops::Range<usize>, partner: &dyn Fn(usize) -> usize| {
            let pairs = rows.flat_map(|row| (0..columns).map(move |column| (row, column)));
            run.weight(pairs.map(|(row, column)| ((row, column), (partner(row), column))))
        };
        let shifted = |distance: usize| weight(0..p, &|row| (row + distance) % p);
        let shared = run.placement.ranks_per_node > 1 && p > 1;
        let spread = (1..p).map(shifted).sum::<f64>() / (p - 1) as f64;
        Self {
            doubling: (0..p.ilog2())
                .map(|step| weight(0..power, &|row| row ^ (1 << step)))
                .collect(),
            leaning: weight(power..p, &|row| row - power),
            spread: if shared { spread } else { 1.0 },
            roll: shifted(1),
        }
    }
}

/// The time of a byte of a panel from one process column to another, in all process rows at once.
#[derive(Debug)]
pub(super) struct EdgeWeights<'a> {
    run: &'a RunParams,
    /// The times that were asked for so far, by sender and receiver.
    known: RefCell<BTreeMap<(usize, usize), f64>>,
}

impl<'a> EdgeWeights<'a> {
    pub(super) fn new(run: &'a RunParams) -> Self {
        Self { run, known: RefCell::default() }
    }

    pub(super) fn between(&self, sender: usize, receiver: usize) -> f64 {
        if self.run.placement.ranks_per_node == 1 {
            return 1.0;
        }
        *self.known.borrow_mut().entry((sender, receiver)).or_insert_with(|| {
            self.run.weight((0..self.run.p).map(|row| ((row, sender), (row, receiver))))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_nodes(grid: (usize, usize), ranks_per_node: usize, pmap: Pmap) -> RunParams {
        let placement = Placement { ranks_per_node, pmap, inner_share: 0.5 };
        RunParams { placement, ..RunParams::new(1000, 10, grid) }
    }

    #[test]
    fn a_node_for_each_process_row() {
        let run = on_nodes((4, 4), 4, Pmap::RowMajor);
        // Panels stay within the node, all rows of a node leave it.
        assert_eq!(EdgeWeights::new(&run).between(3, 0), 0.5);
        let all = ColumnWeights::new(&run, 4);
        assert_eq!((all.doubling, all.spread, all.roll), (vec![4.0, 4.0], 4.0, 4.0));
        // The pivots of one process column have the links to themselves.
        assert_eq!(ColumnWeights::new(&run, 1).doubling, [1.0, 1.0]);
    }

    #[test]
    fn a_node_for_each_process_column() {
        let run = on_nodes((4, 4), 4, Pmap::ColumnMajor);
        assert_eq!(EdgeWeights::new(&run).between(3, 0), 4.0);
        let all = ColumnWeights::new(&run, 4);
        assert_eq!((all.doubling, all.spread, all.roll), (vec![0.5, 0.5], 0.5, 0.5));
    }

    #[test]
    fn nodes_of_parts_of_rows_and_of_columns() {
        // Nodes 0 and 1 have a half of process row 0 each.
        let wide = on_nodes((2, 8), 4, Pmap::RowMajor);
        let edges = EdgeWeights::new(&wide);
        assert_eq!((edges.between(2, 3), edges.between(3, 4)), (0.5, 1.0));
        // Node 0 has process rows 0 and 1: the first step stays within it, from the second on all
        // four ranks send, as one of two does around the ring in each column.
        let tall = on_nodes((6, 2), 4, Pmap::RowMajor);
        let all = ColumnWeights::new(&tall, 2);
        assert_eq!((all.doubling, all.leaning, all.roll), (vec![0.5, 4.0], 4.0, 2.0));
    }

    #[test]
    fn alone_on_a_node_a_rank_shares_nothing() {
        let run = RunParams::new(1000, 10, (6, 5));
        let all = ColumnWeights::new(&run, 5);
        assert_eq!((all.doubling, all.leaning), (vec![1.0, 1.0], 1.0));
        assert_eq!((all.spread, all.roll), (1.0, 1.0));
        assert_eq!(EdgeWeights::new(&run).between(0, 1), 1.0);
    }
}
