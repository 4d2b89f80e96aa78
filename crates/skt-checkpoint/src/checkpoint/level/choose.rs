//! The choice of images for a restart that cannot resume from memory: a pure function of what all
//! processes see, like [`decide`](super::super::decide::decide), and by the same rules.
//!
//! The images of all ranks that one start wrote at one epoch are a *generation*: one history of the
//! run. Images of different generations are never mixed. A generation can be restored if each group
//! has lost no more of its images than it has parities.

use std::collections::{BTreeMap, BTreeSet};

use super::super::decide::found::{Content, FoundSegment};
use super::super::decide::offer::Offer;
use super::super::decide::plan::{Rules, StartPlan};
use super::super::decide::resume::resume;
use super::super::header::SegmentId;
use super::super::record::Holds;
use super::super::refusal::Refusal;
use super::disk::{Generation, ImageId};
use super::source::{EpochSource, FoundImage, Load, Restorable};

pub(crate) fn restorable(offers: &[Offer], rules: &Rules) -> Vec<Restorable> {
    let of_level = |level| {
        let lost = |generation: Generation| {
            let is_rotten = rules.rotten(EpochSource::Images { level, generation }).is_some();
            let plan = restore(offers, rules, level, generation).ok().filter(|_| !is_rotten);
            plan.map(|plan| (generation, plan.lost))
        };
        let newest_first = generations(offers, level).into_iter().rev();
        let all: Vec<(Generation, Vec<usize>)> = newest_first.filter_map(lost).collect();
        Restorable {
            generations: all.iter().map(|(generation, _)| *generation).collect(),
            is_lacking: all.first().is_some_and(|(_, lost)| !lost.is_empty()),
            most_redundant: most_redundant(&all),
            chosen: None,
        }
    };
    (0..rules.config.levels.len()).map(of_level).collect()
}

/// Finds [`Restorable::most_redundant`]. `all` has the generations that can be restored, newest
/// first, each with the ranks whose images it lacks.
///
/// A newer generation may lack images that were never sealed. So the search goes back from the
/// newest, and takes each older one that has an image which the last taken one lacks. It ends at
/// the last complete generation, or at a newer one that lacks only images on lost disks: older ones
/// were on the same disks, so they have lost at least the same images.
fn most_redundant(all: &[(Generation, Vec<usize>)]) -> Option<Generation> {
    let (mut taken, mut lacks) = all.first().map(|(newest, lost)| (*newest, lost))?;
    for (older, lost) in all {
        if lacks.iter().any(|rank| !lost.contains(rank)) {
            (taken, lacks) = (*older, lost);
        }
    }
    Some(taken)
}

/// The plan to resume from the newest generation of any level (if several levels have it, from the
/// first of them); `None` if there is none. `why` is what prevents resuming from memory.
pub(crate) fn from_images(
    offers: &[Offer],
    rules: &Rules,
    restorable: &[Restorable],
    why: &str,
) -> Option<StartPlan> {
    let newest = |level: &usize| restorable[*level].generations.first().copied();
    let with_any = (0..rules.config.levels.len()).filter(|level| newest(level).is_some());
    let level = with_any.rev().max_by_key(newest)?;
    let generation = newest(&level)?;
    let mut plan = restore(offers, rules, level, generation).ok()?;
    let image = |id: SegmentId| ImageId { generation, rank: id.rank };
    let (process, id) = plan.holder.take().expect("a plan that resumes has one");
    plan.load = Some(Box::new(Load {
        level,
        generation,
        images: plan.attach.iter().map(|id| id.map(image)).collect(),
        holder: (process, image(id)),
        why: why.to_owned(),
    }));
    plan.attach.fill(None);
    Some(plan)
}

/// The note of the checkpoint that was chosen last: its own name, and the checkpoint.
pub(crate) fn note(offers: &[Offer]) -> Option<(Generation, Generation)> {
    let images = offers.iter().flat_map(|offer| offer.images.iter().flatten());
    images.filter_map(|image| Some((image.id.generation, image.chosen?))).max()
}

/// By level: the failure of the first process on which a level fails.
pub(crate) fn given_up(offers: &[Offer], rules: &Rules) -> Vec<Option<String>> {
    let of_level = |level: usize| {
        let failed = |(process, offer): (usize, &Offer)| {
            let why = offer.failures.get(level)?.as_ref()?;
            Some(format!("process {process} ({}): {why}", offer.host))
        };
        offers.iter().enumerate().find_map(failed)
    };
    (0..rules.config.levels.len()).map(of_level).collect()
}

/// Refuses a start with nothing to resume from while a level that is `given_up` may have images.
pub(crate) fn refuse_without(
    given_up: &[Option<String>],
    rules: &Rules,
    why: &str,
) -> Result<(), Refusal> {
    if rules.config.nothing_hidden {
        return Ok(());
    }
    for (level, failure) in rules.config.levels.iter().zip(given_up) {
        if let Some(failure) = failure.clone() {
            let (level, why) = (level.name.clone(), why.to_owned());
            return Err(Refusal::LevelFails { level, failure, why });
        }
    }
    Ok(())
}

/// The number of distinct images on all levels, sealed or not; several processes may see one.
pub(crate) fn images(offers: &[Offer]) -> usize {
    let all = offers.iter().flat_map(|offer| offer.images.iter().enumerate());
    let ids = all.flat_map(|(level, images)| images.iter().map(move |image| (level, image.id)));
    ids.collect::<BTreeSet<_>>().len()
}

/// Whether an image has what its name promises, with the data of a rank.
fn is_true(image: &FoundImage, rules: &Rules) -> bool {
    let Generation { start, epoch } = image.id.generation;
    image.content.as_ref().is_some_and(|Content { rank, record, .. }| {
        *rank == image.id.rank
            && epoch > 0
            && record.lineage() == start
            && (record.committed(), record.stamped()) == (epoch, epoch)
            && !record.is_finished()
            && record.holds(rules.config.method, epoch) == Holds::Copy
    })
}

pub(crate) fn generations(offers: &[Offer], level: usize) -> BTreeSet<Generation> {
    let sealed = |image: &&FoundImage| image.content.is_some();
    let images = offers.iter().filter_map(|offer| offer.images.get(level)).flatten();
    images.filter(sealed).map(|image| image.id.generation).collect()
}

/// The plan to resume from one generation of a level, with its images in the role of segments.
fn restore(
    offers: &[Offer],
    rules: &Rules,
    level: usize,
    generation: Generation,
) -> Result<StartPlan, Refusal> {
    let as_segment = |image: &FoundImage| FoundSegment {
        id: SegmentId { rank: image.id.rank, start: generation.start.number },
        content: image.content.clone(),
        other: None,
    };
    let of_generation =
        |image: &&FoundImage| image.id.generation == generation && is_true(image, rules);
    let only = |offer: &Offer| {
        let images = offer.images.get(level).into_iter().flatten();
        let segments = images.filter(of_generation).map(as_segment).collect();
        Offer { segments, images: Vec::new(), ..offer.clone() }
    };
    let images: Vec<Offer> = offers.iter().map(only).collect();
    let mut usable: BTreeMap<usize, &Content> = BTreeMap::new();
    for content in images.iter().flat_map(|o| &o.segments).filter_map(|s| s.content.as_ref()) {
        usable.entry(content.rank).or_insert(content);
    }
    let mut plan = resume(offers, &images, rules, generation.epoch, &usable)?;
    // Segments out of reach may be of the start that wrote the images.
    plan.left.extend(usable.values().flat_map(|content| content.record.left()));
    plan.left.push(generation.start);
    plan.left.sort_unstable();
    plan.left.dedup();
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::super::super::record::StartId;
    use super::*;

    /// `all` has the ranks whose images each generation lacks, from epoch 9 downwards.
    fn most_redundant_epoch(all: &[&[usize]]) -> Option<u64> {
        let start = StartId { number: 1, nonce: 1 };
        let of_epoch =
            |(lost, epoch): (&&[usize], u64)| (Generation { start, epoch }, lost.to_vec());
        let all: Vec<_> = all.iter().zip((1..=9).rev()).map(of_epoch).collect();
        most_redundant(&all).map(|generation| generation.epoch)
    }

    #[test]
    fn most_redundant_generation_survives_what_the_last_one_does() {
        assert_eq!(most_redundant_epoch(&[]), None);
        assert_eq!(most_redundant_epoch(&[&[], &[]]), Some(9));
        assert_eq!(
            most_redundant_epoch(&[&[0], &[0]]),
            Some(9),
            "the older one would be of no use"
        );
        assert_eq!(most_redundant_epoch(&[&[0], &[], &[]]), Some(8));
        assert_eq!(most_redundant_epoch(&[&[0, 1], &[0], &[], &[]]), Some(7));
        assert_eq!(most_redundant_epoch(&[&[0, 2], &[2], &[2]]), Some(8), "disk 2 is lost");
        assert_eq!(
            most_redundant_epoch(&[&[0], &[1], &[1]]),
            Some(8),
            "disk 1 was lost in between"
        );
    }
}
