//! The flush: B becomes what A was at the commit, and the epoch is stamped.

use std::time::Instant;

use super::code::Code;
use super::hook::{Step, StepName};
use super::layout::Active;
use super::protocol::{Checkpointer, Memory, Result, Stats};
use crate::comm::Comm;

impl<C: Comm, M: Memory, K: Code + Clone> Checkpointer<C, M, K> {
    /// Copies what was active from A to B, and stamps the epoch: B has it. Local.
    pub(super) fn flush(&mut self, epoch: u64, active: &[Active], stats: &mut Stats) -> Result<()> {
        let start = Instant::now();
        for (region, active) in active.iter().enumerate() {
            stats.copied_bytes +=
                self.flush_region(region, *active, Step::new(StepName::Flush, epoch))?;
        }
        self.record.stamp(epoch);
        self.write_record(Step::new(StepName::Stamp, epoch))?;
        stats.flush_seconds = start.elapsed().as_secs_f64();
        stats.copy_seconds += stats.flush_seconds;
        Ok(())
    }

    /// Copies the bands of a region from A to B that are active. Returns its bytes.
    pub(super) fn flush_region(
        &mut self,
        region: usize,
        active: Active,
        step: Step,
    ) -> Result<usize> {
        let parts = &self.layout.regions[region];
        let (a, b, stripes) = (parts.a, parts.b[0], parts.stripes);
        let bytes = active.byte.min(a.pitch_bytes)..a.pitch_bytes;
        let mut copied = 0;
        for band in stripes.bands_from(active.row) {
            let step = step.band(region, band);
            self.vault.step(step)?;
            copied += self.copy_rows(a, b, stripes.band(band), bytes.clone(), step)?;
        }
        Ok(copied)
    }
}
