//! Which member of a group is at fault, if only the groups are known to be bad.

use std::collections::{BTreeMap, BTreeSet};

/// A group of nodes that worked together, and whether the result was bad.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeGroup<'a> {
    pub nodes: &'a [usize],
    pub is_bad: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Blame {
    /// Nodes that are at fault, each with its groups.
    pub nodes: BTreeMap<usize, Evidence>,
    /// Bad groups without a node of `nodes`, as indices: no member is more likely at fault than
    /// another, or it is the link between them.
    pub unexplained: Vec<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    pub bad: Vec<usize>,
    pub of: usize,
}

/// Finds the nodes that explain the bad ones of `groups`, beyond the nodes `known` to be at fault.
///
/// A good group clears its members, if faults persist. So if all members of a bad group but one are
/// clear, that one is named. Where faults come and go, a group may have no suspect: then a member
/// that is in more such groups than any other member is named, if it is in two at least.
pub fn blame(groups: &[NodeGroup], known: &BTreeSet<usize>) -> Blame {
    let good = groups.iter().filter(|group| !group.is_bad);
    let clear: BTreeSet<usize> = good.flat_map(|group| group.nodes).copied().collect();
    let is_open = |index: &usize, named: &BTreeSet<usize>| {
        !groups[*index].nodes.iter().any(|node| known.contains(node) || named.contains(node))
    };
    let bad: Vec<usize> = (0..groups.len()).filter(|&index| groups[index].is_bad).collect();
    let mut named = BTreeSet::new();
    for index in bad.iter().filter(|index| is_open(index, &BTreeSet::new())) {
        let mut suspects = groups[*index].nodes.iter().filter(|node| !clear.contains(node));
        if let (Some(only), None) = (suspects.next(), suspects.next()) {
            named.insert(*only);
        }
    }
    let open: Vec<usize> = bad.into_iter().filter(|index| is_open(index, &named)).collect();
    named.extend(in_several_groups(groups, &open, &clear));
    let unexplained = open.into_iter().filter(|index| is_open(index, &named)).collect();
    let evidence = |node| {
        let own = || (0..groups.len()).filter(|&index| groups[index].nodes.contains(&node));
        (node, Evidence { bad: own().filter(|&it| groups[it].is_bad).collect(), of: own().count() })
    };
    Blame { nodes: named.into_iter().map(evidence).collect(), unexplained }
}

/// For each of the groups `open` whose members are all clear: the member that is in more of these
/// groups than any other member, if it is in two at least.
fn in_several_groups(groups: &[NodeGroup], open: &[usize], clear: &BTreeSet<usize>) -> Vec<usize> {
    let all_clear = |nodes: &[usize]| nodes.iter().all(|node| clear.contains(node));
    let groups: Vec<&NodeGroup> =
        open.iter().map(|&index| &groups[index]).filter(|group| all_clear(group.nodes)).collect();
    let mut times: BTreeMap<usize, usize> = BTreeMap::new();
    for node in groups.iter().flat_map(|group| group.nodes) {
        *times.entry(*node).or_default() += 1;
    }
    let of_group = |group: &&NodeGroup| {
        let most = group.nodes.iter().map(|node| times[node]).max()?;
        let mut with_most = group.nodes.iter().filter(|node| times[node] == most);
        let first = with_most.next().filter(|_| most > 1)?;
        with_most.next().is_none().then_some(*first)
    };
    groups.iter().filter_map(of_group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups<'a>(of: &[(&'a [usize], bool)]) -> Vec<NodeGroup<'a>> {
        of.iter().map(|&(nodes, is_bad)| NodeGroup { nodes, is_bad }).collect()
    }

    fn found(of: &[(&[usize], bool)]) -> (Vec<usize>, Vec<usize>) {
        let blame = blame(&groups(of), &BTreeSet::new());
        (blame.nodes.into_keys().collect(), blame.unexplained)
    }

    #[test]
    fn only_the_node_whose_groups_are_all_bad_is_named() {
        let of: [(&[usize], bool); 4] =
            [(&[0, 1], true), (&[2, 3], false), (&[0, 2], true), (&[1, 3], false)];
        assert_eq!(found(&of), (vec![0], vec![]));
    }

    #[test]
    fn a_group_between_nodes_that_are_clear_is_named_itself() {
        let of: [(&[usize], bool); 4] =
            [(&[0, 1], true), (&[2, 3], false), (&[0, 2], false), (&[1, 3], false)];
        assert_eq!(found(&of), (vec![], vec![0]));
        assert_eq!(found(&[(&[0, 1], true)]), (vec![], vec![0]));
    }

    #[test]
    fn a_sound_node_among_bad_partners_is_not_named() {
        // 0 has only bad partners, 1, 2 and 3; each of them was also with one that is clear.
        let of: [(&[usize], bool); 9] = [
            (&[0, 1], true),
            (&[0, 2], true),
            (&[0, 3], true),
            (&[1, 4], true),
            (&[2, 5], true),
            (&[3, 6], true),
            (&[4, 5], false),
            (&[5, 6], false),
            (&[4, 6], false),
        ];
        assert_eq!(found(&of), (vec![1, 2, 3], vec![]));
    }

    #[test]
    fn a_fault_that_comes_and_goes_is_named_if_it_came_twice() {
        let of: [(&[usize], bool); 6] = [
            (&[0, 1], true),
            (&[0, 2], true),
            (&[0, 3], false),
            (&[1, 2], false),
            (&[1, 3], false),
            (&[2, 3], false),
        ];
        assert_eq!(found(&of), (vec![0], vec![]));
    }

    #[test]
    fn a_known_fault_explains_its_groups() {
        let of = groups(&[(&[0, 1], true), (&[1, 2], true)]);
        let blame = blame(&of, &BTreeSet::from([1]));
        assert_eq!(blame, Blame::default());
    }
}
