//! The decision of a restart for the whole job: which process takes which rank, and which epoch
//! counts. It is a pure function of what all processes have found.
//!
//! **Which segments count.** Every start of a job has a [`StartId`]. A segment records which start
//! it followed last (`lineage`), and which have read it since (`joined`). A start first has all
//! segments join, then a barrier, and only then do segments change and name it as their lineage. So
//! once any segment names a start as its lineage, each segment that was in reach of that start
//! names it as joined or as lineage. A segment that names it in neither way was out of reach (on a
//! node that has returned) and has missed the decision: it is stale, whatever its epochs are. A
//! segment that has joined and not followed is unchanged, however many starts it has joined.
//! Images, too, name the start that wrote them as their lineage. If images can be restored that are
//! of a later start than all segments, no segment was in reach of that start: all are stale.
//!
//! **Which epoch.** E is the newest commit of the segments that count. A rank commits only after
//! the job-wide barrier, when every D of every group is complete, so members without that commit
//! can be used at E, too.
//!
//! **Whether the run is done.** Ranks mark their segments as finished after a barrier that all
//! enter at the end of the work, and nothing is removed before all are marked. So one mark among
//! the segments that count is enough, and no start resumes a run that has one.

mod assign;
pub(super) mod found;
pub(super) mod offer;
pub(super) mod plan;
pub(super) mod resume;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use assign::discards;
pub(crate) use found::{Content, FoundSegment};
pub(crate) use offer::{Obstacle, Offer};
use offer::{
    contents, counts, current_segments, has_rotten_images, holder, left, lineage,
    refuse_other_shapes, segments,
};
use plan::Note;
pub use plan::StartPlan;
pub(crate) use plan::{Decision, Finished, Rules};
use resume::{resume, this_start};

use super::config::Config;
pub use super::config::Resume;
use super::group;
use super::level::{EpochSource, Generation, Restorable, choose};
use super::methods::Method;
use super::record::{Holds, StartId};
pub(crate) use super::refusal::Damage;
pub use super::refusal::{Refusal, Surface};

/// Decides for the whole job. `offers` has one entry per process, in the order of their ranks.
pub(crate) fn decide(offers: &[Offer], rules: &Rules) -> Result<Decision, Refusal> {
    if let Some(held) = Obstacle::refusal(offers.iter().map(|offer| offer.held.clone())) {
        return Err(held);
    }
    if rules.config.resume != Resume::Never {
        refuse_other_shapes(offers, |offer| {
            offer.segments.iter().map(|segment| (segment.id.rank, &segment.other))
        })?;
        let finished = finished(offers).filter(|_| !is_superseded(offers, rules));
        if let Some(finished) = finished {
            return Ok(Decision::Finished(finished));
        }
    }
    let memory = match rules.rotten(EpochSource::Memory) {
        Some(refusal) => Err(refusal.clone()),
        None => plan(offers, rules),
    };
    let given_up = choose::given_up(offers, rules);
    if rules.config.resume == Resume::Never {
        choose::refuse_without(&given_up, rules, "this start is to remove what is there")?;
    }
    if rules.config.levels.is_empty() || rules.config.resume == Resume::Never {
        let plan = memory?;
        let found: Vec<u64> =
            in_memory(offers, rules, &plan).map(|it| it.epoch).into_iter().collect();
        return match rules.config.resume {
            Resume::At(number) if !found.contains(&number) => {
                Err(Refusal::NotChoosable { number, why: String::new(), found })
            }
            _ => Ok(Decision::Work(StartPlan { given_up, ..plan })),
        };
    }
    let sealed = |level| choose::generations(offers, level).into_iter().collect();
    let sealed = (0..rules.config.levels.len()).map(sealed).collect();
    let mut plan = with_images(offers, rules, memory, &given_up)?;
    if plan.load.is_none() && has_rotten_images(offers) {
        for restorable in &mut plan.restorable {
            restorable.is_lacking = !restorable.generations.is_empty();
        }
        plan.has_rotten_images = true;
    }
    Ok(Decision::Work(StartPlan { sealed, given_up, ..plan }))
}

fn in_memory(offers: &[Offer], rules: &Rules, plan: &StartPlan) -> Option<Generation> {
    let is_kept = plan.epoch > 0 && rules.config.method != Method::Abft;
    is_kept.then(|| Generation { start: lineage(offers), epoch: plan.epoch })
}

/// The checkpoints that a start may resume from.
#[derive(Clone, Copy)]
enum Wanted {
    /// All.
    Any,
    /// All of this number, which the user names in this start.
    Number(u64),
    /// The user has named `chosen` in the start `by`: newer ones of the starts before it are passed
    /// over, until that start or a later one has some.
    Chosen { by: StartId, chosen: Generation },
}

impl Wanted {
    fn new(offers: &[Offer], rules: &Rules) -> Self {
        match (rules.config.resume, choose::note(offers)) {
            (Resume::At(number), _) => Self::Number(number),
            (_, Some((name, chosen))) => Self::Chosen { by: name.start, chosen },
            (_, None) => Self::Any,
        }
    }

    fn allows(&self, checkpoint: Generation) -> bool {
        match *self {
            Self::Any => true,
            Self::Number(number) => checkpoint.epoch == number,
            Self::Chosen { by, chosen } => {
                checkpoint.start.number >= by.number || checkpoint <= chosen
            }
        }
    }

    fn number(&self) -> Option<u64> {
        match *self {
            Self::Any => None,
            Self::Number(number)
            | Self::Chosen { chosen: Generation { epoch: number, .. }, .. } => Some(number),
        }
    }

    fn note_in(
        &self,
        offers: &[Offer],
        plan: StartPlan,
        checkpoint: Generation,
        mut restorable: Vec<Restorable>,
    ) -> StartPlan {
        let all = || restorable.iter().flat_map(|level| &level.generations);
        let has_newer = |by: StartId| all().any(|it| it.start.number >= by.number);
        let stays = match *self {
            Self::Any => None,
            Self::Number(_) => Some(checkpoint),
            Self::Chosen { by, chosen } => Some(chosen).filter(|_| !has_newer(by)),
        };
        restorable.iter_mut().for_each(|level| level.chosen = stays);
        let own = Generation { start: plan.start, epoch: plan.epoch };
        let note = match self {
            Self::Number(_) => Some(Note { name: own, chosen: Some(checkpoint) }),
            _ => choose::note(offers).map(|(name, _)| Note { name, chosen: None }),
        };
        StartPlan { restorable, note: note.map(Box::new), ..plan }
    }
}

/// Whether images that can be restored are of a later start than every segment. That start had all
/// segments in its reach join it, and wrote images only once they had followed it.
fn is_superseded(offers: &[Offer], rules: &Rules) -> bool {
    is_older(lineage(offers), &choose::restorable(offers, rules))
}

fn is_older(base: StartId, restorable: &[Restorable]) -> bool {
    let mut all = restorable.iter().flat_map(|level| &level.generations);
    all.any(|generation| generation.start.number > base.number)
}

/// The plan if there are levels: resumes from memory if that suffices and no later start has left
/// images, else from images. If this start has already found images to be rotten, memory has
/// nothing to resume from, as the start has replaced all segments by new ones. If a level is
/// `given_up`, it may have images that cannot be seen, so the run does not start from the beginning
/// unless the application knows that there are none.
fn with_images(
    offers: &[Offer],
    rules: &Rules,
    memory: Result<StartPlan, Refusal>,
    given_up: &[Option<String>],
) -> Result<StartPlan, Refusal> {
    refuse_other_shapes(offers, |offer| {
        offer.images.iter().flatten().map(|image| (image.id.rank, &image.other))
    })?;
    let restorable = choose::restorable(offers, rules);
    let wanted = Wanted::new(offers, rules);
    let mut found: Vec<u64> =
        restorable.iter().flat_map(|level| &level.generations).map(|it| it.epoch).collect();
    let mut why: Vec<String> = rules.rotten.iter().map(|rotten| rotten.refusal.what()).collect();
    match &memory {
        Ok(plan) if plan.epoch > 0 && is_older(lineage(offers), &restorable) => {
            why.push("all memory in reach is of an earlier start".to_owned());
        }
        Ok(plan) if plan.epoch > 0 => {
            let kept = in_memory(offers, rules, plan);
            let here = Generation { start: lineage(offers), epoch: plan.epoch };
            let is_named = matches!(wanted, Wanted::Number(_));
            match wanted.number().filter(|_| !wanted.allows(here) || is_named && kept.is_none()) {
                None => return Ok(wanted.note_in(offers, memory?, here, restorable)),
                Some(number) => why.push(format!("checkpoint {number} was chosen")),
            }
            found.extend(kept.map(|here| here.epoch));
        }
        // Images have the groups that were formed when there were more nodes.
        Ok(_) | Err(Refusal::NothingFound { .. } | Refusal::Placement(_)) if why.is_empty() => {
            why.push("no node has memory of a checkpoint".to_owned());
        }
        Err(refusal @ Refusal::Unrecoverable { .. }) if why.is_empty() => why.push(refusal.what()),
        _ if why.is_empty() => return memory,
        _ => {}
    }
    let why = why.join("; ");
    let mut allowed = restorable.clone();
    allowed.iter_mut().for_each(|level| level.generations.retain(|it| wanted.allows(*it)));
    if let Some(plan) = choose::from_images(offers, rules, &allowed, &why) {
        let loaded = plan.load.as_ref().expect("images are loaded").generation;
        return Ok(wanted.note_in(offers, plan, loaded, restorable));
    }
    choose::refuse_without(given_up, rules, &why)?;
    if let Some(number) = wanted.number() {
        found.sort_unstable();
        found.dedup();
        let why: Vec<String> = rules.rotten.iter().map(|rotten| rotten.refusal.what()).collect();
        return Err(Refusal::NotChoosable { number, why: why.join("; "), found });
    }
    match rules.rotten.last() {
        Some(last) => Err(last.refusal.clone()),
        None => match (memory, choose::images(offers)) {
            (Err(Refusal::NothingFound { bare, .. }), images) => {
                Err(Refusal::NothingFound { bare, images })
            }
            (memory, images) => memory.map(|plan| {
                let unusable = plan.unusable + images;
                StartPlan { restorable, unusable, ..plan }
            }),
        },
    }
}

/// What is left of a run that has ended; `None` if no segment that counts is marked as finished.
fn finished(offers: &[Offer]) -> Option<Finished> {
    let base = lineage(offers);
    let keeps = |content: &Content| counts(content, base) && !content.record.is_hollow();
    let is_kept = |segment: &FoundSegment| segment.content.as_ref().is_some_and(keeps);
    let marks = |content: &Content| content.record.is_finished();
    let is_marked = |segment: &FoundSegment| segment.content.as_ref().is_some_and(marks);
    let marked = contents(offers).find(|content| keeps(content) && marks(content))?;
    // If several processes have found a segment, one of them writes to it.
    let mut seen = BTreeSet::new();
    let mut mark = Vec::with_capacity(offers.len());
    for offer in offers {
        let mut is_first = |segment: &&FoundSegment| seen.insert((offer.node.as_str(), segment.id));
        let unmarked =
            offer.segments.iter().filter(|segment| is_kept(segment) && !is_marked(segment));
        mark.push(unmarked.filter(&mut is_first).map(|segment| segment.id).collect());
    }
    let ids = |kept: bool| {
        let of = |offer: &Offer| {
            offer.segments.iter().filter(|s| is_kept(s) == kept).map(|s| s.id).collect()
        };
        offers.iter().map(of).collect()
    };
    let (epoch, holder) = (marked.record.committed(), holder(offers, marked));
    let (result, left) = (Vec::new(), left(offers, base, false));
    Some(Finished { epoch, holder, result, left, mark, discard: ids(false), keep: ids(true) })
}

fn plan(offers: &[Offer], rules: &Rules) -> Result<StartPlan, Refusal> {
    let base = lineage(offers);
    let start = this_start(offers, rules);
    let current = match rules.config.resume {
        Resume::Never => BTreeMap::new(),
        _ => current_segments(offers, base),
    };
    let epoch = current.values().map(|content| content.record.committed()).max().unwrap_or(0);
    if epoch == 0 {
        if rules.config.may_lose.is_some() {
            let lost =
                (0..rules.config.ranks(offers.len())).filter(|rank| !current.contains_key(rank));
            return Err(Refusal::CannotContinue { lost: lost.collect() });
        }
        if rules.config.resume == Resume::Require {
            return Err(Refusal::NothingFound { bare: current.len(), images: 0 });
        }
        return fresh(offers, rules, start);
    }
    let usable: BTreeMap<usize, &Content> = current
        .iter()
        .filter(|(_, content)| content.record.holds(rules.config.method, epoch) != Holds::Nothing)
        .map(|(&rank, &content)| (rank, content))
        .collect();
    let mut resumed = resume(offers, offers, rules, epoch, &usable);
    if let Ok(plan) = &mut resumed {
        let newest = current.values().find(|content| content.record.committed() == epoch);
        let newest = newest.expect("the epoch comes from such a commit");
        plan.holder = Some(holder(offers, newest));
    }
    resumed.map_err(|refusal| name_incomplete(refusal, rules.config.method, &current, &usable))
}

fn name_incomplete(
    refusal: Refusal,
    method: Method,
    current: &BTreeMap<usize, &Content>,
    usable: &BTreeMap<usize, &Content>,
) -> Refusal {
    match refusal {
        Refusal::Unrecoverable { epoch, lost, parities, .. } if method == Method::Single => {
            let is_incomplete = |rank: &usize| {
                let unusable = current.get(rank).filter(|_| !usable.contains_key(rank));
                unusable.is_some_and(|c| c.record.updating() != 0 && !c.record.is_hollow())
            };
            let ranks = lost.iter().flat_map(|group| group.ranks.iter().copied());
            let incomplete = ranks.filter(is_incomplete).collect();
            Refusal::Unrecoverable { epoch, lost, incomplete, parities }
        }
        other => other,
    }
}

fn fresh(offers: &[Offer], rules: &Rules, start: StartId) -> Result<StartPlan, Refusal> {
    let domains: Vec<String> = offers.iter().map(|offer| offer.domain.clone()).collect();
    let Config { members, parities, allow_shared_domains, .. } = *rules.config;
    let own: Vec<usize> = (0..offers.len()).collect();
    let (groups, ranks) = match (&rules.config.groups, rules.config.method) {
        (Some(groups), _) => {
            let placed = group::place(&domains, groups, parities, allow_shared_domains)?;
            let group::Placement { ranks, single_domain } = placed;
            (group::Groups { members: groups.clone(), single_domain }, ranks)
        }
        // No rank protects another.
        (None, Method::None) => {
            (group::Groups { members: vec![own.clone()], single_domain: false }, own)
        }
        (None, _) => (group::form(&domains, members, parities, allow_shared_domains)?, own),
    };
    let is_protected = rules.config.method != Method::None;
    let most = if is_protected { rules.config.max_in_a_domain() } else { usize::MAX };
    let attach = vec![None; offers.len()];
    let discard = discards(offers, &attach);
    let base = lineage(offers);
    let is_missed = current_segments(offers, base).len() < offers.len();
    Ok(StartPlan {
        shared_domain: group::shared_domain(&domains, &groups.members, &ranks, most),
        groups: groups.members,
        single_domain: groups.single_domain,
        ranks,
        attach,
        unusable: segments(offers),
        discard,
        ..StartPlan::empty(rules, start, left(offers, base, is_missed))
    })
}
