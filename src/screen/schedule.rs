//! Which nodes work together, stage by stage.

/// Stages of pairs: with three, a slow link is told from a slow node by two other pairs of each of
/// its ends.
const PAIR_STAGES: usize = 3;
/// Nodes of a group.
const GROUP: usize = 4;

/// Teams of nodes that work at the same time; no node is in two of them.
pub type Stage = Vec<Vec<usize>>;

/// The stages for `nodes` nodes: pairs by the circle method of tournaments, so that no pair meets
/// twice; then groups of four, if there are as many nodes, of nodes that are far apart in the list.
///
/// Every node has two different partners at least if there are three nodes or more.
pub fn stages(nodes: usize) -> Vec<Stage> {
    if nodes < 2 {
        return Vec::new();
    }
    let even = nodes.next_multiple_of(2);
    let rounds = PAIR_STAGES.min(even - 1);
    let mut stages: Vec<Stage> = (0..rounds).map(|round| pairs(nodes, even, round)).collect();
    let groups = nodes / GROUP;
    if groups > 0 {
        let group = |first: usize| (0..GROUP).map(|member| first + member * groups).collect();
        stages.push((0..groups).map(group).collect());
    }
    stages
}

/// Round `round` of a tournament of `even` players, of whom those from `nodes` on do not exist: the
/// last one stays, the others move on around a circle.
fn pairs(nodes: usize, even: usize, round: usize) -> Stage {
    let circle = even - 1;
    let at = |place: usize| (place + round) % circle;
    let first = (at(0), even - 1);
    let others = (1..even / 2).map(|place| (at(place), at(circle - place)));
    let ordered = |(a, b): (usize, usize)| vec![a.min(b), a.max(b)];
    let is_there = |pair: &Vec<usize>| pair[1] < nodes;
    std::iter::once(first).chain(others).map(ordered).filter(is_there).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    #[test]
    fn each_node_meets_different_partners_and_is_at_one_place_at_a_time() {
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
