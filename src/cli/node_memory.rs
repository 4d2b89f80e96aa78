//! The nodes of a machine, which may differ: `256`, or `6x256@40,2x128@30`, in GiB and Gflop/s.

use skt_host::ranges::above_zero;
use skt_model::ModelError;
use skt_model::kinds::{NodeKind, NodeKinds};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Alike {
    /// 0 for all nodes of the run.
    pub nodes: usize,
    pub gib: f64,
    pub gflops: Option<f64>,
}

/// Nodes with the most memory first, of these the fastest; each pair of both once.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NodeList(pub Vec<Alike>);

/// A list must have its numbers of nodes, as a comma alone could be a decimal one.
pub(crate) fn parse(text: &str) -> Result<NodeList, String> {
    if let Ok(gib) = above_zero(text) {
        return Ok(NodeList(vec![Alike { nodes: 0, gib, gflops: None }]));
    }
    let alike = |part: &str| {
        let (nodes, gib) = part.split_once('x')?;
        let nodes = nodes.parse().ok().filter(|nodes| (1..=1 << 30).contains(nodes))?;
        let (gib, gflops) = match gib.split_once('@') {
            Some((gib, gflops)) => (gib, Some(above_zero(gflops).ok()?)),
            None => (gib, None),
        };
        Some(Alike { nodes, gib: above_zero(gib).ok()?, gflops })
    };
    let all: Option<Vec<Alike>> = text.split(',').map(alike).collect();
    let has_rates = |all: &[Alike]| all.iter().filter(|alike| alike.gflops.is_some()).count();
    let mut all = all.filter(|all| [0, all.len()].contains(&has_rates(all))).ok_or(
        "legal is a number of GiB above 0 for every node, or nodes x GiB of each kind, e.g. \
         6x256,2x128, with the Gflop/s of a core of each if they differ: 6x256@40,2x128@30",
    )?;
    let fastest_first = |a: &Alike, b: &Alike| {
        let [a_rate, b_rate] = [a, b].map(|alike| alike.gflops.unwrap_or(0.0));
        b.gib.total_cmp(&a.gib).then(b_rate.total_cmp(&a_rate))
    };
    all.sort_by(fastest_first);
    all.dedup_by(|next, kept| {
        let is_alike = (next.gib, next.gflops) == (kept.gib, kept.gflops);
        kept.nodes += if is_alike { next.nodes } else { 0 };
        is_alike
    });
    Ok(NodeList(all))
}

impl NodeList {
    pub(crate) fn nodes(&self) -> usize {
        self.0.iter().map(|alike| alike.nodes).sum()
    }

    /// The memory that all of them have, in GiB.
    pub(crate) fn gib(&self) -> f64 {
        self.0.iter().map(|alike| alike.gib).fold(f64::INFINITY, f64::min)
    }

    /// The rates of cores, in Gflop/s, the highest first, each once; none if they are not given.
    pub(crate) fn rates(&self) -> Vec<f64> {
        let mut rates: Vec<f64> = self.0.iter().filter_map(|alike| alike.gflops).collect();
        rates.sort_by(|a, b| b.total_cmp(a));
        rates.dedup();
        rates
    }

    pub(crate) fn kinds(&self) -> Result<NodeKinds, ModelError> {
        let kind = |alike: &Alike| {
            let core_flops = alike.gflops? * 1e9;
            Some(NodeKind { nodes: alike.nodes, core_flops })
        };
        NodeKinds::new(&self.0.iter().filter_map(kind).collect::<Vec<_>>())
    }

    /// Those that a run could take: nodes with at least some memory and some rate. A node with less
    /// of either bounds or slows the others, so it is better left out or takes part with all that
    /// are no worse. The largest set is the last one.
    pub(crate) fn sets(&self) -> Vec<Self> {
        let rates = self.rates();
        let rates = if rates.is_empty() { vec![0.0] } else { rates };
        let mut sets = Vec::new();
        for least in &self.0 {
            for rate in &rates {
                let is_as_fast = |one: &Alike| one.gflops.is_none_or(|gflops| gflops >= *rate);
                let is_taken = |one: &&Alike| one.gib >= least.gib && is_as_fast(one);
                let set = Self(self.0.iter().filter(is_taken).copied().collect());
                if !set.0.is_empty() && !sets.contains(&set) {
                    sets.push(set);
                }
            }
        }
        sets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of nodes and the memory of each set.
    fn sets(text: &str) -> Vec<(usize, f64)> {
        let sets = parse(text).unwrap().sets();
        sets.iter().map(|set| (set.nodes(), set.gib())).collect()
    }

    #[test]
    fn nodes_of_all_kinds_are_listed_by_their_memory() {
        assert_eq!(sets("59.6"), [(0, 59.6)]);
        assert_eq!(parse("2x128,4x256,1x64,2x256").unwrap().nodes(), 9);
        assert_eq!(sets("2x128,4x256,1x64,2x256"), [(6, 256.0), (8, 128.0), (9, 64.0)]);
        assert_eq!(sets("3x256"), [(3, 256.0)]);
    }

    #[test]
    fn slow_nodes_may_be_left_out_as_well() {
        // One rate for all changes no set.
        assert_eq!(sets("2x128@40,6x256@40"), sets("2x128,6x256"));
        assert_eq!(sets("6x256@40,2x256@30"), [(6, 256.0), (8, 256.0)]);
        // The fast nodes of each memory, then all nodes with it.
        let both = [(6, 256.0), (8, 128.0)];
        assert_eq!(sets("6x256@40,2x128@50"), [(6, 256.0), (2, 128.0), (8, 128.0)]);
        assert_eq!(sets("6x256@40,2x128@30"), both);
        let set = &parse("1x256@40,2x128@50,3x128@40").unwrap().sets()[0];
        assert_eq!((&set.rates()[..], set.kinds().unwrap().are_equal()), (&[40.0][..], true));
        assert_eq!(parse("1x256@30,6x256@40,2x128@30").unwrap().rates(), [40.0, 30.0]);
        assert!(parse("6x256,2x128").unwrap().rates().is_empty());
        for text in ["6x256@40,2x128", "6x256@0", "6x256@", "256@40"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_may_be_a_decimal_comma_is_no_list() {
        for text in
            ["256,5", "1,024", "256,256", "0x256", "2x0", "2x", "x256", "2x256,", "", "-1", "2X256"]
        {
            let why = parse(text).expect_err(text);
            assert!(why.contains("6x256,2x128"), "{text}: {why}");
        }
    }
}
