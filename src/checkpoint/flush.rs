//! The flush: B becomes what A was at the commit.
//!
//! It may be put off. Behind COMMIT(e) a cell of A (a part of a row) may change
//! as soon as B has it, and a word in the segment says so: `e` there means that
//! B's copy of this cell is of epoch e, any other number that A's is. The word is
//! one store of 8 bytes after the copy and before the change, so it cannot be
//! torn, and as it names the epoch nobody ever has to take it back.

use std::ops::Range;
use std::time::Instant;

use super::code::Code;
use super::hook::Step;
use super::layout::{Active, Cells};
use super::protocol::{Checkpointer, Memory, Result};
use crate::comm::Comm;

/// A commit whose flush is not complete.
pub(super) struct Unsettled {
    epoch: u64,
    active: Vec<Active>,
    done: Flushed,
}

/// What a flush has copied.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Flushed {
    /// Bytes copied from A to B.
    pub bytes: usize,
    /// Seconds it took.
    pub seconds: f64,
}

impl Unsettled {
    pub fn new(epoch: u64, active: Vec<Active>) -> Self {
        Self { epoch, active, done: Flushed::default() }
    }
}

impl<C: Comm, M: Memory, K: Code + Clone> Checkpointer<C, M, K> {
    /// Whether the last epoch is committed and not all of it flushed: what is to
    /// change of a region must be flushed before.
    pub fn is_unsettled(&self) -> bool {
        self.unsettled.is_some()
    }

    /// Brings bytes `bytes` of rows `rows` of a region to safety, so that they may
    /// change in A. Of no effect when [`Checkpointer::settle`] has been called
    /// since the last [`Checkpointer::complete`]. Local.
    ///
    /// # Errors
    /// When a step of it fails: this rank is to die there.
    ///
    /// # Panics
    /// Beyond the region.
    pub fn flush(&mut self, region: usize, rows: Range<usize>, bytes: Range<usize>) -> Result<()> {
        let Some(epoch) = self.unsettled.as_ref().map(|unsettled| unsettled.epoch) else {
            return Ok(());
        };
        let start = Instant::now();
        let (cells, pitch) = self.cells(region);
        assert!(rows.end <= cells.stamps.rows && bytes.end <= pitch, "within the region");
        let touched = cells.touched(&bytes);
        let width = touched.len() * cells.cell_bytes;
        let at_once = (self.vault.chunk_bytes() / width.max(1)).max(1);
        let mut copied = 0;
        for first in rows.clone().step_by(at_once) {
            let rows = first..(first + at_once).min(rows.end);
            let band = first / self.layout.regions[region].stripes.band_rows();
            let step = Step::new("flush", epoch).band(region, band);
            self.vault.step(step)?;
            copied += self.copy_cells(region, rows.clone(), touched.clone(), step)?;
            // No word before all of its cell is in B.
            self.vault.order();
            self.stamp_cells(region, rows, touched.clone(), epoch)?;
        }
        // No change of A before the words that say where the epoch is.
        self.vault.order();
        let done = &mut self.unsettled.as_mut().expect("as above").done;
        done.bytes += copied;
        done.seconds += start.elapsed().as_secs_f64();
        Ok(())
    }

    fn stamp_cells(
        &mut self,
        region: usize,
        rows: Range<usize>,
        touched: Range<usize>,
        epoch: u64,
    ) -> Result<()> {
        let (cells, _) = self.cells(region);
        for row in rows {
            let words = cells.words(row, &touched);
            self.vault.step(Step::new("cells", epoch).row(region, row))?;
            words.step_by(Cells::WORD_BYTES).for_each(|at| self.vault.set_word(at, epoch));
        }
        Ok(())
    }

    /// Flushes all that is not flushed yet, and stamps the epoch: B has it. Of no
    /// effect when there is nothing to flush. Returns what the flush of this epoch
    /// took in all. Local.
    ///
    /// # Errors
    /// As [`Checkpointer::flush`].
    pub fn settle(&mut self) -> Result<Flushed> {
        let Some(Unsettled { epoch, active, mut done }) = self.unsettled.take() else {
            return Ok(Flushed::default());
        };
        let start = Instant::now();
        for (region, active) in active.iter().enumerate() {
            let (cells, pitch) = self.cells(region);
            let touched = cells.touched(&(active.byte.min(pitch)..pitch));
            let stripes = self.layout.regions[region].stripes;
            for band in stripes.bands_from(active.row) {
                let step = Step::new("flush", epoch).band(region, band);
                self.vault.step(step)?;
                done.bytes += self.copy_cells(region, stripes.band(band), touched.clone(), step)?;
            }
        }
        self.record.stamp = epoch;
        self.write_record(Step::new("stamp", epoch))?;
        done.seconds += start.elapsed().as_secs_f64();
        Ok(done)
    }

    fn cells(&self, region: usize) -> (Cells, usize) {
        let parts = &self.layout.regions[region];
        (parts.cells.expect("method self has cells"), parts.a.pitch_bytes)
    }

    /// Copies from A to B what lies in these cells of these rows and is not
    /// stamped with the step's epoch. Returns its bytes.
    pub(super) fn copy_cells(
        &mut self,
        region: usize,
        rows: Range<usize>,
        touched: Range<usize>,
        step: Step,
    ) -> Result<usize> {
        let (cells, pitch) = self.cells(region);
        let parts = &self.layout.regions[region];
        let (a, b) = (parts.a, parts.b[0]);
        // What follows on each other without a gap is copied in one.
        let (mut runs, mut copied) = (Vec::<Range<usize>>::new(), 0);
        for row in rows {
            for cell in touched.clone() {
                let word = cells.words(row, &(cell..cell + 1)).start;
                if self.vault.word(word) == step.epoch {
                    continue;
                }
                let start = cell * cells.cell_bytes;
                let from = a.at(row, start..(start + cells.cell_bytes).min(pitch));
                match runs.last_mut() {
                    Some(run) if run.end == from.start => run.end = from.end,
                    _ => runs.push(from),
                }
            }
        }
        for run in runs {
            copied += run.len();
            self.vault.copy(run.clone(), b.offset + (run.start - a.offset), step)?;
        }
        Ok(copied)
    }
}
