//! Recovery: survivors finish their own flush, lost ranks are rebuilt from
//! them, and everybody's workspace is set from its copy.
//!
//! Nothing here changes a survivor in a way that a second death could not
//! start over from: a flush reads A and D, which nobody writes before the
//! stamp; the rebuilding reads B and C of survivors, and writes to them where
//! they are damaged, which their checksums say until it is done; a rebuilt rank
//! counts as lost until its record says otherwise.

use std::time::Instant;

use super::code::Code;
use super::hook::{Step, StepName};
use super::layout::Active;
use super::methods::Method;
use super::protocol::{Checkpointer, Memory, Result};
use super::record::Holds;
use crate::comm::Comm;
use crate::comm::collect::all_reduce;

/// What was recovered.
#[derive(Debug, Clone, PartialEq)]
pub struct Recovered {
    /// The epoch that all ranks are at now.
    pub epoch: u64,
    /// The application's state then.
    pub state: Vec<u8>,
    /// Ranks that were rebuilt, of the whole job.
    pub rebuilt: Vec<usize>,
    /// Bytes of B and C that were rebuilt on this rank.
    pub rebuilt_bytes: usize,
    /// Bytes copied on this rank.
    pub copied_bytes: usize,
    /// Damaged cells of the whole job that were rebuilt.
    pub mended_cells: usize,
    /// Seconds on this rank.
    pub seconds: f64,
}

impl<C: Comm, M: Memory, K: Code + Clone> Checkpointer<C, M, K> {
    /// Brings all ranks to the epoch that was agreed on; `None` when there is
    /// none, and the application starts from the beginning. Collective.
    ///
    /// # Errors
    /// When a rank dies meanwhile; a new start of the job begins anew.
    pub fn recover(&mut self) -> Result<Option<Recovered>> {
        let epoch = self.plan.epoch;
        if epoch == 0 {
            return Ok(None);
        }
        let start = Instant::now();
        if self.config.method == Method::Abft {
            self.ready = true;
            return Ok(Some(self.left_to_the_application(start)));
        }
        let lost = self.lost_members();
        assert!(lost.len() <= self.config.parities, "refused when it was decided");
        assert_eq!(self.record.is_hollow(), lost.contains(&self.group.rank()));
        let damaged = self.verify(epoch, &lost)?;
        let mut copied_bytes = 0;
        if self.record.holds(self.config.method, epoch) == Holds::Workspace {
            copied_bytes += self.finish_flush(epoch)?;
        }
        let rebuilt_bytes = self.rebuild(epoch, &lost)?;
        let mut mended = [self.mend(epoch, &damaged, &lost)? as u64];
        if self.record.is_hollow() {
            self.rebuilt(epoch)?;
        }
        copied_bytes += self.reset_workspace(epoch)?;
        all_reduce(&self.job, &mut mended, |a, b| a + b)?;
        self.ready = true;
        Ok(Some(Recovered {
            epoch,
            state: self.record.state().to_vec(),
            rebuilt: self.plan.lost.clone(),
            rebuilt_bytes,
            copied_bytes,
            mended_cells: mended[0] as usize,
            seconds: start.elapsed().as_secs_f64(),
        }))
    }

    /// Method `abft`: what survives is as it was left, and new segments stand for what is
    /// lost, all zeros.
    fn left_to_the_application(&self, start: Instant) -> Recovered {
        Recovered {
            epoch: self.plan.epoch,
            state: self.record.state().to_vec(),
            rebuilt: self.plan.lost.clone(),
            rebuilt_bytes: 0,
            copied_bytes: 0,
            mended_cells: 0,
            seconds: start.elapsed().as_secs_f64(),
        }
    }

    /// Lost members of this rank's group, by their place in it.
    fn lost_members(&self) -> Vec<usize> {
        let ranks = self.group_ranks();
        let is_lost = |member: &usize| self.plan.lost.contains(&ranks[*member]);
        (0..ranks.len()).filter(is_lost).collect()
    }

    /// This rank is at epoch - 1 with A and D complete at `epoch`. All is copied: what
    /// was active is not known where COMMIT was not seen.
    fn finish_flush(&mut self, epoch: u64) -> Result<usize> {
        assert_eq!(self.config.method, Method::SelfCheckpoint);
        let mut copied = 0;
        for region in 0..self.layout.regions.len() {
            let step = Step::new(StepName::RecoverFlush, epoch);
            copied += self.flush_region(region, Active::ALL, step)?;
        }
        self.record.stamp(epoch);
        self.write_record(Step::new(StepName::RecoverStamp, epoch))?;
        Ok(copied)
    }

    /// Rebuilds the settled copy and parities of the group's lost members.
    fn rebuild(&mut self, epoch: u64, lost: &[usize]) -> Result<usize> {
        if lost.is_empty() {
            return Ok(0);
        }
        let settled = self.config.method.settled(epoch);
        let mut written = 0;
        for region in 0..self.layout.regions.len() {
            for band in 0..self.layout.regions[region].stripes.bands() {
                let step = Step::new(StepName::RecoverRebuild, epoch).band(region, band);
                written += self.band(region).rebuild(lost, settled, band, step)?;
            }
        }
        Ok(written)
    }

    /// A replacement has all that its rank had.
    fn rebuilt(&mut self, epoch: u64) -> Result<()> {
        self.record.rebuilt(epoch, &self.plan.state);
        self.write_record(Step::new(StepName::RecoverStamp, epoch))
    }

    /// A := B, and both sets of parities equal: what a checkpoint that was cut
    /// short left in the other one is not what its frozen part must hold.
    fn reset_workspace(&mut self, epoch: u64) -> Result<usize> {
        self.record.assert_settled();
        assert_eq!(self.record.stamped(), epoch);
        let (copy, set) = self.config.method.settled(epoch);
        let mut copied = 0;
        for region in 0..self.layout.regions.len() {
            let parts = &self.layout.regions[region];
            let (a, b, parity) = (parts.a, parts.b[copy], parts.parity.clone());
            let step = Step::new(StepName::RecoverCopy, epoch).band(region, 0);
            self.vault.step(step)?;
            copied += self.copy_rows(b, a, 0..a.rows, 0..a.pitch_bytes, step)?;
            if self.config.method == Method::SelfCheckpoint {
                let (from, to) = (parity[set], parity[1 - set]);
                let bytes = 0..from.pitch_bytes;
                copied += self.copy_rows(from, to, 0..from.rows, bytes, step)?;
            }
        }
        Ok(copied)
    }
}
