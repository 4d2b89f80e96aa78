use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::found::Content;
use super::offer::Offer;
use crate::checkpoint::header::SegmentId;

/// Assigns a process to each usable rank that some process of its node has found: a largest
/// matching, by augmenting paths. A process that had a rank keeps it; otherwise it might take over
/// the segment of a lost rank, which may be incomplete, and leave its own unused. The other
/// processes take the rank of their own number where possible.
pub(super) fn assign(
    offers: &[Offer],
    usable: &BTreeMap<usize, &Content>,
) -> BTreeMap<usize, (usize, SegmentId)> {
    let mut on_node: HashMap<&str, Vec<usize>> = HashMap::new();
    for (process, offer) in offers.iter().enumerate() {
        on_node.entry(&offer.node).or_default().push(process);
    }
    let mut holders: BTreeMap<usize, Vec<(usize, SegmentId)>> = BTreeMap::new();
    for offer in offers {
        for segment in &offer.segments {
            let Some(content) = &segment.content else { continue };
            if usable.get(&content.rank) == Some(&content) {
                let all = on_node[offer.node.as_str()].iter().map(|&process| (process, segment.id));
                holders.entry(content.rank).or_default().extend(all);
            }
        }
    }
    for (&rank, list) in &mut holders {
        list.sort_by_key(|&(process, id)| (process != rank, process, id));
    }
    let (mut owner, mut assigned): (BTreeMap<usize, usize>, _) = (BTreeMap::new(), BTreeSet::new());
    let has_rank = |(process, offer): (usize, &Offer)| Some((process, offer.rank_in_run?));
    for (process, rank) in offers.iter().enumerate().filter_map(has_rank) {
        let is_there = |list: &Vec<(usize, SegmentId)>| list.iter().any(|(p, _)| *p == process);
        if holders.get(&rank).is_some_and(is_there) && assigned.insert(rank) {
            owner.insert(process, rank);
        }
    }
    // A path from a process that has a rank leads to another process for that rank.
    for &rank in holders.keys().filter(|rank| !assigned.contains(rank)) {
        place(rank, &holders, &mut owner, &mut BTreeSet::new());
    }
    let id = |rank: usize, process: usize| {
        holders[&rank].iter().find(|(p, _)| *p == process).expect("an edge of the matching").1
    };
    owner.into_iter().map(|(process, rank)| (rank, (process, id(rank, process)))).collect()
}

fn place(
    rank: usize,
    holders: &BTreeMap<usize, Vec<(usize, SegmentId)>>,
    owner: &mut BTreeMap<usize, usize>,
    tried: &mut BTreeSet<usize>,
) -> bool {
    // A free process first, so that none is moved without need.
    let free = holders[&rank].iter().find(|(process, _)| !owner.contains_key(process));
    if let Some(&(process, _)) = free {
        owner.insert(process, rank);
        return true;
    }
    for &(process, _) in &holders[&rank] {
        if tried.insert(process) && place(owner[&process], holders, owner, tried) {
            owner.insert(process, rank);
            return true;
        }
    }
    false
}

/// Each process without data gets its own number if that rank is lost, the others in rising order.
pub(super) fn give_lost_ranks(ranks: &mut [usize], lost: &[usize]) {
    let mut left: BTreeSet<usize> = lost.iter().copied().collect();
    for (process, rank) in ranks.iter_mut().enumerate() {
        if *rank == usize::MAX && left.remove(&process) {
            *rank = process;
        }
    }
    let mut left = left.into_iter();
    for rank in ranks.iter_mut().filter(|rank| **rank == usize::MAX) {
        *rank = left.next().expect("as many processes without data as lost ranks");
    }
    assert_eq!(left.next(), None);
}

/// Exchanges `lost` ranks between the processes that take them over, while two of them have fewer
/// ranks of a group beyond `most` in one failure domain afterwards: processes that share a node
/// with survivors would otherwise be lost together with more of their group than need be.
/// `domains` has the failure domain of each process. Takes up to the square of their number steps.
pub(super) fn separate_lost_ranks(
    ranks: &mut [usize],
    lost: &[usize],
    groups: &[Vec<usize>],
    domains: &[String],
    most: usize,
) {
    let mut group_of = vec![0; ranks.len()];
    for (group, members) in groups.iter().enumerate() {
        members.iter().for_each(|&rank| group_of[rank] = group);
    }
    let mut numbers = BTreeMap::new();
    let mut domain_of = Vec::new();
    for domain in domains {
        let next = numbers.len();
        domain_of.push(*numbers.entry(domain).or_insert(next));
    }
    let mut held: HashMap<(usize, usize), usize> = HashMap::new();
    for (process, &rank) in ranks.iter().enumerate() {
        *held.entry((domain_of[process], group_of[rank])).or_default() += 1;
    }
    let lost: BTreeSet<usize> = lost.iter().copied().collect();
    let takers: Vec<usize> = (0..ranks.len()).filter(|&p| lost.contains(&ranks[p])).collect();
    // Each exchange lowers the sum of what is beyond `most`, so this ends.
    let mut has_changed = true;
    while std::mem::take(&mut has_changed) {
        for &p in &takers {
            for &q in &takers {
                let (here, there) = (domain_of[p], domain_of[q]);
                let (mine, theirs) = (group_of[ranks[p]], group_of[ranks[q]]);
                let count = |key| held.get(&key).copied().unwrap_or(0);
                if count((here, mine)) <= most {
                    break;
                }
                if here == there || mine == theirs {
                    continue;
                }
                let gained = 1 + usize::from(count((there, theirs)) > most);
                let to = [(here, theirs), (there, mine)];
                if gained > to.iter().filter(|key| count(**key) >= most).count() {
                    for from in [(here, mine), (there, theirs)] {
                        *held.get_mut(&from).expect("a process holds it") -= 1;
                    }
                    for to in to {
                        *held.entry(to).or_default() += 1;
                    }
                    ranks.swap(p, q);
                    has_changed = true;
                }
            }
        }
    }
}

/// By process. Every finder of a segment that no process takes over removes it; one succeeds.
pub(super) fn discards(offers: &[Offer], attach: &[Option<SegmentId>]) -> Vec<Vec<SegmentId>> {
    let kept: BTreeSet<(&str, SegmentId)> = offers
        .iter()
        .zip(attach)
        .filter_map(|(offer, id)| id.map(|id| (offer.node.as_str(), id)))
        .collect();
    offers
        .iter()
        .map(|offer| {
            let ids = offer.segments.iter().map(|segment| segment.id);
            ids.filter(|&id| !kept.contains(&(offer.node.as_str(), id))).collect()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::checkpoint::group::shared_domain;

    fn given(
        mut ranks: Vec<usize>,
        groups: &[Vec<usize>],
        domains: &[String],
        most: usize,
    ) -> Vec<usize> {
        let lost: Vec<usize> = (0..ranks.len()).filter(|rank| !ranks.contains(rank)).collect();
        give_lost_ranks(&mut ranks, &lost);
        separate_lost_ranks(&mut ranks, &lost, groups, domains, most);
        ranks
    }

    const FREE: usize = usize::MAX;

    /// Node 4 of four is lost, with ranks 3 and 7 of two groups; their processes are on nodes 2 and
    /// 3, whose other ranks are of these groups.
    #[test]
    fn lost_ranks_go_where_their_group_has_none() {
        let domains = ["1", "2", "2", "3", "3", "1"].map(str::to_owned);
        let groups = [vec![0, 1, 2], vec![3, 4, 5]];
        let ranks = vec![0, 1, FREE, 4, FREE, 3];
        // In rising order rank 2 would join rank 1 of its group, and rank 5 rank 4.
        let ranks = given(ranks, &groups, &domains, 1);
        assert_eq!(ranks, [0, 1, 5, 4, 2, 3]);
        assert_eq!(shared_domain(&domains, &groups, &ranks, 1), None);
    }

    #[test]
    fn ranks_stay_where_an_exchange_would_not_help() {
        let domains = ["1", "2", "2", "1"].map(str::to_owned);
        let one = [vec![0, 1, 2, 3]];
        assert_eq!(given(vec![0, 1, FREE, FREE], &one, &domains, 1), [0, 1, 2, 3]);
        // Two of a group in a domain are few enough.
        let two = [vec![0, 3], vec![1, 2]];
        assert_eq!(given(vec![0, 1, FREE, FREE], &two, &domains, 2), [0, 1, 2, 3]);
        assert_eq!(given(vec![0, 1, FREE, FREE], &two, &domains, 1), [0, 1, 3, 2]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        /// Each rank has one process, those with data keep theirs, and no exchange of two lost
        /// ranks leaves less beyond the bound.
        #[test]
        fn no_exchange_separates_more(
            place in proptest::collection::vec((0_usize..4, any::<bool>()), 12),
            order in Just((0..12).collect::<Vec<usize>>()).prop_shuffle(),
            most in 1_usize..3,
        ) {
            let groups: Vec<Vec<usize>> = (0..3).map(|g| (4 * g..4 * g + 4).collect()).collect();
            let domains: Vec<String> = place.iter().map(|(d, _)| d.to_string()).collect();
            let had: Vec<usize> =
                order.iter().zip(&place).map(|(&r, &(_, keeps))| if keeps { r } else { FREE }).collect();
            let ranks = given(had.clone(), &groups, &domains, most);
            let mut sorted = ranks.clone();
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..12).collect::<Vec<_>>());
            let beyond = |ranks: &[usize]| -> usize {
                let mut held = BTreeMap::new();
                for (domain, rank) in domains.iter().zip(ranks) {
                    *held.entry((domain, rank / 4)).or_insert(0_usize) += 1;
                }
                held.values().map(|count| count.saturating_sub(most)).sum()
            };
            let free = |p: &usize| had[*p] == FREE;
            for p in (0..12).filter(free) {
                for q in (0..12).filter(free) {
                    let mut other = ranks.clone();
                    other.swap(p, q);
                    prop_assert!(beyond(&other) >= beyond(&ranks));
                }
            }
            prop_assert!((0..12).all(|p| had[p] == FREE || had[p] == ranks[p]));
        }
    }
}
