//! Method `self`: the parities of the epoch before, where they still hold.

use std::ops::Range;
use std::time::Instant;

use super::OwnSegment;
use crate::checkpoint::error::Result;
use crate::checkpoint::hook::{Step, StepName};

use crate::checkpoint::schedule::Stats;
use skt_store::layout::{Active, Area};

impl<'n> OwnSegment<'n> {
    /// Prepares the parities of `epoch`, which replace those of epoch - 2 in their set. The two
    /// sets differ only where A was active at epoch - 1. What is active again is encoded again; the
    /// rest of that part, which froze in between, is copied here, and so are all checksums.
    pub(crate) fn carry(&mut self, epoch: u64, active: &[Active], stats: &mut Stats) -> Result<()> {
        let start = Instant::now();
        for (region, &now) in active.iter().enumerate() {
            self.carry_sums(region, epoch)?;
            let before = self.last_active[region];
            let stripes = self.layout.regions[region].stripes;
            let encoded = stripes.bands_from(now.row);
            for band in stripes.bands_from(before.row) {
                let end = if encoded.contains(&band) { now.byte } else { usize::MAX };
                let step = Step::new(StepName::Carry, epoch).band(region, band);
                self.carry_band(region, band, before.byte..end, step)?;
            }
        }
        stats.copy_seconds += start.elapsed().as_secs_f64();
        Ok(())
    }

    /// `bytes` of each row of one band's parities, from the set of the epoch before.
    fn carry_band(
        &mut self,
        region: usize,
        band: usize,
        bytes: Range<usize>,
        step: Step,
    ) -> Result<()> {
        let method = self.method;
        let areas = &self.layout.regions[region];
        let (_, old) = method.settled(step.epoch - 1);
        let (from, to) = (areas.parity[old], areas.parity[method.encoded(step.epoch)]);
        let rows = areas.stripes.parities(band);
        let bytes = bytes.start..bytes.end.min(from.pitch_bytes);
        if bytes.is_empty() {
            return Ok(());
        }
        self.vault.step(step)?;
        self.copy_rows(from, to, rows, bytes, step)
    }

    /// Asserts that A equals its copy outside of `active`.
    pub(crate) fn assert_frozen(&self, active: &[Active]) {
        let (copy, _) = self.method.settled(self.record.stamped());
        for (index, (areas, active)) in self.layout.regions.iter().zip(active).enumerate() {
            if let Some(row) =
                self.first_difference(areas.a, areas.b[copy], active.row, active.byte)
            {
                panic!("row {row} of region {index} has changed outside of {active:?}");
            }
        }
    }

    /// The new parities equal those of the epoch before outside of what was encoded.
    pub(crate) fn assert_carried(&self, active: &[Active]) {
        for (index, (areas, active)) in self.layout.regions.iter().zip(active).enumerate() {
            let bands = areas.stripes.bands_from(active.row);
            let first = if bands.is_empty() {
                areas.stripes.parity_rows()
            } else {
                areas.stripes.parities(bands.start).start
            };
            let [one, two] = areas.parity[..] else { unreachable!("method self has two sets") };
            if let Some(row) = self.first_difference(one, two, first, active.byte) {
                panic!("parity row {row} of region {index} has thawed outside of {active:?}");
            }
        }
    }

    /// The first row in which the areas differ, compared whole before `row` and up to `byte` after.
    fn first_difference(&self, one: Area, two: Area, row: usize, byte: usize) -> Option<usize> {
        let pitch = one.pitch_bytes;
        (0..one.rows).find(|&r| {
            let kept = 0..if r < row { pitch } else { byte.min(pitch) };
            self.vault.bytes(one.at(r, kept.clone())) != self.vault.bytes(two.at(r, kept))
        })
    }
}
