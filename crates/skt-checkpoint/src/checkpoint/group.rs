//! The groups of ranks that protect each other.
//!
//! Ranks are dealt into groups so that no two members of a group share a failure domain (a host, a
//! rack). Groups are formed once, at the first start of a run; a restart takes them from the
//! headers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use skt_host::units::counted;

/// Why no groups could be formed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages describe the fields")]
pub enum PlacementError {
    /// The numbers of members and parities do not fit.
    #[error(
        "groups of {members} ranks with {}: 1 <= parities <= members / 2 must hold",
        counted(*parities, "parity")
    )]
    Shape { members: usize, parities: usize },
    /// There are fewer ranks than the smallest group needs.
    #[error("a group with {} needs at least {least} ranks, not {ranks}", counted(*parities, "parity"))]
    TooFewRanks { ranks: usize, parities: usize, least: usize },
    /// One failure domain holds too many of the ranks, with groups that the application defines.
    #[error(
        "failure domain `{domain}` holds {held} of {ranks} ranks in {}: more than \
         {parities} of some group, whose data its loss would take along. Spread the ranks over \
         more domains (at most {most} in each), ask for more parities, or allow shared domains",
        counted(*groups, "group")
    )]
    CrowdedGroups {
        domain: String,
        held: usize,
        ranks: usize,
        groups: usize,
        parities: usize,
        most: usize,
    },
    /// One failure domain holds too many of the ranks for groups to be formed.
    #[error(
        "failure domain `{domain}` holds {held} of {ranks} ranks, and no two members of a group may \
         stand in one domain: {ranks} ranks make {} of at least {least} at most. \
         Spread the ranks over more domains, ask for fewer parities, or allow shared domains",
        counted(*groups, "group")
    )]
    Crowded { domain: String, held: usize, ranks: usize, groups: usize, least: usize },
}

/// The groups of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Groups {
    /// Ranks of each group, in rising order.
    pub members: Vec<Vec<usize>>,
    /// Whether all ranks are in one failure domain: only the death of processes is survived then.
    pub single_domain: bool,
}

/// Forms groups of about `members` ranks with `parities` parities each, for ranks in these failure
/// `domains`. Sizes differ by at most one within a span of domains (over the whole job if the
/// domains hold unequal numbers of ranks); no group is smaller than `2 * parities`. Groups are
/// smaller than asked for where the domains force it. A job within a single domain is always
/// allowed and marked as such.
pub fn form(
    domains: &[String],
    members: usize,
    parities: usize,
    allow_shared_domains: bool,
) -> Result<Groups, PlacementError> {
    let (ranks, least) = (domains.len(), 2 * parities);
    if parities == 0 || members < least {
        return Err(PlacementError::Shape { members, parities });
    }
    if ranks < least {
        return Err(PlacementError::TooFewRanks { ranks, parities, least });
    }
    let by_domain = ranks_by_domain(domains);
    if by_domain.len() == 1 {
        let groups = deal(&(0..ranks).collect::<Vec<_>>(), count(ranks, members, least));
        return Ok(Groups { members: groups, single_domain: true });
    }
    let formed = match neighbours(&by_domain, members, least) {
        Some(groups) => groups,
        None => anywhere(domains, &by_domain, members, least, allow_shared_domains)?,
    };
    Ok(Groups { members: formed, single_domain: false })
}

/// The placement of ranks whose groups the application defines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// The rank of each process.
    pub ranks: Vec<usize>,
    /// Whether all ranks are in one failure domain.
    pub single_domain: bool,
}

/// Assigns the ranks of `groups`, which are of one size and of as many ranks as there are
/// processes, to the processes in these `domains` so that no domain holds more than `parities`
/// ranks of a group. Each process gets its own number if that is such an assignment. A job within a
/// single domain is always allowed and marked as such.
pub fn place(
    domains: &[String],
    groups: &[Vec<usize>],
    parities: usize,
    allow_shared_domains: bool,
) -> Result<Placement, PlacementError> {
    let size = groups[0].len();
    assert!(groups.iter().all(|group| group.len() == size) && groups.len() * size == domains.len());
    let by_domain = ranks_by_domain(domains);
    let single_domain = by_domain.len() == 1;
    let own: Vec<usize> = (0..domains.len()).collect();
    if single_domain || shared_domain(domains, groups, &own, parities).is_none() {
        return Ok(Placement { ranks: own, single_domain });
    }
    // Neighbours in this order, among them the ranks of a domain, go to different groups.
    let mut ranks = own;
    for (i, process) in by_domain.concat().into_iter().enumerate() {
        ranks[process] = groups[i % groups.len()][i / groups.len()];
    }
    if !allow_shared_domains && shared_domain(domains, groups, &ranks, parities).is_some() {
        let crowd = by_domain.iter().max_by_key(|list| list.len()).expect("two domains or more");
        return Err(PlacementError::CrowdedGroups {
            domain: domains[crowd[0]].clone(),
            held: crowd.len(),
            ranks: domains.len(),
            groups: groups.len(),
            parities,
            most: parities * groups.len(),
        });
    }
    Ok(Placement { ranks, single_domain })
}

/// A failure domain that holds several ranks of one group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedDomain {
    /// The name of the domain.
    pub name: String,
    /// The number of ranks of one group that it holds.
    pub ranks: usize,
}

/// With the most ranks of one group, if more than `most`. `ranks` has the rank of each process.
pub(crate) fn shared_domain(
    domains: &[String],
    groups: &[Vec<usize>],
    ranks: &[usize],
    most: usize,
) -> Option<SharedDomain> {
    let mut group_of = vec![0; groups.iter().map(Vec::len).sum()];
    for (group, members) in groups.iter().enumerate() {
        members.iter().for_each(|&rank| group_of[rank] = group);
    }
    let mut held: BTreeMap<(&String, usize), usize> = BTreeMap::new();
    for (domain, &rank) in domains.iter().zip(ranks) {
        *held.entry((domain, group_of[rank])).or_default() += 1;
    }
    let ((name, _), ranks) = held.into_iter().max_by_key(|(_, ranks)| *ranks)?;
    (ranks > most).then(|| SharedDomain { name: name.clone(), ranks })
}

/// Ranks of each domain; domains in the order of their first rank.
fn ranks_by_domain(domains: &[String]) -> Vec<Vec<usize>> {
    let mut index = BTreeMap::new();
    let mut lists: Vec<Vec<usize>> = Vec::new();
    for (rank, domain) in domains.iter().enumerate() {
        let at = *index.entry(domain).or_insert_with(|| {
            lists.push(Vec::new());
            lists.len() - 1
        });
        lists[at].push(rank);
    }
    lists
}

fn count(ranks: usize, members: usize, least: usize) -> usize {
    ranks.div_ceil(members).min(ranks / least).max(1)
}

/// Deals ranks into groups in turn, so that `groups` consecutive ones get into different groups.
fn deal(ranks: &[usize], groups: usize) -> Vec<Vec<usize>> {
    let mut members = vec![Vec::new(); groups];
    for (i, &rank) in ranks.iter().enumerate() {
        members[i % groups].push(rank);
    }
    for group in &mut members {
        group.sort_unstable();
    }
    members
}

/// Groups for the usual case, equal numbers of ranks in all domains: the domains are cut into spans
/// of neighbours, and the i-th ranks of a span's domains form a group. `None` in other cases.
fn neighbours(by_domain: &[Vec<usize>], members: usize, least: usize) -> Option<Vec<Vec<usize>>> {
    let each = by_domain[0].len();
    if by_domain.len() < least || by_domain.iter().any(|ranks| ranks.len() != each) {
        return None;
    }
    let spans = count(by_domain.len(), members, least);
    let edge = |i: usize| i * by_domain.len() / spans;
    let mut groups = Vec::new();
    for i in 0..spans {
        let span = &by_domain[edge(i)..edge(i + 1)];
        groups.extend((0..each).map(|slot| {
            let mut group: Vec<usize> = span.iter().map(|ranks| ranks[slot]).collect();
            group.sort_unstable();
            group
        }));
    }
    Some(groups)
}

/// Groups for any placement: deals out domain after domain, so that a domain with no more ranks
/// than there are groups has no two in one group.
fn anywhere(
    domains: &[String],
    by_domain: &[Vec<usize>],
    members: usize,
    least: usize,
    allow_shared_domains: bool,
) -> Result<Vec<Vec<usize>>, PlacementError> {
    let ranks = domains.len();
    let crowd = by_domain.iter().max_by_key(|list| list.len()).expect("two domains or more");
    let max_groups = ranks / least;
    if crowd.len() > max_groups && !allow_shared_domains {
        return Err(PlacementError::Crowded {
            domain: domains[crowd[0]].clone(),
            held: crowd.len(),
            ranks,
            groups: max_groups,
            least,
        });
    }
    let groups = count(ranks, members, least).max(crowd.len()).min(max_groups);
    Ok(deal(&by_domain.concat(), groups))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn most(domains: &[String], groups: &[Vec<usize>], ranks: &[usize]) -> usize {
        shared_domain(domains, groups, ranks, 0).expect("there are ranks").ranks
    }

    fn names(counts: &[usize]) -> Vec<String> {
        counts
            .iter()
            .enumerate()
            .flat_map(|(i, &count)| std::iter::repeat_n(format!("node{i}"), count))
            .collect()
    }

    /// The process rows of a `p x width` grid, with ranks numbered row by row or column by column.
    fn rows(p: usize, width: usize, by_column: bool) -> Vec<Vec<usize>> {
        let rank = |r: usize, c: usize| if by_column { c * p + r } else { r * width + c };
        (0..p).map(|r| (0..width).map(|c| rank(r, c)).collect()).collect()
    }

    #[test]
    fn given_groups_are_placed_so_that_a_domain_is_not_missed() {
        for (p, width, by_column, parities, counts, moves) in [
            // Each node already has one rank of each row.
            (2, 4, true, 1, vec![2; 4], false),
            // Two ranks of a row on each node.
            (2, 4, false, 1, vec![2; 4], true),
            (2, 4, false, 2, vec![2; 4], false),
            (3, 3, false, 1, vec![3, 1, 2, 3], true),
            (1, 3, false, 1, vec![1; 3], false),
            (2, 3, false, 2, vec![4, 2], true),
        ] {
            let (domains, groups) = (names(&counts), rows(p, width, by_column));
            let placed = place(&domains, &groups, parities, false).expect("it fits");
            let mut all = placed.ranks.clone();
            all.sort_unstable();
            assert_eq!(all, (0..domains.len()).collect::<Vec<_>>(), "each rank once");
            assert!(most(&domains, &groups, &placed.ranks) <= parities);
            assert_eq!(placed.ranks != all, moves, "{counts:?}");
            assert!(!placed.single_domain);
        }
    }

    #[test]
    fn given_groups_on_too_few_domains_are_refused_by_name() {
        let (domains, groups) = (names(&[3, 3]), rows(2, 3, false));
        let refused = place(&domains, &groups, 1, false).unwrap_err().to_string();
        assert!(refused.contains("`node1` holds 3 of 6 ranks in 2 groups"), "{refused}");
        assert!(refused.contains("at most 2 in each"), "{refused}");
        let placed = place(&domains, &groups, 1, true).expect("allowed");
        assert_eq!(most(&domains, &groups, &placed.ranks), 2);
        let one = place(&names(&[6]), &groups, 1, false).expect("one host is always allowed");
        assert!(one.single_domain);
    }

    proptest! {
        #[test]
        fn every_feasible_placement_is_found(
            p in 1usize..5, width in 2usize..6, parities in 1usize..3, by_column: bool,
            cuts in prop::collection::vec(0usize..6, 1..8),
        ) {
            let groups = rows(p, width, by_column);
            let mut left = p * width;
            let mut counts: Vec<usize> = cuts.iter().map(|&cut| {
                let count = cut.min(left);
                left -= count;
                count
            }).collect();
            counts.push(left);
            let domains = names(&counts);
            let fits = counts.iter().all(|&count| count <= parities * p);
            match place(&domains, &groups, parities, false) {
                Ok(placed) if !placed.single_domain => {
                    prop_assert!(most(&domains, &groups, &placed.ranks) <= parities);
                }
                Ok(_) => {}
                Err(_) => prop_assert!(!fits),
            }
        }
    }

    #[test]
    fn regular_nodes_make_neighbouring_groups() {
        let groups = form(&names(&[2; 8]), 4, 1, false).expect("legal");
        assert_eq!(
            groups.members,
            [[0, 2, 4, 6], [1, 3, 5, 7], [8, 10, 12, 14], [9, 11, 13, 15]].map(Vec::from)
        );
        assert!(!groups.single_domain);
    }

    #[test]
    fn uneven_numbers_make_groups_that_differ_by_one() {
        let sizes = |ranks, n, m| -> Vec<usize> {
            let groups = form(&names(&vec![1; ranks]), n, m, false).expect("legal");
            groups.members.iter().map(Vec::len).collect()
        };
        assert_eq!(sizes(7, 4, 1), [3, 4]);
        assert_eq!(sizes(7, 4, 2), [7]);
        assert_eq!(sizes(9, 4, 2), [4, 5]);
        assert_eq!(sizes(2, 16, 1), [2]);
    }

    #[test]
    fn a_crowded_domain_is_refused_by_name() {
        let error = form(&names(&[1, 5, 1]), 2, 1, false).expect_err("5 of 7 on one node");
        let PlacementError::Crowded { domain, held, ranks, groups, .. } = error else {
            panic!("{error}");
        };
        assert_eq!((domain.as_str(), held, ranks, groups), ("node1", 5, 7, 3));
        assert_eq!(form(&names(&[1, 5, 1]), 2, 1, true).expect("allowed").members.len(), 3);
    }

    #[test]
    fn one_host_protects_against_the_death_of_processes_only() {
        let groups = form(&names(&[4]), 4, 1, false).expect("allowed without asking");
        assert!(groups.single_domain);
        assert_eq!(groups.members, [[0, 1, 2, 3]]);
    }

    #[test]
    fn too_few_ranks_and_invalid_shapes_are_refused() {
        assert!(matches!(form(&names(&[1]), 2, 1, true), Err(PlacementError::TooFewRanks { .. })));
        assert!(matches!(form(&names(&[9]), 3, 2, true), Err(PlacementError::Shape { .. })));
        assert!(matches!(form(&names(&[9]), 3, 0, true), Err(PlacementError::Shape { .. })));
    }

    proptest! {
        #[test]
        fn groups_partition_the_ranks_over_different_domains(
            counts in prop::collection::vec(1usize..6, 1..12),
            m in 1usize..4, extra in 0usize..8, shared: bool, shuffle: u64,
        ) {
            let mut domains = names(&counts);
            let len = domains.len();
            let mut x = shuffle | 1;
            for i in 0..len {
                x = x.wrapping_mul(6364136223846793005).wrapping_add(1);
                domains.swap(i, (x >> 33) as usize % len);
            }
            let n = 2 * m + extra;
            match form(&domains, n, m, shared) {
                Ok(groups) => {
                    // No other groups of that size would have fewer ranks of a domain in one.
                    let held = most(&domains, &groups.members, &(0..len).collect::<Vec<_>>());
                    let crowd = *counts.iter().max().unwrap();
                    let spread = crowd.div_ceil(len / (2 * m));
                    prop_assert!(groups.single_domain || held <= spread, "{} {}", held, spread);
                    let mut all = groups.members.concat();
                    all.sort_unstable();
                    prop_assert_eq!(all, (0..len).collect::<Vec<_>>());
                    let sizes: Vec<usize> = groups.members.iter().map(Vec::len).collect();
                    let (low, high) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
                    prop_assert!(high - low <= 1 && *low >= 2 * m, "{:?}", sizes);
                    prop_assert!(held == 1 || shared || groups.single_domain);
                }
                Err(PlacementError::TooFewRanks { .. }) => prop_assert!(len < 2 * m),
                Err(PlacementError::Crowded { .. }) => {
                    // By the pigeonhole principle: that domain has more ranks than there can be
                    // groups.
                    let most = counts.iter().max().unwrap();
                    prop_assert!(!shared && *most > len / (2 * m));
                }
                Err(error) => prop_assert!(false, "{}", error),
            }
        }
    }
}
