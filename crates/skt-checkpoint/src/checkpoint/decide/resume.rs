use std::collections::{BTreeMap, BTreeSet};

use super::assign::{assign, discards, give_lost_ranks, separate_lost_ranks};
use super::found::Content;
use super::offer::{
    Offer, holder, left, lineage, newest_start_of_images, newest_start_of_segments,
};
use super::plan::{Rules, StartPlan};
use crate::checkpoint::group;
use crate::checkpoint::record::StartId;
use crate::checkpoint::refusal::{LostGroup, Refusal};

pub(super) fn this_start(offers: &[Offer], rules: &Rules) -> StartId {
    let newest = newest_start_of_segments(offers).max(newest_start_of_images(offers));
    // If all traces of earlier starts are gone, the clock still makes this start count as later
    // than those.
    StartId { number: rules.config.clock.max(newest + 1), nonce: rules.config.nonce }
}

/// The plan to resume from `epoch` with the `usable` content of each rank, which the processes of
/// `found` hold. Segments in memory that no process takes over are discarded.
pub(in super::super) fn resume(
    offers: &[Offer],
    found: &[Offer],
    rules: &Rules,
    epoch: u64,
    usable: &BTreeMap<usize, &Content>,
) -> Result<StartPlan, Refusal> {
    let (size, processes) = (rules.config.ranks(offers.len()), offers.len());
    let taken = assign(found, usable);
    let mut ranks = vec![usize::MAX; processes];
    let mut attach = vec![None; processes];
    for (&rank, &(process, id)) in &taken {
        ranks[process] = rank;
        attach[process] = Some(id);
    }
    let lost: Vec<usize> = (0..size).filter(|rank| !taken.contains_key(rank)).collect();
    rules.refuse_lost(&lost, processes)?;
    let groups = stored_groups(size, usable, taken.keys().copied(), &lost, rules, epoch)?;
    let domains: Vec<String> = offers.iter().map(|offer| offer.domain.clone()).collect();
    let most = rules.config.max_in_a_domain();
    if rules.config.may_lose.is_none() {
        give_lost_ranks(&mut ranks, &lost);
        separate_lost_ranks(&mut ranks, &lost, &groups, &domains, most);
    }
    let shared_domain = group::shared_domain(&domains, &groups, &ranks, most);
    let is_memory = std::ptr::eq(offers, found);
    let nothing = vec![None; processes];
    let discard = discards(offers, if is_memory { &attach } else { &nothing });
    let holder = usable.values().next().map(|content| holder(found, content));
    let left = left(offers, lineage(offers), !is_memory || !lost.is_empty());
    Ok(StartPlan {
        epoch,
        holder,
        shared_domain,
        single_domain: domains.iter().all(|domain| *domain == domains[0]),
        groups,
        unusable: discard.iter().map(Vec::len).sum(),
        ranks,
        attach,
        discard,
        lost,
        ..StartPlan::empty(rules, this_start(offers, rules), left)
    })
}

/// The groups, as the segments record them; refused if one has lost too much.
fn stored_groups(
    size: usize,
    usable: &BTreeMap<usize, &Content>,
    found: impl Iterator<Item = usize>,
    lost: &[usize],
    rules: &Rules,
    epoch: u64,
) -> Result<Vec<Vec<usize>>, Refusal> {
    let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for rank in found {
        let content = usable[&rank];
        let members = groups.entry(content.group).or_insert_with(|| content.members.clone());
        assert_eq!(*members, content.members, "one lineage has one grouping");
        assert!(members.contains(&rank));
    }
    let known: BTreeSet<usize> = groups.values().flatten().copied().collect();
    assert_eq!(known.len(), groups.values().map(Vec::len).sum::<usize>(), "groups are disjoint");
    let of = |members: &[usize]| -> Vec<usize> {
        lost.iter().copied().filter(|rank| members.contains(rank)).collect()
    };
    let mut broken: Vec<LostGroup> = groups
        .iter()
        .map(|(&group, members)| LostGroup { group: Some(group), ranks: of(members) })
        .filter(|group| group.ranks.len() > rules.config.parities)
        .collect();
    let unknown: Vec<usize> = (0..size).filter(|rank| !known.contains(rank)).collect();
    if !unknown.is_empty() {
        broken.push(LostGroup { group: None, ranks: unknown });
    }
    if !broken.is_empty() {
        let (incomplete, parities) = (Vec::new(), rules.config.parities);
        return Err(Refusal::Unrecoverable { epoch, lost: broken, incomplete, parities });
    }
    assert!(groups.keys().copied().eq(0..groups.len()), "groups are numbered from 0");
    Ok(groups.into_values().collect())
}
