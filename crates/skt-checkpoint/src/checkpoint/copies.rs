//! Copies between parts of this rank's segment.

use std::ops::Range;
use std::time::Instant;

use super::checkpointer::Checkpointer;
use super::error::Result;
use super::hook::{Step, StepName};
use super::layout::{Active, Part};
use super::level::Free;
use super::memory::Memory;
use super::schedule::Stats;
use crate::comm::Comm;

impl<C: Comm, M: Memory> Checkpointer<C, M> {
    /// Copies the active part of A into the copy for the epoch of `step`; the [`Free`] token proves
    /// that no image is being written from it. Returns the seconds that it took. Local.
    pub(super) fn copy_all(
        &mut self,
        step: Step,
        active: &[Active],
        stats: &mut Stats,
        _: Free,
    ) -> Result<f64> {
        let start = Instant::now();
        for (region, active) in active.iter().enumerate() {
            stats.copied_bytes += self.copy_bands(region, *active, step)?;
        }
        Ok(start.elapsed().as_secs_f64())
    }

    /// Copies the active bands of a region from A into the copy for the step's epoch. Returns the
    /// bytes copied.
    pub(super) fn copy_bands(
        &mut self,
        region: usize,
        active: Active,
        step: Step,
    ) -> Result<usize> {
        let (copy, _) = self.config.method.settled(step.epoch);
        let parts = &self.segment.layout.regions[region];
        let (a, b, stripes) = (parts.a, parts.b[copy], parts.stripes);
        let bytes = active.byte.min(a.pitch_bytes)..a.pitch_bytes;
        let mut copied = 0;
        for band in stripes.bands_from(active.row) {
            let step = step.band(region, band);
            self.segment.vault.step(step)?;
            copied += self.copy_rows(a, b, stripes.band(band), bytes.clone(), step)?;
        }
        Ok(copied)
    }

    /// Starts the checksums of `epoch` as a copy of those of the epoch before; cells that are
    /// encoded get new ones. Returns the bytes copied.
    pub(super) fn carry_sums(&mut self, region: usize, epoch: u64) -> Result<usize> {
        let method = self.config.method;
        let sums = &self.segment.layout.regions[region].sums;
        let (from, to) = (sums[method.encoded(epoch - 1)], sums[method.encoded(epoch)]);
        let all = (0..from.rows, 0..from.pitch_bytes);
        self.copy_rows(from, to, all.0, all.1, Step::new(StepName::Carry, epoch).band(region, 0))
    }

    /// Copies `bytes` of each row of `rows` from one part to the same rows of another. Returns the
    /// bytes copied.
    pub(super) fn copy_rows(
        &mut self,
        from: Part,
        to: Part,
        rows: Range<usize>,
        bytes: Range<usize>,
        step: Step,
    ) -> Result<usize> {
        let pitch = from.pitch_bytes;
        if rows.is_empty() || bytes.is_empty() {
            return Ok(0);
        }
        if bytes == (0..pitch) {
            let start = from.at(rows.start, 0..pitch).start;
            let end = from.at(rows.end - 1, 0..pitch).end;
            self.segment.vault.copy(start..end, to.at(rows.start, 0..pitch).start, step)?;
        } else {
            for row in rows.clone() {
                let into = to.at(row, bytes.clone()).start;
                self.segment.vault.copy(from.at(row, bytes.clone()), into, step)?;
            }
        }
        Ok(rows.len() * bytes.len())
    }
}
