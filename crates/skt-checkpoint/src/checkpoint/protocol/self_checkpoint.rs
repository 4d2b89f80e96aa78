//! Method `self`: self-checkpoint (Tang et al., TPDS 2018, section 4), with one line per step. The
//! workspace with its new parities, (A, D), is a checkpoint while its copy B is overwritten.
//!
//! The numbers are those of docs/protocol.md, "Taking epoch e+1", which explains what may be lost
//! between any two lines, and why.

use std::time::Instant;

use super::checkpointer::Checkpointer;
use crate::checkpoint::error::Result;
use crate::checkpoint::hook::{Step, StepName};

use crate::checkpoint::schedule::{EncodingSchedule, Stats};
use skt_store::layout::Active;

impl<'n> Checkpointer<'n> {
    pub(super) fn begin_self(
        &mut self,
        epoch: u64,
        active: &[Active],
        stages: Option<&[Vec<Active>]>,
        stats: &mut Stats,
    ) -> Result<EncodingSchedule> {
        // 2 carry: D := C where the last epoch was active and this one is not.
        self.segment.carry(epoch, active, stats)?;

        // 3 encode: starts D := parities of A, for what is final.
        let start = Instant::now();
        let schedule = self.encoding.start(&self.segment, epoch, active, stages)?;
        stats.encode_seconds += start.elapsed().as_secs_f64();
        Ok(schedule)
    }

    /// D is complete on this rank since `start`. Commits the epoch, and copies A to B.
    pub(super) fn checkpoint_self(
        &mut self,
        epoch: u64,
        active: &[Active],
        state: Vec<u8>,
        start: Instant,
        stats: &mut Stats,
    ) -> Result<()> {
        // 4 barrier: every D of every group is complete.
        self.barrier(epoch, stats)?;
        stats.agree_seconds = start.elapsed().as_secs_f64();

        // 5 commit: COMMIT(epoch). The epoch is valid for the whole job once the first rank has
        // written this record: a recovery that finds it on one rank uses the epoch on all, from
        // (A, D). If only lost ranks have written it, the epoch before is still whole in (B, C).
        self.segment.commit(epoch, state, stats)?;

        // 6 flush: B := A, once no image is being written from B.
        let free = self.images.take_back(&*self.segment.vault.hook());
        let step = Step::new(StepName::Flush, epoch);
        stats.flush_seconds += self.segment.copy_all(step, active, free)?;

        // 7 stamp: the two sets of parities change names, and a recovery reads (B, C).
        self.segment.stamp(epoch, stats)
    }
}
