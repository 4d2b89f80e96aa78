use std::mem;

use super::checkpointer::Checkpointer;
use crate::checkpoint::config::Config;
use crate::checkpoint::decide::StartPlan;
use crate::checkpoint::encoding::Encoding;
use crate::checkpoint::error::{CheckpointError, Result};
use crate::checkpoint::hook::{Step, StepName};
use crate::checkpoint::level::room::slots_with_room;
use crate::checkpoint::level::{ImageLayout, Images, Slot};
use crate::checkpoint::memory::OpenSegment;
use crate::checkpoint::segment::OwnSegment;
use crate::checkpoint::start::Start;
use skt_comm::Comm;
use skt_comm::collect::roll_call;
use skt_store::codec::{Codec, CodecError};
use skt_store::layout::{Geometry, RegionShape, SegmentLayout};

impl<'n> Checkpointer<'n> {
    /// Lays out this rank's segment, creates it if this process has taken over none, and splits the
    /// job into groups. The rank's images go to the `slots` of the levels. Collective.
    pub(super) fn create(
        comm: &Comm,
        mut start: Start<'n>,
        segment: Option<OpenSegment>,
        plan: StartPlan,
        config: Config,
        shapes: &[RegionShape],
        slots: &[Slot],
    ) -> Result<Self> {
        let rank = plan.ranks[comm.rank()];
        let (group, members) = plan.group_of(rank);
        let (layout, code) = laid_out(&config, start.header.bytes(), shapes, members.len())?;
        let images = Images::start(comm, &start, &plan, &config, slots)?;
        let rotten = mem::take(&mut start.rotten);
        let earlier_progress = start.progress;
        let segment = OwnSegment::create(start, segment, comm.rank(), &plan, &config, layout)?;
        let group_comm = comm.split(Some(group as u32), rank as u32)?.expect("a colour");
        let job = comm.split(Some(0), rank as u32)?.expect("a colour");
        Ok(Self {
            job,
            encoding: Encoding::new(group_comm, code, &config),
            under_way: None,
            plan,
            config,
            images,
            rotten,
            earlier_progress,
            segment,
        })
    }

    pub(super) fn joined(&mut self) -> Result<()> {
        self.segment.step(Step::new(StepName::Joined, self.plan.epoch))?;
        Ok(roll_call(&self.job)?)
    }
}

/// Those that this rank writes to. A level without room is given up if there is something to resume
/// from, or the level is known to have nothing; else
/// [`Refusal::NoRoom`](crate::checkpoint::refusal::Refusal::NoRoom) on all processes. Collective;
/// nothing has changed yet.
pub(super) fn slots_of_levels(
    comm: &Comm,
    start: &Start,
    plan: &mut StartPlan,
    config: &Config,
    shapes: &[RegionShape],
) -> Result<Vec<Slot>> {
    if config.levels.is_empty() {
        return Ok(Vec::new());
    }
    let rank = plan.ranks[comm.rank()];
    let (_, members) = plan.group_of(rank);
    let (layout, _) = laid_out(config, start.header.bytes(), shapes, members.len())?;
    let image = ImageLayout::new(&layout, config.method, 0, config.abft_image_bytes);
    let bytes = image.image_bytes(layout.header_bytes);
    let align_bytes = config.image_align_bytes;
    let place = (rank, &config.node[..], &config.host[..]);
    let (slots, lacking) =
        slots_with_room(comm, &config.levels, &start.seen, place, bytes, align_bytes, plan)?;
    for (given_up, lacking) in plan.given_up.iter_mut().zip(lacking) {
        match lacking {
            Some(refusal) if plan.epoch == 0 && !config.nothing_hidden => {
                return Err(refusal.into());
            }
            lacking => *given_up = given_up.take().or(lacking.map(|why| why.to_string())),
        }
    }
    Ok(slots)
}

pub(super) fn laid_out(
    config: &Config,
    header_bytes: usize,
    shapes: &[RegionShape],
    members: usize,
) -> Result<(SegmentLayout, Codec)> {
    let (geometry, code) = shaped(config, members)?;
    let &Config { method, bands, cell_bytes, align_bytes: align, .. } = config;
    let areas = method.areas();
    let layout =
        SegmentLayout::new(header_bytes, shapes, geometry, bands, areas, cell_bytes, align);
    Ok((layout, code))
}

/// A method without parities uses neither, so any legal geometry does, even for a job of one rank.
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
