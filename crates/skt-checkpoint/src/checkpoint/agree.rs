//! The ranks that processes are after a restart, and the epoch that counts: one decision
//! for the whole job, a pure function of what all processes have found.
//!
//! **Which segments count.** Every start of a job is an [`StartId`]. A segment
//! says which attempt it has followed last (`lineage`), and which have read it
//! since (`joined`). An attempt first has all segments join, then a barrier, and
//! only then do segments change and name it as their lineage. So once any
//! segment names an attempt as its lineage, all that this attempt took part
//! in have joined it, and a segment that names it neither way was out of reach
//! then (a node that has come back) and has missed what was decided: it is
//! stale, whatever its epochs say. What has joined and not followed is as it was,
//! however many attempts it has joined since.
//!
//! **Which epoch.** E is the newest commit of those that count. A rank commits
//! only after the job-wide barrier, when every D of every group is complete, so
//! members without that commit can be used at E too.
//!
//! **Whether the run is done.** Ranks mark their segments as finished after a
//! barrier that all enter at the end of the work, and nothing is removed before
//! all are marked. So one mark among the segments that count is enough, and
//! nothing is ever gone on with beside it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::codec::checksum;
use super::group;
use super::header::{Identity, SegmentId};
use super::level::choose::{self, Generation, ImageClaim, Load, Rotten, Source};
use super::methods::Method;
use super::record::{Holds, Record, StartId};
pub use super::refusal::{Damage, LostGroup, Refusal};

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
    /// What the segment says it is, and how far; `None` when the header is not whole, or
    /// of other parameters.
    pub content: Option<Content>,
    /// What its parameters differ in from those of this start, in words, if they do.
    pub other: Option<String>,
}

/// What a segment says, as far as all have to agree on it. In a job of thousands of ranks
/// one process reads as many of them: so it has no parameters, which are those of the
/// start, and of the state, which may be long, a checksum.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// Logical rank.
    pub rank: usize,
    /// Index of its group.
    pub group: usize,
    /// Ranks of its group.
    pub members: Vec<usize>,
    /// How far it is, without the state.
    pub record: Record,
    /// Checksum of the state.
    pub state: u64,
}

impl Content {
    /// What a segment of the parameters of this start says.
    pub fn of(identity: Identity, record: &Record) -> Self {
        let Identity { rank, group, members, .. } = identity;
        let state = checksum(record.state());
        Self { rank, group, members, record: record.without_state(), state }
    }
}

/// A segment, and a process that has found it.
pub type Bearer = (usize, SegmentId);

/// What a process brings to the agreement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// Its host, as messages name it.
    pub host: String,
    /// Its failure domain.
    pub domain: String,
    /// Its node: processes of one node find the same segments.
    pub node: String,
    /// Checksum of what all processes and segments must agree on.
    pub fingerprint: u64,
    /// The rank that it had until a loss that its job has outlived.
    pub seat: Option<usize>,
    /// Why it cannot take hold of the run on its node, if it cannot.
    pub held: Option<String>,
    /// All segments of the run on its node.
    pub claims: Vec<Claim>,
    /// The images that it sees, by level.
    pub images: Vec<Vec<ImageClaim>>,
    /// Why it does not see all that is there, by level, where a disk fails.
    pub failures: Vec<Option<String>>,
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
    /// The groups, where the application has them; else they are formed.
    pub groups: Option<Vec<Vec<usize>>>,
    /// Where there are fewer processes than ranks: see [`Config::bears`].
    ///
    /// [`Config::bears`]: super::config::Config::bears
    pub bears: Option<Vec<Vec<usize>>>,
    /// Whether members of a group may stand in one domain.
    pub allow_shared_domains: bool,
    /// What to do with what is found.
    pub resume: Resume,
    /// Whether there is no image of this run for a level that fails to hide.
    pub nothing_hidden: bool,
    /// Wall clock at this start, in any unit.
    pub clock: u64,
    /// A random number for this attempt.
    pub nonce: u64,
    /// Levels of images, by the names that users know.
    pub levels: Vec<String>,
    /// What this start has found to be rotten, and goes on without, in the order in which
    /// it found it.
    pub rotten: Vec<Rotten>,
}

/// Ranks of the run, in a job of so many processes: those of all sets, where there are some
/// (see [`Rules::bears`]).
pub(super) fn ranks(bears: Option<&[Vec<usize>]>, processes: usize) -> usize {
    bears.map_or(processes, |sets| sets.iter().map(Vec::len).sum())
}

impl Rules {
    /// Ranks of the run, in a job of so many processes.
    fn ranks(&self, processes: usize) -> usize {
        ranks(self.bears.as_deref(), processes)
    }

    /// Refuses to go on without the `lost` ranks, where no process is to take their places:
    /// each of `processes` needs the memory of its own rank, and the loss is to be borne.
    fn refuse_lost(&self, lost: &[usize], processes: usize) -> Result<(), Refusal> {
        let Some(sets) = &self.bears else { return Ok(()) };
        let has_all = |set: &Vec<usize>| lost.iter().all(|rank| set.contains(rank));
        let has_memory = lost.len() + processes == self.ranks(processes);
        match has_memory && sets.iter().any(has_all) {
            true => Ok(()),
            false => Err(Refusal::NotBorne { lost: lost.to_vec() }),
        }
    }

    /// What is wrong with a source, if it is known to be rotten.
    pub(super) fn rotten(&self, source: Source) -> Option<&Refusal> {
        self.rotten.iter().find(|rotten| rotten.source == source).map(|rotten| &rotten.refusal)
    }
}

/// The decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// This start of the job.
    pub attempt: StartId,
    /// Epoch that all go on from; 0: from the beginning.
    pub epoch: u64,
    /// The segment that has the application's state at that epoch.
    pub bearer: Option<Bearer>,
    /// That state, once its bearer has told it.
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
    /// The starts that segments out of reach may name as their lineage.
    pub left: Vec<StartId>,
    /// The images that all go on from, where memory is not enough.
    pub load: Option<Box<Load>>,
    /// The generations of each level that can be restored, the newest first.
    pub restorable: Vec<Vec<Generation>>,
    /// Of each level, whether the newest of these lacks images of some ranks, or has rotten ones.
    pub lacking: Vec<bool>,
    /// Those of which some image is sealed.
    pub sealed: Vec<Vec<Generation>>,
    /// Of each level why this start writes no image to it and removes none, if it does not.
    pub given_up: Vec<Option<String>>,
}

/// The run has come to its end: what is left of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finished {
    /// Its last epoch.
    pub epoch: u64,
    /// The segment that has its result.
    pub bearer: Bearer,
    /// That result, once its bearer has told it.
    pub result: Vec<u8>,
    /// The starts that segments out of reach may name as their lineage.
    pub left: Vec<StartId>,
    /// Segments that count and do not bear the result yet: who writes it there.
    pub mark: Vec<Vec<SegmentId>>,
    /// Segments of no use, which each process removes at once.
    pub discard: Vec<Vec<SegmentId>>,
    /// Segments that count, which each process removes when the result is
    /// reported.
    pub keep: Vec<Vec<SegmentId>>,
}

/// What a start is to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Decision {
    /// Begin, or go on.
    Work(Plan),
    /// Report the result once more, and clear up.
    Finished(Finished),
}

/// Decides. `offers` has one entry a process, in the order of their ranks.
///
/// # Errors
/// When the job cannot go on, with the reason.
pub fn decide(offers: &[Offer], rules: &Rules) -> Result<Decision, Refusal> {
    if let Some(process) = offers.iter().position(|o| o.fingerprint != offers[0].fingerprint) {
        return Err(Refusal::Disagree { process });
    }
    let held = offers.iter().enumerate().find_map(|(i, o)| o.held.clone().map(|why| (i, why)));
    if let Some((process, why)) = held {
        return Err(Refusal::Held { process, why });
    }
    if rules.resume != Resume::Never {
        refuse_other_shapes(offers)?;
        if let Some(finished) = finished(offers) {
            return Ok(Decision::Finished(finished));
        }
    }
    let memory = match rules.rotten(Source::Memory) {
        Some(refusal) => Err(refusal.clone()),
        None => plan(offers, rules),
    };
    let given_up = choose::given_up(offers, rules);
    if rules.resume == Resume::Never {
        choose::refuse_without(&given_up, rules, "resume = never is to remove what is there")?;
    }
    if rules.levels.is_empty() || rules.resume == Resume::Never {
        return memory.map(|plan| Decision::Work(Plan { given_up, ..plan }));
    }
    let sealed = |level| choose::generations(offers, level).into_iter().collect();
    let sealed = (0..rules.levels.len()).map(sealed).collect();
    let mut plan = with_images(offers, rules, memory, &given_up)?;
    if plan.load.is_none() && has_rotten_images(offers) {
        let restorable = plan.restorable.iter().map(|generations| !generations.is_empty());
        plan.lacking = restorable.collect();
    }
    Ok(Decision::Work(Plan { sealed, given_up, ..plan }))
}

/// What to do where there are images, too: memory first, as far as it goes. A start that
/// has found images rotten has new segments with nothing in them by then. With a level that is
/// `given_up` nobody knows that there is nothing, unless the application does: no start begins from
/// the beginning then.
fn with_images(
    offers: &[Offer],
    rules: &Rules,
    memory: Result<Plan, Refusal>,
    given_up: &[Option<String>],
) -> Result<Plan, Refusal> {
    choose::refuse_other_shapes(offers)?;
    let (restorable, lacking) = choose::restorable(offers, rules);
    let mut why: Vec<String> = rules.rotten.iter().map(|rotten| rotten.refusal.what()).collect();
    match &memory {
        Ok(plan) if plan.epoch > 0 => return Ok(Plan { restorable, lacking, ..memory? }),
        Ok(_) | Err(Refusal::NothingFound) if why.is_empty() => {
            why.push("no node has memory of a checkpoint".to_owned());
        }
        Err(refusal @ Refusal::Unrecoverable { .. }) if why.is_empty() => why.push(refusal.what()),
        _ if why.is_empty() => return memory,
        _ => {}
    }
    let why = why.join("; ");
    if let Some(plan) = choose::from_images(offers, rules, &restorable, &why) {
        return Ok(Plan { restorable, lacking, ..plan });
    }
    choose::refuse_without(given_up, rules, &why)?;
    match rules.rotten.last() {
        Some(last) => Err(last.refusal.clone()),
        None => memory.map(|plan| {
            let unusable = plan.unusable + choose::images(offers);
            Plan { restorable, lacking, unusable, ..plan }
        }),
    }
}

/// What is left of a run that has come to its end; `None` where no segment that
/// counts says so.
fn finished(offers: &[Offer]) -> Option<Finished> {
    let base = lineage(offers);
    let keeps = |content: &Content| counts(content, base) && !content.record.is_hollow();
    let is_kept = |claim: &Claim| claim.content.as_ref().is_some_and(keeps);
    let marks = |content: &Content| content.record.is_finished();
    let is_marked = |claim: &Claim| claim.content.as_ref().is_some_and(marks);
    let marked = contents(offers).find(|content| keeps(content) && marks(content))?;
    // One of the processes that have found a segment writes to it.
    let mut seen = BTreeSet::new();
    let mut mark = Vec::with_capacity(offers.len());
    for offer in offers {
        let mut is_first = |claim: &&Claim| seen.insert((offer.node.as_str(), claim.id));
        let unmarked = offer.claims.iter().filter(|c| is_kept(c) && !is_marked(c));
        mark.push(unmarked.filter(&mut is_first).map(|claim| claim.id).collect());
    }
    let ids = |kept: bool| {
        let of = |offer: &Offer| {
            offer.claims.iter().filter(|c| is_kept(c) == kept).map(|c| c.id).collect()
        };
        offers.iter().map(of).collect()
    };
    let (epoch, bearer) = (marked.record.committed(), bearer(offers, marked));
    let (result, left) = (Vec::new(), left(offers, base, false));
    Some(Finished { epoch, bearer, result, left, mark, discard: ids(false), keep: ids(true) })
}

/// How to begin, or to go on, with a run that has not come to its end.
fn plan(offers: &[Offer], rules: &Rules) -> Result<Plan, Refusal> {
    let base = lineage(offers);
    let attempt = this_attempt(offers, rules);
    let current = match rules.resume {
        Resume::Never => BTreeMap::new(),
        _ => current_claims(offers, base),
    };
    let epoch = current.values().map(|content| content.record.committed()).max().unwrap_or(0);
    if epoch == 0 {
        if rules.bears.is_some() {
            let lost = (0..rules.ranks(offers.len())).filter(|rank| !current.contains_key(rank));
            return Err(Refusal::NotBorne { lost: lost.collect() });
        }
        if rules.resume == Resume::Require {
            return Err(Refusal::NothingFound);
        }
        return fresh(offers, rules, attempt);
    }
    let usable: BTreeMap<usize, &Content> = current
        .iter()
        .filter(|(_, content)| content.record.holds(rules.method, epoch) != Holds::Nothing)
        .map(|(&rank, &content)| (rank, content))
        .collect();
    let mut resumed = resume(offers, offers, rules, epoch, &usable);
    if let Ok(plan) = &mut resumed {
        let newest = current.values().find(|content| content.record.committed() == epoch);
        let newest = newest.expect("the epoch comes from such a commit");
        plan.bearer = Some(bearer(offers, newest));
    }
    resumed.map_err(|refusal| name_torn(refusal, rules.method, &current, &usable))
}

/// This start: later than all that are known.
fn this_attempt(offers: &[Offer], rules: &Rules) -> StartId {
    let newest = newest_attempt(offers).max(choose::newest_start(offers));
    // The clock, so that a start that knows of no other, all that did being
    // gone, still counts as later than they were.
    StartId { number: rules.clock.max(newest + 1), nonce: rules.nonce }
}

/// Says of a refusal which ranks are lost although they are there.
fn name_torn(
    refusal: Refusal,
    method: Method,
    current: &BTreeMap<usize, &Content>,
    usable: &BTreeMap<usize, &Content>,
) -> Refusal {
    match refusal {
        Refusal::Unrecoverable { epoch, lost, parities, .. } if method == Method::Single => {
            let is_torn = |rank: &usize| {
                let unusable = current.get(rank).filter(|_| !usable.contains_key(rank));
                unusable.is_some_and(|c| c.record.updating() != 0 && !c.record.is_hollow())
            };
            let ranks = lost.iter().flat_map(|group| group.ranks.iter().copied());
            let torn = ranks.filter(is_torn).collect();
            Refusal::Unrecoverable { epoch, lost, torn, parities }
        }
        other => other,
    }
}

fn contents(offers: &[Offer]) -> impl Iterator<Item = &Content> {
    offers.iter().flat_map(|offer| &offer.claims).filter_map(|claim| claim.content.as_ref())
}

/// Whether the newest images are known to have rotted in part, as a start has found that went on
/// from them: they bear fewer losses, as such that lack some.
fn has_rotten_images(offers: &[Offer]) -> bool {
    let base = lineage(offers);
    contents(offers).any(|content| counts(content, base) && content.record.has_rotten_images())
}

/// A process that has found this segment.
fn bearer(offers: &[Offer], content: &Content) -> Bearer {
    let of = |(process, offer): (usize, &Offer)| {
        let is_it = |claim: &&Claim| claim.content.as_ref() == Some(content);
        offer.claims.iter().find(is_it).map(|claim| (process, claim.id))
    };
    offers.iter().enumerate().find_map(of).expect("it was found")
}

fn refuse_other_shapes(offers: &[Offer]) -> Result<(), Refusal> {
    for (process, offer) in offers.iter().enumerate() {
        for Claim { id, other, .. } in &offer.claims {
            if let Some(differences) = other.clone() {
                return Err(Refusal::OtherShape { process, rank: id.rank, differences });
            }
        }
    }
    Ok(())
}

/// The lineage to go on from: the latest attempt that any segment has followed.
/// Where two never knew of each other, the one that came further.
fn lineage(offers: &[Offer]) -> StartId {
    let records = contents(offers).map(|content| &content.record);
    let newest = |r: &&Record| (r.lineage().number, r.committed(), r.lineage().nonce);
    records.max_by_key(newest).map_or(StartId::default(), Record::lineage)
}

fn newest_attempt(offers: &[Offer]) -> u64 {
    let all = |Content { record: r, .. }: &_| {
        r.joined().iter().chain([&r.lineage()]).map(|a| a.number).max()
    };
    contents(offers).filter_map(all).max().unwrap_or(0)
}

/// The starts that segments out of reach may name as their lineage, once all that
/// count follow a new one: those known of before, and, where some rank `is_missed`
/// now, the lineage that it may have followed, as well as those that it alone may
/// have followed, which the others have joined.
fn left(offers: &[Offer], base: StartId, is_missed: bool) -> Vec<StartId> {
    let mut left: Vec<StartId> = Vec::new();
    for Content { record, .. } in contents(offers).filter(|content| counts(content, base)) {
        left.extend(record.left());
        if is_missed {
            left.extend(record.joined());
            left.push(record.lineage());
        }
    }
    left.retain(|start| *start != StartId::default());
    left.sort_unstable();
    left.dedup();
    left
}

/// Whether a segment is not stale.
fn counts(Content { record, .. }: &Content, base: StartId) -> bool {
    record.lineage() == base || record.joined().contains(&base)
}

/// The best segment of each rank, of those that are not stale.
fn current_claims(offers: &[Offer], base: StartId) -> BTreeMap<usize, &Content> {
    let mut best: BTreeMap<usize, &Content> = BTreeMap::new();
    for content in contents(offers) {
        if !counts(content, base) {
            continue;
        }
        let order = |Content { record: r, state, .. }: &Content| {
            (!r.is_hollow(), r.committed(), r.stamped(), r.clone(), *state)
        };
        let entry = best.entry(content.rank).or_insert(content);
        if order(content) > order(entry) {
            *entry = content;
        }
    }
    best
}

/// All start from the beginning, with new segments.
fn fresh(offers: &[Offer], rules: &Rules, attempt: StartId) -> Result<Plan, Refusal> {
    let domains: Vec<String> = offers.iter().map(|offer| offer.domain.clone()).collect();
    let Rules { members, parities, allow_shared_domains, .. } = *rules;
    let own: Vec<usize> = (0..offers.len()).collect();
    let (groups, ranks) = match (&rules.groups, rules.method) {
        (Some(groups), _) => {
            let placed = group::place(&domains, groups, parities, allow_shared_domains)?;
            let group::Placement { ranks, shared_domains, single_domain } = placed;
            let members = groups.clone();
            (group::Groups { members, shared_domains, single_domain }, ranks)
        }
        // Nobody protects anybody.
        (None, Method::None) => {
            let members = vec![own.clone()];
            (group::Groups { members, shared_domains: false, single_domain: false }, own)
        }
        (None, _) => (group::form(&domains, members, parities, allow_shared_domains)?, own),
    };
    let attach = vec![None; offers.len()];
    let discard = discards(offers, &attach);
    let base = lineage(offers);
    let is_missed = current_claims(offers, base).len() < offers.len();
    Ok(Plan {
        left: left(offers, base, is_missed),
        attempt,
        epoch: 0,
        bearer: None,
        state: Vec::new(),
        groups: groups.members,
        shared_domains: groups.shared_domains,
        single_domain: groups.single_domain,
        ranks,
        attach,
        unusable: contents(offers).count(),
        discard,
        lost: Vec::new(),
        load: None,
        restorable: vec![Vec::new(); rules.levels.len()],
        lacking: vec![false; rules.levels.len()],
        sealed: vec![Vec::new(); rules.levels.len()],
        given_up: vec![None; rules.levels.len()],
    })
}

/// How to go on from `epoch` with what is `usable` of each rank, which `found` has. What
/// is in memory and not taken goes.
pub(super) fn resume(
    offers: &[Offer],
    found: &[Offer],
    rules: &Rules,
    epoch: u64,
    usable: &BTreeMap<usize, &Content>,
) -> Result<Plan, Refusal> {
    let (size, processes) = (rules.ranks(offers.len()), offers.len());
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
    if rules.bears.is_none() {
        give_lost_ranks(&mut ranks, &lost);
    }
    let domains: Vec<String> = offers.iter().map(|offer| offer.domain.clone()).collect();
    // A group whose application has it bears as many losses at once as it has parities.
    let most = if rules.groups.is_some() { rules.parities } else { 1 };
    let shared_domains = group::most_in_a_domain(&domains, &groups, &ranks) > most;
    let is_memory = std::ptr::eq(offers, found);
    let nothing = vec![None; processes];
    let discard = discards(offers, if is_memory { &attach } else { &nothing });
    let bearer = usable.values().next().map(|content| bearer(found, content));
    Ok(Plan {
        left: left(offers, lineage(offers), !is_memory || !lost.is_empty()),
        attempt: this_attempt(offers, rules),
        epoch,
        bearer,
        state: Vec::new(),
        shared_domains,
        single_domain: domains.iter().all(|domain| *domain == domains[0]),
        groups,
        unusable: discard.iter().map(Vec::len).sum(),
        ranks,
        attach,
        discard,
        lost,
        load: None,
        restorable: vec![Vec::new(); rules.levels.len()],
        lacking: vec![false; rules.levels.len()],
        sealed: vec![Vec::new(); rules.levels.len()],
        given_up: vec![None; rules.levels.len()],
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
        .filter(|group| group.ranks.len() > rules.parities)
        .collect();
    let unknown: Vec<usize> = (0..size).filter(|rank| !known.contains(rank)).collect();
    if !unknown.is_empty() {
        broken.push(LostGroup { group: None, ranks: unknown });
    }
    if !broken.is_empty() {
        let (torn, parities) = (Vec::new(), rules.parities);
        return Err(Refusal::Unrecoverable { epoch, lost: broken, torn, parities });
    }
    assert!(groups.keys().copied().eq(0..groups.len()), "groups are numbered from 0");
    Ok(groups.into_values().collect())
}

/// A process for each usable rank that has one: a largest matching, by augmenting paths. A
/// process that had a rank keeps it: in its place the segment of a lost rank, which may be torn,
/// could be taken, and its own be left over. Others take the rank of their own number where they
/// can.
fn assign(
    offers: &[Offer],
    usable: &BTreeMap<usize, &Content>,
) -> BTreeMap<usize, (usize, SegmentId)> {
    let mut holders: BTreeMap<usize, Vec<(usize, SegmentId)>> = BTreeMap::new();
    for (process, offer) in offers.iter().enumerate() {
        for claim in &offer.claims {
            let Some(content) = &claim.content else { continue };
            if usable.get(&content.rank) == Some(&content) {
                holders.entry(content.rank).or_default().push((process, claim.id));
            }
        }
    }
    for (&rank, list) in &mut holders {
        list.sort_by_key(|&(process, id)| (process != rank, process, id));
    }
    let (mut owner, mut seated): (BTreeMap<usize, usize>, _) = (BTreeMap::new(), BTreeSet::new());
    for (process, seat) in offers.iter().enumerate().filter_map(|(i, o)| Some((i, o.seat?))) {
        let is_there = |list: &Vec<(usize, SegmentId)>| list.iter().any(|(p, _)| *p == process);
        if holders.get(&seat).is_some_and(is_there) && seated.insert(seat) {
            owner.insert(process, seat);
        }
    }
    // From a process that has a rank a path leads on to another place for that rank.
    for &rank in holders.keys().filter(|rank| !seated.contains(rank)) {
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
fn give_lost_ranks(ranks: &mut [usize], lost: &[usize]) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::parameters::Parameters;

    const RULES: Rules = Rules {
        method: Method::SelfCheckpoint,
        members: 4,
        parities: 1,
        groups: None,
        bears: None,
        allow_shared_domains: false,
        resume: Resume::Auto,
        nothing_hidden: false,
        clock: 9,
        nonce: 5,
        levels: Vec::new(),
        rotten: Vec::new(),
    };
    const BASE: StartId = StartId { number: 3, nonce: 1 };

    /// Of a segment that follows `lineage`, with this commit and stamp.
    fn record(lineage: StartId, commit: u64, stamp: u64) -> Record {
        let mut record = Record::of_new_segment();
        record.join(lineage, &[]);
        record.confirm(lineage, RULES.method, 0, &[]);
        for epoch in 1..=commit {
            record.commit(epoch, vec![epoch as u8]);
            if epoch <= stamp {
                record.stamp(epoch);
            }
        }
        record
    }

    /// A segment of rank `rank` of four, with this commit and stamp.
    fn claim(rank: usize, commit: u64, stamp: u64) -> Claim {
        let members = vec![0, 1, 2, 3];
        let identity = Identity { fingerprint: 7, rank, members, ..Identity::default() };
        let id = SegmentId { rank, attempt: 3 };
        Claim {
            id,
            content: Some(Content::of(identity, &record(BASE, commit, stamp))),
            other: None,
        }
    }

    fn offers(claims: [Vec<Claim>; 4]) -> Vec<Offer> {
        let offer = |(node, claims): (usize, Vec<Claim>)| Offer {
            host: format!("node{node}"),
            domain: format!("node{node}"),
            node: format!("node{node}"),
            fingerprint: 7,
            seat: None,
            held: None,
            claims,
            images: Vec::new(),
            failures: Vec::new(),
        };
        claims.into_iter().enumerate().map(offer).collect()
    }

    fn one_each(states: [(u64, u64); 4]) -> Vec<Offer> {
        let mut rank = 0;
        offers(states.map(|(commit, stamp)| {
            rank += 1;
            vec![claim(rank - 1, commit, stamp)]
        }))
    }

    /// The plan of a run that is not done.
    fn planned(offers: &[Offer], rules: &Rules) -> Result<Plan, Refusal> {
        match decide(offers, rules)? {
            Decision::Work(plan) => Ok(plan),
            Decision::Finished(finished) => panic!("not marked, and yet {finished:?}"),
        }
    }

    fn ended(offers: &[Offer], rules: &Rules) -> Finished {
        match decide(offers, rules) {
            Ok(Decision::Finished(finished)) => finished,
            other => panic!("marked, and yet {other:?}"),
        }
    }

    /// Of the segment of a replacement that is not rebuilt.
    fn hollow() -> Record {
        let mut record = Record::of_new_segment();
        record.join(BASE, &[]);
        record.confirm(BASE, RULES.method, 4, &[4]);
        record
    }

    fn mark(offer: &mut Offer) {
        edit(offer).record.finish(b"");
    }

    fn edit(offer: &mut Offer) -> &mut Content {
        offer.claims[0].content.as_mut().expect("a whole segment")
    }

    /// Rank 0, of two on its node, is lost, and its segment is left there. Those that are left
    /// have other numbers now.
    #[test]
    fn the_segment_of_a_lost_rank_drives_nobody_from_its_own() {
        let mut offers = one_each([(4, 4); 4]);
        let on_node_0 = [claim(0, 4, 4), claim(1, 4, 4)];
        for (process, (seat, node)) in [(1, 0), (2, 1), (3, 2)].into_iter().enumerate() {
            offers[process] = Offer { seat: Some(seat), ..offers[node].clone() };
            offers[process].claims = vec![claim(seat, 4, 4)];
            offers[process].node = format!("node{node}");
        }
        offers[0].claims = on_node_0.into();
        // The spare.
        offers[3] = Offer { claims: Vec::new(), node: "node3".into(), ..offers[3].clone() };
        let plan = planned(&offers, &RULES).unwrap();
        assert_eq!((plan.ranks, plan.lost), (vec![1, 2, 3, 0], vec![0]));
    }

    /// Process 0 reads one of each rank.
    #[test]
    fn an_offer_is_short_however_long_the_state_and_the_parameters() {
        let parameters = [("application".to_owned(), "x".repeat(2000))].into();
        let identity = |parameters| Identity { rank: 1, parameters, ..Identity::default() };
        let mut long = record(BASE, 4, 4);
        long.commit(5, vec![200; 4096]);
        let of = |record| Content::of(identity(Parameters::clone(&parameters)), record);
        let bytes = serde_json::to_vec(&of(&long)).expect("plain data").len();
        assert!(bytes < 400, "{bytes} bytes");
        // And yet it tells one state from another.
        let mut other = record(BASE, 4, 4);
        other.commit(5, vec![201; 4096]);
        assert_ne!(of(&long), of(&other));
    }

    #[test]
    fn one_commit_of_the_next_epoch_takes_all_there() {
        let plan = planned(&one_each([(5, 5), (5, 5), (6, 5), (5, 5)]), &RULES).expect("legal");
        assert_eq!((plan.epoch, plan.lost.len()), (6, 0));
        assert_eq!(plan.bearer, Some((2, SegmentId { rank: 2, attempt: 3 })));
        let plan = planned(&one_each([(5, 5); 4]), &RULES).expect("legal");
        assert_eq!(plan.epoch, 5);
        assert_eq!(plan.attempt, StartId { number: 9, nonce: 5 });
        assert_eq!(plan.ranks, [0, 1, 2, 3]);
    }

    #[test]
    fn what_segments_out_of_reach_may_name_is_kept_in_mind() {
        let (alone, older) = (StartId { number: 4, nonce: 1 }, StartId { number: 2, nonce: 8 });
        let mut found = one_each([(4, 4); 4]);
        edit(&mut found[1]).record.join(alone, &[older]);
        // Nothing is out of reach now.
        assert_eq!(planned(&found, &RULES).expect("legal").left, [older]);
        found[0].claims.clear();
        assert_eq!(planned(&found, &RULES).expect("legal").left, [older, BASE, alone]);
        let afresh = Rules { resume: Resume::Never, ..RULES };
        assert_eq!(planned(&found, &afresh).expect("legal").left, [older, BASE, alone]);
        // Before the first epoch.
        let mut found = one_each([(0, 0); 4]);
        found[3].claims.clear();
        assert_eq!(planned(&found, &RULES).expect("legal").left, [BASE]);
        assert_eq!(planned(&offers([const { Vec::new() }; 4]), &RULES).expect("legal").left, []);
    }

    #[test]
    fn processes_find_their_data_and_the_rest_take_what_is_lost() {
        let found =
            offers([vec![claim(2, 4, 4)], vec![], vec![claim(0, 4, 4)], vec![claim(3, 4, 4)]]);
        let plan = planned(&found, &RULES).expect("one loss");
        assert_eq!(plan.ranks, [2, 1, 0, 3]);
        assert_eq!(plan.lost, [1]);
        assert_eq!(plan.attach[1], None);
        assert!(plan.discard.iter().all(Vec::is_empty));
    }

    /// A run of four ranks that bears the loss of 0, of 1 and 2, or of 3.
    #[test]
    fn fewer_processes_keep_their_ranks_where_the_loss_is_borne() {
        let left = |ranks: &[usize]| -> Vec<Offer> {
            let all = offers([0, 1, 2, 3].map(|rank| vec![claim(rank, 4, 4)]));
            ranks.iter().map(|&rank| all[rank].clone()).collect()
        };
        let bears = Some(vec![vec![0], vec![1, 2], vec![3]]);
        let rules = Rules { method: Method::Abft, bears, ..RULES };
        let plan = planned(&left(&[0, 2, 3]), &rules).expect("one is lost");
        assert_eq!((&plan.ranks[..], &plan.lost[..]), (&[0, 2, 3][..], &[1][..]));
        assert!(plan.attach.iter().all(Option::is_some));
        let refused = |offers: &[Offer], lost: &[usize]| {
            let refusal = Refusal::NotBorne { lost: lost.to_vec() };
            assert_eq!(decide(offers, &rules).unwrap_err(), refusal);
        };
        refused(&left(&[1, 2]), &[0, 3]);
        // A process whose own memory is not there has nothing to go on with.
        let mut without = left(&[0, 2, 3]);
        without[1].claims.clear();
        refused(&without, &[1, 2]);
        let mut begun = left(&[0, 2, 3]);
        begun.iter_mut().for_each(|offer| offer.claims.clear());
        refused(&begun, &[0, 1, 2, 3]);
    }

    #[test]
    fn two_processes_of_one_node_share_what_they_both_find() {
        let both = || vec![claim(0, 4, 4), claim(1, 4, 4)];
        let mut found = offers([both(), both(), vec![claim(2, 4, 4)], vec![claim(3, 4, 4)]]);
        found[1].node = "node0".into();
        found[1].domain = "node0".into();
        let plan = planned(&found, &RULES).expect("nothing lost");
        assert_eq!(plan.ranks, [0, 1, 2, 3]);
        assert!(plan.lost.is_empty() && plan.shared_domains);
        assert!(plan.discard.iter().all(Vec::is_empty), "what the other takes is not removed");
        // Two segments where only one process runs: one of them is lost.
        let found = offers([both(), vec![], vec![claim(2, 4, 4)], vec![claim(3, 4, 4)]]);
        let plan = planned(&found, &RULES).expect("one loss");
        assert_eq!(plan.lost, [1]);
        assert_eq!(plan.discard[0], [SegmentId { rank: 1, attempt: 3 }]);
    }

    #[test]
    fn what_missed_a_decision_is_stale_however_new_its_epoch() {
        let mut found = one_each([(5, 5); 4]);
        let (old, later) = (StartId { number: 2, nonce: 8 }, StartId { number: 4, nonce: 8 });
        edit(&mut found[1]).record = record(old, 6, 5);
        edit(&mut found[1]).record.join(later, &[]);
        let plan = planned(&found, &RULES).expect("one loss");
        assert_eq!((plan.epoch, plan.lost, plan.unusable), (5, vec![1], 1));
        // It has joined what the others follow, and another start since: it counts,
        // and so does its commit.
        edit(&mut found[1]).record = record(old, 6, 5);
        edit(&mut found[1]).record.join(BASE, &[]);
        edit(&mut found[1]).record.join(later, &[]);
        let plan = planned(&found, &RULES).expect("nothing lost");
        assert_eq!((plan.epoch, plan.lost.len()), (6, 0));
    }

    #[test]
    fn a_second_claim_on_a_rank_is_discarded() {
        let mut stale = claim(0, 3, 3);
        stale.id.attempt = 2;
        let mut found = one_each([(4, 4); 4]);
        found[3].claims.push(stale.clone());
        let plan = planned(&found, &RULES).expect("nothing lost");
        assert_eq!(plan.attach[0], Some(SegmentId { rank: 0, attempt: 3 }));
        assert_eq!(plan.discard[3], [stale.id]);
    }

    #[test]
    fn torn_and_hollow_segments_count_as_lost() {
        let mut found = one_each([(4, 4); 4]);
        found[0].claims[0].content = None;
        let plan = planned(&found, &RULES).expect("one loss");
        assert_eq!((plan.lost.clone(), plan.discard[0].len()), (vec![0], 1));
        edit(&mut found[2]).record = hollow();
        let error = planned(&found, &RULES).expect_err("two losses");
        let lost = vec![LostGroup { group: Some(0), ranks: vec![0, 2] }];
        assert_eq!(error, Refusal::Unrecoverable { epoch: 4, lost, torn: vec![], parities: 1 });
        assert!(error.to_string().contains("group 0 has lost ranks [0, 2]"), "{error}");
    }

    #[test]
    fn the_user_decides_what_becomes_of_what_is_found() {
        let never = Rules { resume: Resume::Never, ..RULES };
        let require = Rules { resume: Resume::Require, ..RULES };
        let found = one_each([(4, 4); 4]);
        let plan = planned(&found, &never).expect("afresh");
        assert_eq!((plan.epoch, plan.unusable), (0, 4));
        assert!(plan.discard.iter().all(|list| list.len() == 1));
        assert_eq!(planned(&found, &require).expect("there is one").epoch, 4);
        let nothing = offers([vec![], vec![], vec![], vec![]]);
        assert_eq!(planned(&nothing, &require), Err(Refusal::NothingFound));
        assert_eq!(planned(&nothing, &RULES).expect("afresh").epoch, 0);
        assert_eq!(planned(&one_each([(0, 0); 4]), &require), Err(Refusal::NothingFound));
    }

    #[test]
    fn other_settings_are_refused_not_thrown_away() {
        let mut found = one_each([(4, 4); 4]);
        found[2].claims[0].content = None;
        found[2].claims[0].other = Some("ranks 4 there, 2 here".into());
        let refusal = planned(&found, &RULES).expect_err("of another shape");
        assert!(matches!(refusal, Refusal::OtherShape { process: 2, rank: 2, .. }), "{refusal}");
        assert!(refusal.to_string().contains("other settings: ranks 4 there, 2 here"));
        let never = Rules { resume: Resume::Never, ..RULES };
        assert_eq!(planned(&found, &never).expect("afresh").epoch, 0);
        found[1].fingerprint = 8;
        assert_eq!(planned(&found, &never), Err(Refusal::Disagree { process: 1 }));
    }

    #[test]
    fn a_group_with_nothing_left_is_named_by_its_ranks() {
        let mut found = one_each([(4, 4); 4]);
        for (rank, offer) in found.iter_mut().enumerate() {
            let identity = edit(offer);
            identity.members = if rank < 2 { vec![0, 1] } else { vec![2, 3] };
            identity.group = rank / 2;
        }
        found[2].claims.clear();
        found[3].claims.clear();
        let lost = vec![LostGroup { group: None, ranks: vec![2, 3] }];
        let refusal = Refusal::Unrecoverable { epoch: 4, lost, torn: vec![], parities: 1 };
        assert_eq!(planned(&found, &RULES), Err(refusal));
    }

    #[test]
    fn a_half_written_single_copy_is_never_used() {
        let rules = Rules { method: Method::Single, ..RULES };
        let mut found = one_each([(4, 4); 4]);
        edit(&mut found[1]).record.begin_update(5);
        let plan = planned(&found, &rules).expect("one torn copy is one loss");
        assert_eq!(plan.lost, [1]);
        edit(&mut found[3]).record.begin_update(5);
        let refusal = planned(&found, &rules).unwrap_err();
        assert!(
            matches!(&refusal, Refusal::Unrecoverable { torn, .. } if *torn == [1, 3]),
            "{refusal}"
        );
        let text = refusal.to_string();
        assert!(text.contains("ranks [1, 3] are here") && text.contains("--ft self"), "{text}");
        // A rank that is lost with its memory is not torn.
        let mut gone = found.clone();
        gone[3].claims.clear();
        let refusal = planned(&gone, &rules).unwrap_err();
        assert!(
            matches!(&refusal, Refusal::Unrecoverable { torn, .. } if *torn == [1]),
            "{refusal}"
        );
        // Somebody saw the end of the update: all were complete by then.
        edit(&mut found[0]).record.commit(5, vec![5]);
        edit(&mut found[0]).record.stamp(5);
        edit(&mut found[2]).record.begin_update(5);
        let plan = planned(&found, &rules).expect("all complete");
        assert_eq!((plan.epoch, plan.lost.len()), (5, 0));
    }

    #[test]
    fn one_mark_tells_that_the_run_is_done() {
        let mut found = one_each([(5, 5), (5, 5), (5, 5), (5, 5)]);
        mark(&mut found[2]);
        let id = |rank| SegmentId { rank, attempt: 3 };
        let done = ended(&found, &RULES);
        assert_eq!((done.epoch, done.bearer), (5, (2, id(2))));
        assert_eq!(done.mark, [vec![id(0)], vec![id(1)], vec![], vec![id(3)]]);
        assert_eq!(done.keep, [0, 1, 2, 3].map(|rank| vec![id(rank)]));
        assert!(done.discard.iter().all(Vec::is_empty));
        // However much is lost, and also where it was required to go on.
        for rank in [0, 1, 3] {
            found[rank].claims.clear();
        }
        let require = Rules { resume: Resume::Require, ..RULES };
        assert_eq!(ended(&found, &require).bearer, (2, id(2)));
        let never = Rules { resume: Resume::Never, ..RULES };
        let plan = planned(&found, &never).expect("afresh");
        assert_eq!((plan.epoch, &plan.discard[2][..]), (0, &[id(2)][..]));
        // A run without a checkpoint is done as well as another.
        edit(&mut found[2]).record = record(BASE, 0, 0);
        mark(&mut found[2]);
        assert_eq!(ended(&found, &require).epoch, 0);
    }

    #[test]
    fn a_mark_that_missed_a_decision_is_stale() {
        let mut found = one_each([(5, 5); 4]);
        let old = StartId { number: 2, nonce: 8 };
        edit(&mut found[1]).record = record(old, 5, 5);
        mark(&mut found[1]);
        let plan = planned(&found, &RULES).expect("one loss");
        assert_eq!((plan.epoch, plan.lost, plan.unusable), (5, vec![1], 1));
        // The other way round: what missed the end is not asked.
        let mut found = one_each([(5, 5); 4]);
        for rank in [0, 2, 3] {
            mark(&mut found[rank]);
        }
        edit(&mut found[1]).record = record(old, 9, 9);
        let done = ended(&found, &RULES);
        assert_eq!((done.epoch, done.discard[1].len(), done.keep[1].len()), (5, 1, 0));
        assert!(done.mark.iter().all(Vec::is_empty));
    }

    #[test]
    fn of_two_processes_that_see_a_segment_one_writes_to_it() {
        let both = || vec![claim(0, 4, 4), claim(1, 4, 4)];
        let mut found = offers([both(), both(), vec![claim(2, 4, 4)], vec![claim(3, 4, 4)]]);
        found[1].node = "node0".into();
        mark(&mut found[3]);
        let done = ended(&found, &RULES);
        assert_eq!(done.mark.iter().map(Vec::len).collect::<Vec<_>>(), [2, 0, 1, 0]);
        assert_eq!(done.keep.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 1, 1]);
    }
}
