//! The checkpointer of one rank: the state that all steps of the protocol work on.

use std::time::Instant;

use super::agree::Plan;
use super::codec::Codec;
use super::config::Config;
use super::encode::{Band, Encoder, Scratch};
use super::error::{CheckpointError, Result};
use super::gathered::Gathered;
use super::hook::{Step, StepName};
use super::level::{FileId, Helper, Rotten, Shelves};
use super::memory::Memory;
use super::opening::Found;
use super::schedule::{Stats, UnderWay};
use super::segment::OwnSegment;
use crate::comm::Comm;
use crate::comm::collect::all_reduce;

/// Takes and recovers checkpoints of one rank's regions.
pub struct Checkpointer<C: Comm, M: Memory> {
    pub(super) job: C,
    pub(super) group: C,
    pub(super) config: Config,
    pub(super) code: Codec,
    /// Writes images from the segment; a field before it, so dropped before it.
    pub(super) helper: Helper,
    /// What is known of the images of this rank.
    pub(super) shelves: Shelves,
    /// Sources that this start has found rotten, before it resumed from the present one.
    pub(super) rotten: Vec<Rotten>,
    /// The files of images that this process manages, by level.
    pub(super) seen_files: Vec<Vec<FileId>>,
    pub(super) plan: Plan,
    pub(super) scratch: Scratch,
    /// How this group computes parities.
    pub(super) encoder: Encoder,
    /// Approximate bytes of a message when the group encodes by messages.
    pub(super) message_bytes: usize,
    /// The epoch that is being taken, if any.
    pub(super) under_way: Option<UnderWay<C>>,
    /// Checksums of the other members' data, for the epoch that is being taken.
    pub(super) gathered: Gathered,
    /// Segments of the group's other members, by position in the group; empty unless all are within
    /// reach.
    pub(super) peers: Vec<Option<M::Peer>>,
    /// This rank's segment; the last field, so that the hold on the run is released last.
    pub(super) segment: OwnSegment<M>,
}

impl<C: Comm, M: Memory> Checkpointer<C, M> {
    /// Approximate bytes of a message when this rank's group encodes; 0 if it encodes without
    /// messages.
    pub fn message_bytes(&self) -> usize {
        match self.encoder {
            Encoder::Direct => 0,
            _ => self.message_bytes,
        }
    }

    /// How this rank's group computes parities.
    pub fn encoder(&self) -> Encoder {
        self.encoder
    }

    /// This process's rank in the run.
    pub fn rank(&self) -> usize {
        self.segment.rank()
    }

    /// What this start resumes from.
    pub fn found(&self) -> Found {
        Found::of(&self.plan)
    }

    /// The communicator of all processes, in the order of their ranks in the run.
    pub fn comm(&self) -> &C {
        &self.job
    }

    /// The newest epoch; 0 before the first checkpoint.
    pub fn epoch(&self) -> u64 {
        self.segment.record().committed()
    }

    /// Bytes of this rank's segment.
    pub fn segment_bytes(&self) -> usize {
        self.segment.layout().bytes
    }

    /// The live workspace A of region `region`.
    ///
    /// # Panics
    /// Before [`Checkpointer::recover`].
    pub fn region(&mut self, region: usize) -> &mut [u8] {
        self.segment.region(region)
    }

    /// The address of a region's workspace A and its bytes, valid as long as this checkpointer. It
    /// serves an application that computes while a checkpoint is taken and does not touch the rows
    /// that it has called ready.
    ///
    /// # Panics
    /// Before [`Checkpointer::recover`].
    pub fn region_at(&mut self, region: usize) -> (*mut u8, usize) {
        self.segment.region_at(region)
    }

    /// The live workspaces of all regions, for use at the same time.
    ///
    /// # Panics
    /// Before [`Checkpointer::recover`].
    pub fn regions(&mut self) -> Vec<&mut [u8]> {
        self.segment.regions()
    }
}

/// Parts that several steps share.
impl<C: Comm, M: Memory> Checkpointer<C, M> {
    /// The ranks of the job for which `is_so` holds, in rising order. Collective.
    pub(super) fn ranks_where(&self, is_so: bool) -> Result<Vec<usize>> {
        let mut said = vec![0u8; self.job.size()];
        said[self.job.rank()] = u8::from(is_so);
        all_reduce(&self.job, &mut said, u8::max)?;
        Ok((0..said.len()).filter(|&rank| said[rank] != 0).collect())
    }

    /// Refuses a state or a result that does not fit into the header.
    pub(super) fn check_room(&self, state: &[u8]) -> Result<()> {
        let (bytes, capacity) = (state.len(), self.config.state_capacity_bytes);
        match bytes > capacity {
            true => Err(CheckpointError::StateTooLarge { bytes, capacity }),
            false => Ok(()),
        }
    }

    pub(super) fn band(&mut self, region: usize) -> Band<'_, C, M> {
        let (vault, parts) = self.segment.to_encode(region);
        Band {
            comm: &self.group,
            code: &self.code,
            vault,
            parts,
            message_bytes: self.message_bytes,
            scratch: &mut self.scratch,
            peers: &self.peers,
            gathered: &mut self.gathered,
        }
    }

    /// Waits until all ranks of the job have called it. Collective.
    pub(super) fn barrier(&mut self, epoch: u64, stats: &mut Stats) -> Result<()> {
        self.segment.step(Step::new(StepName::Barrier, epoch))?;
        self.segment.order();
        let start = Instant::now();
        match self.shelves.is_empty() {
            true => self.job.barrier()?,
            false => self.barrier_with_levels()?,
        }
        stats.barrier_seconds = start.elapsed().as_secs_f64();
        Ok(())
    }
}
