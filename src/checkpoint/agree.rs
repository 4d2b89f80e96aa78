//! Who is who after a restart, and which epoch counts: one decision for the
//! whole job, a pure function of what all processes have found.
//!
//! **Which segments count.** Every start of a job is an [`Attempt`]. A segment
//! says which attempt has read it last (`joined`) and which it has followed
//! (`lineage`). An attempt first has all segments join, then a barrier, and
//! only then do segments change and name it as their lineage. So once any
//! segment names an attempt as its lineage, all that this attempt took part
//! in have joined it, and a segment that names it neither way was out of reach
//! then (a node that has come back) and has missed what was decided: it is
//! stale, whatever its epochs say.
//!
//! **Which epoch.** E is the newest commit of those that count. A rank commits
//! only after the job-wide barrier, when every D of every group is complete, so
//! members without that commit can be used at E too.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::group::{self, PlacementError};
use super::header::{Attempt, Identity, Record, SegmentId};
use super::methods::Method;

/// What to do with what is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resume {
    /// Go on from what is found; start afresh where nothing is.
    Auto,
    /// Throw away what is found and start afresh.
    Never,
    /// Go on from what is found, or fail.
    Require,
}

/// A segment that a process has found on its node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Its name.
    pub id: SegmentId,
    /// Who it says it is, and how far; `None` when the header is not whole.
    pub content: Option<(Identity, Record)>,
}

/// What a process brings to the agreement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// Its failure domain.
    pub domain: String,
    /// Its node: processes of one node find the same segments.
    pub node: String,
    /// Checksum of what all processes and segments must agree on.
    pub fingerprint: u64,
    /// All segments of the run on its node.
    pub claims: Vec<Claim>,
}

/// What the decision depends on besides the offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// The method.
    pub method: Method,
    /// Members of a group, about.
    pub members: usize,
    /// Parities of a stripe.
    pub parities: usize,
    /// Whether members of a group may stand in one domain.
    pub allow_shared_domains: bool,
    /// What to do with what is found.
    pub resume: Resume,
    /// Wall clock at this start, in any unit.
    pub clock: u64,
    /// A random number for this attempt.
    pub nonce: u64,
}

/// A rank whose group has lost too much.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostGroup {
    /// Index of the group, where one of its segments says so.
    pub group: Option<usize>,
    /// Its lost ranks.
    pub ranks: Vec<usize>,
}

/// Why the job cannot go on from what was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// More losses in a group than it has parities.
    #[error(
        "epoch {epoch} cannot be restored: {} with {parities} parities a group. \
         Start afresh with resume = never, or bring the lost nodes back",
        describe(lost)
    )]
    Unrecoverable {
        /// The epoch that was looked for.
        epoch: u64,
        /// Groups with too many losses.
        lost: Vec<LostGroup>,
        /// Losses that a group can bear.
        parities: usize,
    },
    /// Nothing to resume, although it was required.
    #[error("resume = require, but no checkpoint of this run was found")]
    NothingFound,
    /// Processes were started with different settings.
    #[error("process {process} was started with other settings than process 0")]
    Disagree {
        /// The first process that differs.
        process: usize,
    },
    /// Segments of this run have another shape.
    #[error(
        "process {process} found a segment of this run (rank {rank}) made with other settings: \
         another shape, method, code or grouping. Restart with the settings of the run, or start \
         afresh with resume = never"
    )]
    OtherShape {
        /// A process that found one.
        process: usize,
        /// The rank it is for.
        rank: usize,
    },
    /// No groups can be formed.
    #[error("{0}")]
    Placement(String),
}

impl From<PlacementError> for Refusal {
    fn from(error: PlacementError) -> Self {
        Self::Placement(error.to_string())
    }
}

fn describe(lost: &[LostGroup]) -> String {
    let one = |lost: &LostGroup| match lost.group {
        Some(group) => format!("group {group} has lost ranks {:?}", lost.ranks),
        None => format!("all of the group(s) of ranks {:?} is lost", lost.ranks),
    };
    lost.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// This start of the job.
    pub attempt: Attempt,
    /// The lineage it goes on from.
    pub base: Attempt,
    /// Epoch that all go on from; 0: from the beginning.
    pub epoch: u64,
    /// The application's state at that epoch.
    pub state: Vec<u8>,
    /// Ranks of each group.
    pub groups: Vec<Vec<usize>>,
    /// Some group has two members in one domain.
    pub shared_domains: bool,
    /// All ranks stand in one domain.
    pub single_domain: bool,
    /// Logical rank of each process.
    pub ranks: Vec<usize>,
    /// Segment that each process takes over; the others make one.
    pub attach: Vec<Option<SegmentId>>,
    /// Segments that each process removes.
    pub discard: Vec<Vec<SegmentId>>,
    /// Ranks whose data must be rebuilt.
    pub lost: Vec<usize>,
    /// Segments that were found and cannot be used.
    pub unusable: usize,
}

/// Whether the data of a segment can be used at an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Usable,
    Lost,
}

fn standing(method: Method, record: &Record, epoch: u64) -> Standing {
    let usable = !record.hollow
        && match method {
            // From (B, C) when stamped, else from (A, D): complete since the
            // barrier before anybody's commit, and untouched until the stamp.
            Method::SelfCheckpoint => {
                assert!(record.commit == record.stamp || record.commit == record.stamp + 1);
                record.stamp == epoch || record.stamp + 1 == epoch
            }
            // The other copy is complete since that barrier.
            Method::Double => record.commit == epoch || record.commit + 1 == epoch,
            // Complete at `epoch` when somebody has seen the end of the update;
            // half-written when nobody has.
            Method::Single => {
                (record.stamp == epoch && record.updating == 0)
                    || (record.stamp + 1 == epoch && record.updating == epoch)
            }
            Method::None => false,
        };
    if usable { Standing::Usable } else { Standing::Lost }
}

/// Decides. `offers` has one entry a process, in the order of their ranks.
///
/// # Errors
/// When the job cannot go on, with the reason.
pub fn decide(offers: &[Offer], rules: &Rules) -> Result<Plan, Refusal> {
    if let Some(process) = offers.iter().position(|o| o.fingerprint != offers[0].fingerprint) {
        return Err(Refusal::Disagree { process });
    }
    if rules.resume != Resume::Never {
        refuse_other_shapes(offers)?;
    }
    let base = lineage(offers);
    // The clock, so that a start that knows of no other, all that did being
    // gone, still counts as later than they were.
    let number = rules.clock.max(newest_attempt(offers) + 1);
    let attempt = Attempt { number, nonce: rules.nonce };
    let current = match rules.resume {
        Resume::Never => BTreeMap::new(),
        _ => current_claims(offers, base),
    };
    let epoch = current.values().map(|(_, record)| record.commit).max().unwrap_or(0);
    if epoch == 0 {
        if rules.resume == Resume::Require {
            return Err(Refusal::NothingFound);
        }
        return fresh(offers, rules, base, attempt);
    }
    let usable: BTreeMap<usize, &Content> = current
        .iter()
        .filter(|(_, (_, record))| standing(rules.method, record, epoch) == Standing::Usable)
        .map(|(&rank, &content)| (rank, content))
        .collect();
    let newest = current.values().find(|(_, record)| record.commit == epoch);
    let state = newest.expect("the epoch comes from such a commit").1.state.clone();
    resume(offers, rules, base, attempt, (epoch, state), &usable)
}

type Content = (Identity, Record);

fn contents(offers: &[Offer]) -> impl Iterator<Item = &Content> {
    offers.iter().flat_map(|offer| &offer.claims).filter_map(|claim| claim.content.as_ref())
}

fn refuse_other_shapes(offers: &[Offer]) -> Result<(), Refusal> {
    for (process, offer) in offers.iter().enumerate() {
        for (identity, _) in offer.claims.iter().filter_map(|claim| claim.content.as_ref()) {
            if identity.fingerprint != offers[0].fingerprint {
                return Err(Refusal::OtherShape { process, rank: identity.rank });
            }
        }
    }
    Ok(())
}

/// The lineage to go on from: the latest attempt that any segment has followed.
/// Where two never knew of each other, the one that came further.
fn lineage(offers: &[Offer]) -> Attempt {
    let newest = |(_, r): &&Content| (r.lineage.number, r.commit, r.lineage.nonce);
    contents(offers).max_by_key(newest).map_or(Attempt::default(), |(_, record)| record.lineage)
}

fn newest_attempt(offers: &[Offer]) -> u64 {
    contents(offers).map(|(_, record)| record.joined.number).max().unwrap_or(0)
}

/// The best segment of each rank, of those that are not stale.
fn current_claims(offers: &[Offer], base: Attempt) -> BTreeMap<usize, &Content> {
    let mut best: BTreeMap<usize, &Content> = BTreeMap::new();
    for content in contents(offers) {
        let (identity, record) = content;
        if record.lineage != base && record.joined != base {
            continue;
        }
        let order = |(_, r): &Content| (!r.hollow, r.commit, r.stamp, r.clone());
        let entry = best.entry(identity.rank).or_insert(content);
        if order(content) > order(entry) {
            *entry = content;
        }
    }
    best
}

/// All start from the beginning, with new segments.
fn fresh(
    offers: &[Offer],
    rules: &Rules,
    base: Attempt,
    attempt: Attempt,
) -> Result<Plan, Refusal> {
    let domains: Vec<String> = offers.iter().map(|offer| offer.domain.clone()).collect();
    let Rules { members, parities, allow_shared_domains, .. } = *rules;
    let groups = group::form(&domains, members, parities, allow_shared_domains)?;
    let attach = vec![None; offers.len()];
    let discard = discards(offers, &attach);
    Ok(Plan {
        attempt,
        base,
        epoch: 0,
        state: Vec::new(),
        groups: groups.members,
        shared_domains: groups.shared_domains,
        single_domain: groups.single_domain,
        ranks: (0..offers.len()).collect(),
        attach,
        unusable: contents(offers).count(),
        discard,
        lost: Vec::new(),
    })
}

fn resume(
    offers: &[Offer],
    rules: &Rules,
    base: Attempt,
    attempt: Attempt,
    (epoch, state): (u64, Vec<u8>),
    usable: &BTreeMap<usize, &Content>,
) -> Result<Plan, Refusal> {
    let size = offers.len();
    let taken = assign(offers, usable);
    let mut ranks = vec![usize::MAX; size];
    let mut attach = vec![None; size];
    for (&rank, &(process, id)) in &taken {
        ranks[process] = rank;
        attach[process] = Some(id);
    }
    let lost: Vec<usize> = (0..size).filter(|rank| !taken.contains_key(rank)).collect();
    let groups = stored_groups(size, usable, taken.keys().copied(), &lost, rules, epoch)?;
    give_lost_ranks(&mut ranks, &lost);
    let domains: BTreeMap<usize, &String> =
        ranks.iter().zip(offers).map(|(&rank, offer)| (rank, &offer.domain)).collect();
    let all: BTreeSet<_> = domains.values().collect();
    let shared = |group: &Vec<usize>| {
        group.iter().map(|rank| domains[rank]).collect::<BTreeSet<_>>().len() < group.len()
    };
    let discard = discards(offers, &attach);
    Ok(Plan {
        attempt,
        base,
        epoch,
        state,
        shared_domains: groups.iter().any(shared),
        single_domain: all.len() == 1,
        groups,
        unusable: discard.iter().map(Vec::len).sum(),
        ranks,
        attach,
        discard,
        lost,
    })
}

/// Groups as the segments have them; refused when one has lost too much.
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
        let (identity, _) = usable[&rank];
        let members = groups.entry(identity.group).or_insert_with(|| identity.members.clone());
        assert_eq!(*members, identity.members, "one lineage has one grouping");
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
        .filter(|group| group.ranks.len() > rules.parities)
        .collect();
    let unknown: Vec<usize> = (0..size).filter(|rank| !known.contains(rank)).collect();
    if !unknown.is_empty() {
        broken.push(LostGroup { group: None, ranks: unknown });
    }
    if !broken.is_empty() {
        return Err(Refusal::Unrecoverable { epoch, lost: broken, parities: rules.parities });
    }
    assert!(groups.keys().copied().eq(0..groups.len()), "groups are numbered from 0");
    Ok(groups.into_values().collect())
}

/// A process for each usable rank that has one: a largest matching, by
/// augmenting paths; a process keeps the rank of its own number where it can.
fn assign(
    offers: &[Offer],
    usable: &BTreeMap<usize, &Content>,
) -> BTreeMap<usize, (usize, SegmentId)> {
    let mut holders: BTreeMap<usize, Vec<(usize, SegmentId)>> = BTreeMap::new();
    for (process, offer) in offers.iter().enumerate() {
        for claim in &offer.claims {
            let Some(content) = &claim.content else { continue };
            if usable.get(&content.0.rank) == Some(&content) {
                holders.entry(content.0.rank).or_default().push((process, claim.id));
            }
        }
    }
    for (&rank, list) in &mut holders {
        list.sort_by_key(|&(process, id)| (process != rank, process, id));
    }
    let mut owner: BTreeMap<usize, usize> = BTreeMap::new();
    for &rank in holders.keys() {
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
    for &(process, _) in &holders[&rank] {
        if !owner.contains_key(&process) {
            owner.insert(process, rank);
            return true;
        }
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
fn give_lost_ranks(ranks: &mut [usize], lost: &[usize]) {
    let mut left: BTreeSet<usize> = lost.iter().copied().collect();
    for process in 0..ranks.len() {
        if ranks[process] == usize::MAX && left.remove(&process) {
            ranks[process] = process;
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
fn discards(offers: &[Offer], attach: &[Option<SegmentId>]) -> Vec<Vec<SegmentId>> {
    let kept: BTreeSet<(&str, SegmentId)> = offers
        .iter()
        .zip(attach)
        .filter_map(|(offer, id)| id.map(|id| (offer.node.as_str(), id)))
        .collect();
    offers
        .iter()
        .map(|offer| {
            let ids = offer.claims.iter().map(|claim| claim.id);
            ids.filter(|&id| !kept.contains(&(offer.node.as_str(), id))).collect()
        })
        .collect()
}
