//! Which nodes work together, stage by stage.

use skt_host::tournament;

/// Stages of pairs: with three, a slow link is distinguished from a slow node by two other pairs of
/// each of its ends.
const PAIR_STAGES: usize = 3;
const GROUP: usize = 4;

/// Teams of nodes that work at the same time; no node is in two of them.
pub(crate) type Stage = Vec<Vec<usize>>;

/// The stages for `nodes` nodes: pairs of a tournament, so that no pair meets twice; then groups of
/// four, if there are as many nodes, of nodes that are far apart in the list.
///
/// Every node has two different partners at least if there are three nodes or more.
pub(crate) fn stages(nodes: usize) -> Vec<Stage> {
    if nodes < 2 {
        return Vec::new();
    }
    let rounds = tournament::rounds(nodes, PAIR_STAGES).into_iter();
    let mut stages: Vec<Stage> =
        rounds.map(|pairs| pairs.into_iter().map(Vec::from).collect()).collect();
    let groups = nodes / GROUP;
    if groups > 0 {
        let group = |first: usize| (0..GROUP).map(|member| first + member * groups).collect();
        stages.push((0..groups).map(group).collect());
    }
    stages
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    #[test]
    fn each_node_meets_different_partners_one_at_a_time() {
        for nodes in 0..70 {
            let (mut met, mut partners) = (BTreeSet::new(), BTreeMap::<usize, usize>::new());
            for stage in stages(nodes) {
                let members: Vec<usize> = stage.iter().flatten().copied().collect();
                let different: BTreeSet<usize> = members.iter().copied().collect();
                assert_eq!(different.len(), members.len(), "{nodes}: {stage:?}");
                assert!(members.iter().all(|&node| node < nodes), "{nodes}: {stage:?}");
                for team in &stage {
                    assert!(team.is_sorted() && team.len() >= 2, "{nodes}: {stage:?}");
                    if let [a, b] = team[..] {
                        assert!(met.insert((a, b)), "{nodes}: {a} and {b} meet twice");
                        *partners.entry(a).or_default() += 1;
                        *partners.entry(b).or_default() += 1;
                    }
                }
            }
            let least = match nodes {
                0 | 1 => continue,
                2 => 1,
                _ => 2,
            };
            assert!((0..nodes).all(|node| partners[&node] >= least), "{nodes}: {partners:?}");
        }
    }

    #[test]
    fn four_nodes_are_a_group() {
        assert_eq!(stages(4).last().unwrap(), &[vec![0, 1, 2, 3]]);
        assert_eq!(stages(3).last().unwrap()[0].len(), 2);
        assert_eq!(stages(9).last().unwrap(), &[vec![0, 2, 4, 6], vec![1, 3, 5, 7]]);
    }
}
