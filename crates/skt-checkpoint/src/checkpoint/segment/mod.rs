//! This rank's segment: what outlives the process, and what is known of it.

mod carry;
mod copies;
mod damage;
mod image;

use std::sync::Arc;
use std::time::Instant;

pub(super) use damage::{DamagedCell, Findings};
pub(super) use image::Loaded;

use super::config::Config;
use super::decide::StartPlan;
use super::error::Result;
use super::header::{HeaderLayout, Identity, SegmentId};
use super::hook::{Hook, Step, StepName};
use super::memory::{Hold, Memory, OpenSegment};
use super::methods::Method;
use super::record::Record;
use super::schedule::Stats;
use super::start::Start;
use super::vault::{Backing, Vault};
use skt_comm::Result as CommResult;
use skt_store::layout::{Active, SegmentLayout};

pub(super) struct OwnSegment<'n> {
    memory: Box<dyn Memory + 'n>,
    pub id: SegmentId,
    pub header: HeaderLayout,
    pub layout: SegmentLayout,
    identity: Identity,
    method: Method,
    pub vault: Vault,
    record: Record,
    /// Method `abft`: bytes of each region, from its first on, that an image has.
    abft_image_bytes: usize,
    /// Whether A may be used: recovery is done, or there is nothing to recover.
    ready: bool,
    /// Where the two sets of parities (`self`) or the two copies (`double`) may differ: the active
    /// parts of the last checkpoint.
    pub last_active: Vec<Active>,
    /// The last field, so that the hold is released after the segment.
    lock: Option<Hold>,
}

pub(super) struct SegmentParts<'n> {
    pub memory: Box<dyn Memory + 'n>,
    pub held: Backing,
    pub lock: Option<Hold>,
    pub hook: Arc<dyn Hook>,
}

impl<'n> OwnSegment<'n> {
    /// The segment of process `process`: `taken` if it has taken one over, else a new one. The
    /// record is that of a new one until the segment joins a start.
    pub(crate) fn create(
        mut start: Start<'n>,
        taken: Option<OpenSegment>,
        process: usize,
        plan: &StartPlan,
        config: &Config,
        layout: SegmentLayout,
    ) -> Result<Self> {
        let (rank, method) = (plan.ranks[process], config.method);
        let (group, members) = plan.group_of(rank);
        let id = plan.attach[process].unwrap_or(SegmentId { rank, start: plan.start.number });
        let backing = start.backing(method, taken, id, layout.bytes, plan.epoch)?;
        let Start { memory, header, hook, lock, fingerprint, parameters, .. } = start;
        let vault = Vault::new(backing, hook, config.chunk_bytes);
        let identity = Identity {
            run_id: config.run_id.clone(),
            fingerprint,
            parameters,
            rank,
            group,
            members,
            bytes: layout.bytes,
        };
        let record = Record::for_new_segment();
        let last_active = vec![method.apart_at_start(); layout.regions.len()];
        Ok(Self {
            memory,
            id,
            header,
            layout,
            identity,
            method,
            vault,
            record,
            abft_image_bytes: config.abft_image_bytes,
            ready: plan.epoch == 0,
            last_active,
            lock,
        })
    }

    /// The rank in the run whose data the segment holds.
    pub(crate) fn rank(&self) -> usize {
        self.identity.rank
    }

    /// The ranks of the segment's group, by position in the group.
    pub(crate) fn members(&self) -> &[usize] {
        &self.identity.members
    }

    pub(crate) fn into_parts(self) -> SegmentParts<'n> {
        let (held, hook) = self.vault.into_parts();
        SegmentParts { memory: self.memory, held, lock: self.lock, hook }
    }

    /// Does a step of the protocol, at which a test can kill the rank.
    pub(crate) fn step(&self, step: Step) -> CommResult<()> {
        self.vault.step(step)
    }

    pub(crate) fn note_progress(&mut self, progress: u64) {
        let place = self.header.progress();
        self.vault.bytes_mut(place).copy_from_slice(&progress.to_ne_bytes());
    }

    /// The record as this rank has it. A change is in force once it is written.
    pub(crate) fn record(&self) -> &Record {
        &self.record
    }
}

impl<'n> OwnSegment<'n> {
    pub(crate) fn set_ready(&mut self) {
        self.ready = true;
    }

    pub(crate) fn assert_ready(&self) {
        assert!(self.ready, "recover first");
    }

    pub(crate) fn region(&mut self, region: usize) -> &mut [u8] {
        self.assert_ready();
        let a = self.layout.regions[region].a;
        self.vault.bytes_mut(a.range())
    }

    /// The address of a region's workspace A and its bytes, valid as long as this segment.
    pub(crate) fn region_at(&mut self, region: usize) -> (*mut u8, usize) {
        self.assert_ready();
        let a = self.layout.regions[region].a.range();
        (self.vault.pointer(a.clone()), a.len())
    }

    pub(crate) fn regions(&mut self) -> Vec<&mut [u8]> {
        self.assert_ready();
        let bytes = self.layout.bytes;
        let mut rest = self.vault.bytes_mut(0..bytes);
        let mut at = 0;
        let mut regions = Vec::with_capacity(self.layout.regions.len());
        for areas in &self.layout.regions {
            let a = areas.a.range();
            let (_, tail) = rest.split_at_mut(a.start - at);
            let (region, tail) = tail.split_at_mut(a.len());
            regions.push(region);
            (rest, at) = (tail, a.end);
        }
        regions
    }
}

/// Transitions of the record, each written at the step of the same name.
impl<'n> OwnSegment<'n> {
    /// Joins this start; nothing that a later start could need has changed yet.
    pub(crate) fn join(&mut self, plan: &StartPlan, is_new: bool) -> Result<()> {
        let step = Step::new(StepName::Join, plan.epoch);
        if !is_new {
            let header = self.vault.bytes(0..self.header.bytes());
            self.record = self.header.decode_record(header).expect("as it was offered");
        }
        self.record.join(plan.start, &plan.left);
        if plan.has_rotten_images {
            // A segment that replaces a lost one must record it, too.
            self.record.note_rotten_images();
        }
        self.write_record(step)?;
        if is_new {
            // The identity is written last: a segment without one belongs to no run.
            let bytes = self.header.encode_identity(&self.identity);
            self.vault.store(0, &bytes, step)?;
            self.vault.order();
        }
        Ok(())
    }

    /// All segments have joined this start. Afterwards a segment that has not is stale.
    pub(crate) fn confirm(&mut self, plan: &StartPlan) -> Result<()> {
        let (method, StartPlan { start, epoch, state, load, .. }) = (self.method, plan);
        let step = Step::new(StepName::Confirm, *epoch);
        // COMMIT(e) comes before the flush: otherwise a second death would find B incomplete and no
        // record that (A, D) counts.
        self.record.confirm(*start, method, *epoch, state);
        if method == Method::Abft && load.is_none() && self.record.is_hollow() {
            // The application knows which of its data is valid.
            self.record.rebuilt(*epoch, state);
        }
        self.write_record(step)
    }

    /// Method `single`: marks the copy as incomplete until COMMIT.
    pub(crate) fn begin_update(&mut self, epoch: u64) -> Result<()> {
        self.record.begin_update(epoch);
        self.write_record(Step::new(StepName::Begin, epoch))
    }

    /// COMMIT: records for later starts that every D of every group is complete. The epoch is valid
    /// for the whole job once the first rank has written this record, because all ranks have passed
    /// the barrier before any writes it: a start that finds it on one rank resumes from this epoch
    /// on all.
    pub(crate) fn commit(&mut self, epoch: u64, state: Vec<u8>, stats: &mut Stats) -> Result<()> {
        let start = Instant::now();
        self.record.commit(epoch, state);
        self.write_record(Step::new(StepName::Commit, epoch))?;
        stats.commit_seconds = start.elapsed().as_secs_f64();
        Ok(())
    }

    /// Stamps the epoch, which B and D hold. Afterwards this set of parities is called C.
    pub(crate) fn stamp(&mut self, epoch: u64, stats: &mut Stats) -> Result<()> {
        let start = Instant::now();
        self.record.stamp(epoch);
        self.write_record(Step::new(StepName::Stamp, epoch))?;
        stats.flush_seconds += start.elapsed().as_secs_f64();
        stats.copy_seconds += stats.flush_seconds;
        Ok(())
    }

    /// COMMIT of an epoch that a copy holds already or that needs none: the record stamps it, too.
    pub(crate) fn commit_stamped(&mut self, epoch: u64, state: Vec<u8>) -> Result<()> {
        self.record.commit(epoch, state);
        self.record.stamp(epoch);
        self.write_record(Step::new(StepName::Commit, epoch))
    }

    /// Stamps the epoch after a recovery has completed its flush.
    fn stamp_flushed(&mut self, epoch: u64) -> Result<()> {
        self.record.stamp(epoch);
        self.write_record(Step::new(StepName::RecoverStamp, epoch))
    }

    /// Records that a replacement has all that its rank had.
    pub(crate) fn stamp_rebuilt(&mut self, epoch: u64, state: &[u8]) -> Result<()> {
        if !self.record.is_hollow() {
            return Ok(());
        }
        self.record.rebuilt(epoch, state);
        self.write_record(Step::new(StepName::RecoverStamp, epoch))
    }

    /// With the next record that is written.
    pub(crate) fn note_rotten_images(&mut self) {
        self.record.note_rotten_images();
    }

    /// With the next record that is written.
    pub(crate) fn forget_rotten_images(&mut self) {
        self.record.forget_rotten_images();
    }

    pub(crate) fn mark(&mut self, result: &[u8]) -> Result<()> {
        self.record.finish(result);
        self.write_record(Step::new(StepName::Mark, self.record.stamped()))
    }

    fn write_record(&mut self, step: Step) -> Result<()> {
        Ok(self.vault.store_record(&self.header, &mut self.record, step)?)
    }
}
