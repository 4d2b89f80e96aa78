//! Method `abft`: the application's data carries checksums of its own, and nothing is
//! copied. The records keep what goes around it: who has which rank, which start came last,
//! the application's state, and the result.

use std::time::Instant;

use super::checkpointer::Checkpointer;
use super::code::Code;
use super::error::Result;
use super::hook::{Step, StepName};
use super::memory::Memory;
use super::recover::Recovered;
use super::schedule::Stats;
use crate::comm::Comm;
use crate::comm::collect::broadcast_bytes;

impl<C: Comm, M: Memory, K: Code + Clone> Checkpointer<C, M, K> {
    /// What survives is as it was left, and new segments stand for what is lost, all zeros: the
    /// application rebuilds them.
    pub(super) fn recover_abft(&mut self) -> Recovered {
        let start = Instant::now();
        self.ready = true;
        Recovered {
            epoch: self.plan.epoch,
            state: self.record.state().to_vec(),
            rebuilt: self.plan.lost.clone(),
            rebuilt_bytes: 0,
            copied_bytes: 0,
            loaded_bytes: 0,
            mended_cells: 0,
            seconds: start.elapsed().as_secs_f64(),
        }
    }

    /// `state` counts on all ranks from when all have come here. The data is what it is.
    pub(super) fn take_abft(&mut self, state: &[u8]) -> Result<Stats> {
        self.record.assert_settled();
        let epoch = self.record.stamped() + 1;
        let (mut state, mut stats) = (state.to_vec(), Stats { epoch, ..Stats::default() });
        self.vault.step(Step::new(StepName::Checkpoint, epoch))?;
        broadcast_bytes(&self.job, &mut state, 0)?;
        self.barrier(epoch, &mut stats)?;
        self.record.commit(epoch, state);
        self.record.stamp(epoch);
        self.write_record(Step::new(StepName::Commit, epoch))?;
        Ok(stats)
    }
}
