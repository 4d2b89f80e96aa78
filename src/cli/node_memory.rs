//! The memory of nodes that may differ: `256`, or `6x256,2x128`, in GiB.

use skt_terms::ranges::above_zero;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Alike {
    pub nodes: usize,
    pub gib: f64,
}

/// The memory of the nodes of a machine.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum NodeMemory {
    /// All nodes have the same, in GiB.
    Equal(f64),
    /// Nodes with the most memory first; each memory once.
    Listed(Vec<Alike>),
}

/// Parses the value of a flag. A list must have its numbers of nodes, as a comma alone could be a
/// decimal one.
pub(crate) fn parse(text: &str) -> Result<NodeMemory, String> {
    if let Ok(gib) = above_zero(text) {
        return Ok(NodeMemory::Equal(gib));
    }
    let alike = |part: &str| {
        let (nodes, gib) = part.split_once('x')?;
        let nodes = nodes.parse().ok().filter(|nodes| (1..=1 << 30).contains(nodes))?;
        Some(Alike { nodes, gib: above_zero(gib).ok()? })
    };
    let all: Option<Vec<Alike>> = text.split(',').map(alike).collect();
    let mut all = all.ok_or(
        "legal is a number of GiB above 0 for every node, or nodes x GiB of each kind, e.g. \
         6x256,2x128",
    )?;
    all.sort_by(|a, b| b.gib.total_cmp(&a.gib));
    all.dedup_by(|next, kept| {
        let is_alike = next.gib == kept.gib;
        kept.nodes += if is_alike { next.nodes } else { 0 };
        is_alike
    });
    Ok(NodeMemory::Listed(all))
}

impl NodeMemory {
    pub(crate) fn nodes(&self) -> Option<usize> {
        match self {
            Self::Equal(_) => None,
            Self::Listed(all) => Some(all.iter().map(|alike| alike.nodes).sum()),
        }
    }

    /// The sets of nodes that a run could take, each with the memory that all of its nodes have: a
    /// node with less bounds the others, so it is better left out or takes part with all larger
    /// ones. The largest set is the last one. `nodes` is the number of nodes that are all equal.
    pub(crate) fn sets(&self, nodes: usize) -> Vec<Alike> {
        match self {
            Self::Equal(gib) => vec![Alike { nodes, gib: *gib }],
            Self::Listed(all) => {
                let add = |nodes: &mut usize, alike: &Alike| {
                    *nodes += alike.nodes;
                    Some(Alike { nodes: *nodes, gib: alike.gib })
                };
                all.iter().scan(0, add).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_all_kinds_are_listed_by_their_memory() {
        assert_eq!(parse("59.6"), Ok(NodeMemory::Equal(59.6)));
        let listed = parse("2x128,4x256,1x64,2x256").unwrap();
        assert_eq!(listed.nodes(), Some(9));
        let alike = |nodes, gib| Alike { nodes, gib };
        assert_eq!(listed.sets(9), [alike(6, 256.0), alike(8, 128.0), alike(9, 64.0)]);
        assert_eq!(parse("3x256").unwrap().sets(3), [alike(3, 256.0)]);
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
