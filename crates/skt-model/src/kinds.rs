//! Nodes of unequal speed: how fast the process columns of a run on them are.

use super::ModelError;
use super::error::{at_least, positive};

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct NodeKind {
    pub nodes: usize,
    /// DGEMM rate of a core, in flop/s.
    pub core_flops: f64,
}

/// The kinds of nodes of a machine, the fastest first; none where all nodes are equally fast.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct NodeKinds {
    kinds: [NodeKind; Self::MAX],
    count: usize,
}

impl NodeKinds {
    pub(crate) const MAX: usize = 8;

    /// The kinds among `nodes`, in any order, of which several may have the same rate.
    pub fn new(nodes: &[NodeKind]) -> Result<Self, ModelError> {
        for kind in nodes {
            at_least("nodes", kind.nodes, 1, "1 or more")?;
            positive("core_flops", kind.core_flops)?;
        }
        let mut sorted = nodes.to_vec();
        sorted.sort_by(|a, b| b.core_flops.total_cmp(&a.core_flops));
        sorted.dedup_by(|next, kept| {
            let is_alike = next.core_flops == kept.core_flops;
            kept.nodes += if is_alike { next.nodes } else { 0 };
            is_alike
        });
        let count = sorted.len();
        if count > Self::MAX {
            return Err(ModelError::no_plan(format!(
                "{count} kinds of nodes; a plan takes at most {} of them",
                Self::MAX
            )));
        }
        if count < 2 {
            return Ok(Self::default());
        }
        let mut kinds = [NodeKind::default(); Self::MAX];
        kinds[..count].copy_from_slice(&sorted);
        Ok(Self { kinds, count })
    }

    pub fn list(&self) -> &[NodeKind] {
        &self.kinds[..self.count]
    }

    pub fn are_equal(&self) -> bool {
        self.count == 0
    }

    /// Number of nodes; 0 where all nodes are equally fast.
    pub fn nodes(&self) -> usize {
        self.list().iter().map(|kind| kind.nodes).sum()
    }

    /// The mean rate of a core over all nodes, in flop/s; not a number where all are equally fast.
    pub(crate) fn mean_core_flops(&self) -> f64 {
        let all = self.list().iter().map(|kind| kind.nodes as f64 * kind.core_flops).sum::<f64>();
        all / self.nodes() as f64
    }

    /// The rate of a core of the slowest nodes, in flop/s; `None` where all are equally fast.
    pub(crate) fn slowest_core_flops(&self) -> Option<f64> {
        self.list().last().map(|kind| kind.core_flops)
    }

    /// Of each process column: the rate of its slowest rank. None where all nodes are equally fast.
    /// Ranks fill the nodes, the fastest first, and the process columns one by one.
    pub fn column_core_flops(&self, ranks_per_node: usize, (p, q): (usize, usize)) -> Vec<f64> {
        if self.are_equal() {
            return Vec::new();
        }
        let rate = |column: usize| {
            let last_node = ((column + 1) * p - 1) / ranks_per_node;
            let mut nodes = 0;
            let holds = |kind: &&NodeKind| {
                nodes += kind.nodes;
                last_node < nodes
            };
            let kind = self.list().iter().find(holds);
            kind.expect("no more ranks than the nodes have").core_flops
        };
        (0..q).map(rate).collect()
    }

    /// [`Self::column_core_flops`], relative to the mean rate of a core.
    pub fn column_rates(&self, ranks_per_node: usize, grid: (usize, usize)) -> Vec<f64> {
        let mean = self.mean_core_flops();
        let flops = self.column_core_flops(ranks_per_node, grid);
        flops.into_iter().map(|flops| flops / mean).collect()
    }
}

/// The columns of the process column with the most, relative to the mean, where process columns of
/// these rates have columns in proportion: as many as each rank has memory for. 1 without rates.
pub fn padding(rates: &[f64]) -> f64 {
    let most = rates.iter().copied().fold(0.0, f64::max);
    if rates.is_empty() { 1.0 } else { most * rates.len() as f64 / rates.iter().sum::<f64>() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(list: &[(usize, f64)]) -> Result<NodeKinds, ModelError> {
        let kind = |&(nodes, core_flops)| NodeKind { nodes, core_flops };
        NodeKinds::new(&list.iter().map(kind).collect::<Vec<_>>())
    }

    #[test]
    fn the_fastest_come_first_and_equal_rates_are_one_kind() {
        let mixed = kinds(&[(2, 30.0), (3, 40.0), (1, 30.0)]).unwrap();
        let list = [(3, 40.0), (3, 30.0)].map(|(nodes, core_flops)| NodeKind { nodes, core_flops });
        assert_eq!((mixed.list(), mixed.nodes()), (&list[..], 6));
        assert_eq!((mixed.mean_core_flops(), mixed.slowest_core_flops()), (35.0, Some(30.0)));
        assert_eq!(kinds(&[(2, 30.0), (4, 30.0)]), Ok(NodeKinds::default()));
        let many: Vec<_> = (1..=9).map(|rate| (1, f64::from(rate))).collect();
        assert!(kinds(&many).unwrap_err().to_string().contains("9 kinds of nodes"));
        assert!(kinds(&[(1, 0.0)]).is_err() && kinds(&[(0, 1.0)]).is_err());
    }

    #[test]
    fn a_process_column_is_as_fast_as_its_slowest_rank() {
        // Three ranks a node: those of the fast nodes are 0 to 5, in two columns and a half.
        let kinds = kinds(&[(2, 30.0), (2, 40.0)]).unwrap();
        assert_eq!(kinds.column_core_flops(3, (2, 6)), [40.0, 40.0, 40.0, 30.0, 30.0, 30.0]);
        assert_eq!(kinds.column_core_flops(3, (4, 3)), [40.0, 30.0, 30.0]);
    }

    #[test]
    fn memory_is_for_the_most() {
        assert_eq!(padding(&[]), 1.0);
        assert_eq!(padding(&[2.0, 1.0]), 4.0 / 3.0);
    }
}
