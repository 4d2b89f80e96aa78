//! Which process is which rank, and what of its segments it keeps.

use std::collections::{BTreeMap, BTreeSet};

use super::found::Content;
use super::offer::Offer;
use crate::checkpoint::header::SegmentId;

/// A process for each usable rank that has one: a largest matching, by augmenting paths. A
/// process that had a rank keeps it: in its place the segment of a lost rank, which may be torn,
/// could be taken, and its own be left over. Others take the rank of their own number where they
/// can.
pub(super) fn assign(
    offers: &[Offer],
    usable: &BTreeMap<usize, &Content>,
) -> BTreeMap<usize, (usize, SegmentId)> {
    let mut holders: BTreeMap<usize, Vec<(usize, SegmentId)>> = BTreeMap::new();
    for (process, offer) in offers.iter().enumerate() {
        for segment in &offer.segments {
            let Some(content) = &segment.content else { continue };
            if usable.get(&content.rank) == Some(&content) {
                holders.entry(content.rank).or_default().push((process, segment.id));
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
    // From a process that has a rank a path leads on to another place for that rank.
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
    // A free process first, so that nobody is moved without need.
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

/// Processes without data take the lost ranks: their own number where it is
/// lost, else in rising order.
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

/// All segments that nobody takes. Each is removed by every process that has
/// found it: they may stand on one node or not, and the first one wins.
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
