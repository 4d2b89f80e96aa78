//! The assignment of ranks to processes, and of segments to keep.

use std::collections::{BTreeMap, BTreeSet};

use super::found::Content;
use super::offer::Offer;
use crate::checkpoint::header::SegmentId;

/// Assigns a process to each usable rank that some process has found: a largest matching, by
/// augmenting paths. A process that had a rank keeps it; otherwise it might take over the segment
/// of a lost rank, which may be incomplete, and leave its own unused. The other processes take the
/// rank of their own number where possible.
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

/// Gives the lost ranks to the processes without data: each its own number if that rank is lost,
/// the others in rising order.
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

/// The segments that no process takes over, for each process that has found them. Every finder
/// removes a segment; the first one succeeds.
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
