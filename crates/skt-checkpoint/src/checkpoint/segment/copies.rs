use std::ops::Range;
use std::time::Instant;

use super::OwnSegment;
use crate::checkpoint::error::Result;
use crate::checkpoint::hook::{Step, StepName};
use crate::checkpoint::level::Free;

use crate::checkpoint::methods::Method;
use crate::checkpoint::record::Holds;
use skt_store::layout::{Active, Area};

impl<'n> OwnSegment<'n> {
    /// Copies the active part of A into the copy for the epoch of `step`; the [`Free`] token proves
    /// that no image is being written from it. Returns the seconds that it took. Local.
    pub(crate) fn copy_all(&mut self, step: Step, active: &[Active], _: Free) -> Result<f64> {
        let start = Instant::now();
        for (region, active) in active.iter().enumerate() {
            self.copy_bands(region, *active, step)?;
        }
        Ok(start.elapsed().as_secs_f64())
    }

    /// Copies the active bands of a region from A into the copy for the step's epoch.
    pub(crate) fn copy_bands(&mut self, region: usize, active: Active, step: Step) -> Result<()> {
        let (copy, _) = self.method.settled(step.epoch);
        let areas = &self.layout.regions[region];
        let (a, b, stripes) = (areas.a, areas.b[copy], areas.stripes);
        let bytes = active.byte.min(a.pitch_bytes)..a.pitch_bytes;
        for band in stripes.bands_from(active.row) {
            let step = step.band(region, band);
            self.vault.step(step)?;
            self.copy_rows(a, b, stripes.band(band), bytes.clone(), step)?;
        }
        Ok(())
    }

    /// Of the epoch before, for `epoch`; cells that are encoded get new ones.
    pub(crate) fn carry_sums(&mut self, region: usize, epoch: u64) -> Result<()> {
        let method = self.method;
        let sums = &self.layout.regions[region].sums;
        let (from, to) = (sums[method.encoded(epoch - 1)], sums[method.encoded(epoch)]);
        let all = (0..from.rows, 0..from.pitch_bytes);
        self.copy_rows(from, to, all.0, all.1, Step::new(StepName::Carry, epoch).band(region, 0))
    }

    /// Copies `bytes` of each row of `rows` from one area to the same rows of another.
    pub(crate) fn copy_rows(
        &mut self,
        from: Area,
        to: Area,
        rows: Range<usize>,
        bytes: Range<usize>,
        step: Step,
    ) -> Result<()> {
        let pitch = from.pitch_bytes;
        if rows.is_empty() || bytes.is_empty() {
            return Ok(());
        }
        if bytes == (0..pitch) {
            let start = from.at(rows.start, 0..pitch).start;
            let end = from.at(rows.end - 1, 0..pitch).end;
            self.vault.copy(start..end, to.at(rows.start, 0..pitch).start, step)?;
        } else {
            for row in rows {
                let into = to.at(row, bytes.clone()).start;
                self.vault.copy(from.at(row, bytes.clone()), into, step)?;
            }
        }
        Ok(())
    }

    /// Completes the flush of a rank that is stamped epoch - 1 and has A and D complete at `epoch`:
    /// B := A. Copies all of A, because a rank that has not seen COMMIT does not know what was
    /// active.
    pub(crate) fn finish_flush(&mut self, epoch: u64, holds: Holds) -> Result<()> {
        if holds != Holds::Workspace {
            return Ok(());
        }
        for region in 0..self.layout.regions.len() {
            let step = Step::new(StepName::RecoverFlush, epoch);
            self.copy_bands(region, Active::ALL, step)?;
        }
        self.stamp_flushed(epoch)?;
        Ok(())
    }

    /// A := B and, with method `self`, D := C. A checkpoint that was interrupted may have changed D
    /// also where the next one will neither encode nor carry it.
    pub(crate) fn reset_workspace(&mut self, epoch: u64) -> Result<()> {
        self.record.assert_settled();
        assert_eq!(self.record.stamped(), epoch);
        let (copy, set) = self.method.settled(epoch);
        for region in 0..self.layout.regions.len() {
            let areas = &self.layout.regions[region];
            let (a, b, parity) = (areas.a, areas.b[copy], areas.parity.clone());
            let step = Step::new(StepName::RecoverCopy, epoch).band(region, 0);
            self.vault.step(step)?;
            self.copy_rows(b, a, 0..a.rows, 0..a.pitch_bytes, step)?;
            if self.method == Method::SelfCheckpoint {
                let (from, to) = (parity[set], parity[1 - set]);
                let bytes = 0..from.pitch_bytes;
                self.copy_rows(from, to, 0..from.rows, bytes, step)?;
            }
        }
        Ok(())
    }
}
