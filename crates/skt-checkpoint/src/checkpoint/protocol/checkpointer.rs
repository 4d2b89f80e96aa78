use std::sync::Arc;
use std::time::Instant;

use crate::checkpoint::config::Config;
use crate::checkpoint::decide::StartPlan;
use crate::checkpoint::encoding::Encoding;
use crate::checkpoint::error::{CheckpointError, Result};
use crate::checkpoint::hook::{Hook, Step, StepName};
use crate::checkpoint::level::{Images, LevelReport, Rotten};

use crate::checkpoint::schedule::{Polled, Stats, UnderWay};
use crate::checkpoint::segment::OwnSegment;
use skt_comm::Comm;
use skt_comm::collect::all_reduce;
use skt_store::layout::Active;

/// Takes and recovers checkpoints of one rank's regions.
pub struct Checkpointer<'n> {
    pub(super) job: Comm,
    pub(super) config: Config,
    /// Written from the segment, so dropped before it.
    pub(super) images: Images,
    /// Sources that this start has found rotten, before it resumed from the present one.
    pub(super) rotten: Vec<Rotten>,
    /// The largest progress that an earlier start has noted in a segment of this process's node.
    pub(super) earlier_progress: u64,
    pub(super) plan: StartPlan,
    pub(super) encoding: Encoding,
    /// The epoch that is being taken, if any.
    pub(super) under_way: Option<UnderWay>,
    /// This rank's segment; the last field, so that the hold on the run is released last.
    pub(super) segment: OwnSegment<'n>,
}

impl<'n> Checkpointer<'n> {
    /// This process's rank in the run.
    pub fn rank(&self) -> usize {
        self.segment.rank()
    }

    /// What this start resumes from.
    pub fn found(&self) -> &StartPlan {
        &self.plan
    }

    /// The communicator of all processes, in the order of their ranks in the run.
    pub fn comm(&self) -> &Comm {
        &self.job
    }

    pub(crate) fn hook(&self) -> Arc<dyn Hook> {
        self.segment.vault.hook()
    }

    /// The newest epoch; 0 before the first checkpoint.
    pub fn epoch(&self) -> u64 {
        self.segment.record().committed()
    }

    /// Notes how far the application has come since the last checkpoint, in any number that grows.
    /// A later start learns of it, though it continues from the checkpoint.
    pub fn note_progress(&mut self, progress: u64) {
        self.segment.note_progress(progress);
    }

    /// The largest progress that earlier starts have noted in any segment that was found; 0 if
    /// there is none. Collective.
    pub fn earlier_progress(&self) -> Result<u64> {
        let mut largest = [self.earlier_progress];
        all_reduce(&self.job, &mut largest, u64::max)?;
        Ok(largest[0])
    }

    /// Bytes of this rank's segment.
    pub fn segment_bytes(&self) -> usize {
        self.segment.layout.bytes
    }

    /// The live workspace A of region `region`, after [`Checkpointer::recover`].
    pub fn region(&mut self, region: usize) -> &mut [u8] {
        self.segment.region(region)
    }

    /// The address of a region's workspace A and its bytes, valid as long as this checkpointer,
    /// after [`Checkpointer::recover`]. It serves an application that computes while a checkpoint
    /// is taken and does not touch the rows that it has called ready.
    pub fn region_at(&mut self, region: usize) -> (*mut u8, usize) {
        self.segment.region_at(region)
    }

    /// The live workspaces of all regions, to be used at once, after [`Checkpointer::recover`].
    pub fn regions(&mut self) -> Vec<&mut [u8]> {
        self.segment.regions()
    }
}

/// Images.
impl<'n> Checkpointer<'n> {
    /// What each level has done on this rank.
    pub fn level_reports(&self) -> Vec<LevelReport> {
        self.images.rank_images.reports()
    }

    /// Makes images of the next epoch due on all levels. Rank 0 decides.
    pub fn make_images_due(&mut self) {
        self.images.rank_images.make_all_due();
    }

    /// Seconds that the images of one epoch take this rank, judging by those that it has written or
    /// is writing in this start; 0 if there are none.
    pub fn seconds_of_images(&mut self) -> f64 {
        self.images.seconds()
    }

    /// Waits for the images that are being written. Returns, level by level, whether those of the
    /// newest epoch are complete on all ranks. Collective.
    pub fn finish_images(&mut self) -> Result<Vec<bool>> {
        self.images.finish(&self.job, &mut self.segment)
    }
}

/// An epoch that is being taken while the application computes.
impl<'n> Checkpointer<'n> {
    /// Declares that A has its contents of the epoch that has begun outside of the corner `outside`
    /// of a region, that is, in the rows before `outside.row` and in the bytes before
    /// `outside.byte` of all rows. Encodes nothing: [`Checkpointer::poll`] does. Has no effect when
    /// no epoch has begun.
    ///
    /// # Safety
    /// From here until [`Checkpointer::complete`] has returned, no one writes there: this process
    /// reads it.
    pub unsafe fn ready(&mut self, region: usize, outside: Active) {
        let Some(mut under_way) = self.under_way.take() else { return };
        let Active { row, byte } = &mut under_way.ready[region];
        (*row, *byte) = ((*row).max(outside.row), (*byte).max(outside.byte));
        if let Some(schedule) = &mut under_way.schedule {
            schedule.set_ready(&self.segment.layout, &under_way.ready);
        }
        self.under_way = Some(under_way);
    }

    /// Encodes some of what is ready here, or else progresses the messages. Never waits for other
    /// ranks, and does little per call. Returns what is left before [`Checkpointer::complete`].
    pub fn poll(&mut self) -> Result<Polled> {
        self.images.advance();
        let Some(mut under_way) = self.under_way.take() else { return Ok(Polled::Done) };
        let start = Instant::now();
        let left = match &mut under_way.schedule {
            Some(schedule) => self.encoding.advance(&mut self.segment, schedule, false)?,
            None => Polled::Idle,
        };
        under_way.stats.encode_seconds += start.elapsed().as_secs_f64();
        self.under_way = Some(under_way);
        Ok(left)
    }
}

impl<'n> Checkpointer<'n> {
    /// The ranks of the job for which `is_so` holds, in rising order. Collective.
    pub(super) fn ranks_where(&self, is_so: bool) -> Result<Vec<usize>> {
        let mut flags = vec![0u8; self.job.size()];
        flags[self.job.rank()] = u8::from(is_so);
        all_reduce(&self.job, &mut flags, u8::max)?;
        Ok((0..flags.len()).filter(|&rank| flags[rank] != 0).collect())
    }

    pub(super) fn check_room(&self, state: &[u8]) -> Result<()> {
        let (bytes, capacity) = (state.len(), self.config.state_capacity_bytes);
        if bytes > capacity {
            Err(CheckpointError::StateTooLarge { bytes, capacity })
        } else {
            Ok(())
        }
    }

    pub(super) fn barrier(&mut self, epoch: u64, stats: &mut Stats) -> Result<()> {
        self.segment.step(Step::new(StepName::Barrier, epoch))?;
        self.segment.vault.order();
        let start = Instant::now();
        if self.images.rank_images.is_empty() {
            self.job.barrier()?
        } else {
            self.images.barrier(&self.job, &mut self.segment)?
        }
        stats.barrier_seconds = start.elapsed().as_secs_f64();
        Ok(())
    }
}
