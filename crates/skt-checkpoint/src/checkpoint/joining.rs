//! The steps of a start that take over its segments once all processes have agreed.

use std::mem;

use super::agree::Plan;
use super::checkpointer::Checkpointer;
use super::codec::{Codec, CodecError};
use super::config::Config;
use super::encoding::Encoding;
use super::error::{CheckpointError, Result};
use super::hook::{Step, StepName};
use super::layout::{Geometry, RegionShape, SegmentLayout};
use super::level::failed::level_error;
use super::level::look::Seen;
use super::level::{FileId, FoundImage, Generation, Helper, Level, Shelves, Slot};
use super::memory::Memory;
use super::opening::Opening;
use super::segment::OwnSegment;
use crate::comm::Comm;
use crate::comm::collect::all_max;

impl<C: Comm, M: Memory> Checkpointer<C, M> {
    /// Lays out this rank's segment, creates it if this process has taken over none, and splits the
    /// job into groups. The rank's images go to the `slots` of the levels. Collective.
    pub(super) fn create(
        comm: &C,
        mut opening: Opening<M>,
        segment: Option<M::Segment>,
        plan: Plan,
        config: Config,
        shapes: &[RegionShape],
        slots: &[Slot],
    ) -> Result<Self> {
        let rank = plan.ranks[comm.rank()];
        let (group, members) = plan.group_of(rank);
        let (layout, code) = laid_out(&config, opening.header.bytes(), shapes, members.len())?;
        let (helper, shelves) = image_writer(comm, &config, &plan, slots, &opening.seen)?;
        let seen_files = opening.seen_files(&plan);
        let rotten = mem::take(&mut opening.rotten);
        let segment = OwnSegment::create(opening, segment, comm.rank(), &plan, &config, layout)?;
        let group_comm = comm.split(Some(group as u32), rank as u32)?.expect("a colour");
        let job = comm.split(Some(0), rank as u32)?.expect("a colour");
        Ok(Self {
            job,
            encoding: Encoding::new(group_comm, code, &config),
            under_way: None,
            plan,
            config,
            helper,
            shelves,
            rotten,
            seen_files,
            segment,
        })
    }

    /// Waits until all segments exist. Collective.
    pub(super) fn joined(&mut self) -> Result<()> {
        self.segment.step(Step::new(StepName::Joined, self.plan.epoch))?;
        Ok(self.job.barrier()?)
    }
}

/// The layout of a segment in a group of `members`, and the group's code.
pub(super) fn laid_out(
    config: &Config,
    header_bytes: usize,
    shapes: &[RegionShape],
    members: usize,
) -> Result<(SegmentLayout, Codec)> {
    let (geometry, code) = shaped(config, members)?;
    let &Config { method, bands, cell_bytes, align_bytes: align, .. } = config;
    let parts = method.parts();
    let layout =
        SegmentLayout::new(header_bytes, shapes, geometry, bands, parts, cell_bytes, align);
    Ok((layout, code))
}

/// The writer of this rank's images, and what is known of these. Collective.
fn image_writer<C: Comm>(
    comm: &C,
    config: &Config,
    plan: &Plan,
    slots: &[Slot],
    seen: &[Seen],
) -> Result<(Helper, Shelves)> {
    let (levels, rank) = (&config.levels, plan.ranks[comm.rank()]);
    let is_own = |file: &&FileId| file.ranks.contains(rank);
    let own = seen.iter().map(|seen| seen.listed.iter().filter(is_own).copied().collect());
    let kept =
        |(all, level): (&Vec<Generation>, &Level)| all.iter().take(level.keep).copied().collect();
    let complete: Vec<_> = plan.restorable.iter().zip(levels).map(kept).collect();
    let newest_seconds = newest_seconds(comm, config, plan, seen)?;
    let mut shelves = Shelves::new(
        plan.attempt,
        levels,
        slots,
        (&complete, &newest_seconds),
        own.collect(),
        &plan.given_up,
        config.state_seconds,
    );
    // Images that are incomplete survive fewer losses: new ones are due at once.
    let lacking = (0..levels.len()).filter(|&level| plan.lacking[level]);
    lacking.for_each(|level| shelves.make_due(level));
    let helper = match levels.first() {
        None => Helper::none(),
        Some(first) => {
            let failed = level_error("starting the writer of images", first);
            Helper::start(config.image_writer.clone()).map_err(failed)?
        }
    };
    Ok((helper, shelves))
}

/// When the newest restorable images of each level were due, in seconds of the run, according to
/// the states in their seals; 0 for a level without any. Collective.
fn newest_seconds<C: Comm>(
    comm: &C,
    config: &Config,
    plan: &Plan,
    seen: &[Seen],
) -> Result<Vec<f64>> {
    let of_level = |(seen, generations): (&Seen, &Vec<Generation>)| {
        let newest = generations.first();
        let is_of_newest = |(image, _): &&(FoundImage, Vec<u8>)| {
            image.content.is_some() && Some(&image.id.generation) == newest
        };
        let image = seen.images.iter().find(is_of_newest).zip(config.state_seconds);
        image.map_or(0.0, |((_, state), seconds_of)| seconds_of(state))
    };
    let mut seconds: Vec<f64> = seen.iter().zip(&plan.restorable).map(of_level).collect();
    if !seconds.is_empty() {
        all_max(comm, &mut seconds)?;
    }
    Ok(seconds)
}

/// The geometry and code of a group. Without parities neither is used, and any legal geometry does,
/// even for a job of one rank.
fn shaped(config: &Config, members: usize) -> Result<(Geometry, Codec)> {
    if !config.method.encodes() {
        let geometry = Geometry { members: 2, parities: 1 };
        let code = Codec::new(config.code, 1, 1);
        return Ok((geometry, code.expect("every code has one data block and one parity")));
    }
    let geometry = Geometry { members, parities: config.parities };
    let code = Codec::new(config.code, geometry.data(), geometry.parities);
    let refused = |error: CodecError| {
        let reason = error.to_string();
        CheckpointError::Code { members, parities: geometry.parities, reason }
    };
    Ok((geometry, code.map_err(refused)?))
}
