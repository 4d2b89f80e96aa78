//! Callbacks of a solution to its caller: its progress, images of the system, fault injection.

use skt_terms::phases::{ChecksumCosts, Phases};

use super::super::{Rates, SolveError};
use super::check::Checked;

/// Callbacks about the progress of a solution, on every rank.
pub trait Watcher {
    /// Called when a rank with data has generated its part, before it waits for the others. Those
    /// with checksums, which generate the entries of all process columns, are expected to take up
    /// to `seconds` more.
    fn generated(&mut self, _seconds: f64) {}

    /// Called when all ranks are at a cut, before they continue from it. Collective.
    ///
    /// # Errors
    /// When a rank is lost.
    fn begins(&mut self, _: &Beginning) -> Result<(), SolveError> {
        Ok(())
    }

    /// Called with the number of eliminated columns.
    fn columns(&mut self, _: usize) {}

    /// Called before [`Self::columns`] with the rates of this rank's products so far, in this
    /// start.
    ///
    /// # Errors
    /// When a rank is lost.
    fn rates(&mut self, _: &Rates) -> Result<(), SolveError> {
        Ok(())
    }

    /// Fault injection: the element to corrupt and the bit to flip. The element is in this rank's
    /// part of the columns that are not eliminated before panel `cut`.
    fn flip(&mut self, _cut: usize) -> Option<Flip> {
        None
    }

    /// Whether this rank wants the system of the next cut to be kept, in files for instance. If any
    /// rank does, all keep it.
    fn wants_image(&mut self) -> bool {
        false
    }

    /// Called when all ranks are at the cut before panel `cut`, some rank wants it to be kept, and
    /// the checksums do not contradict the matrix (or are never compared). The first
    /// [`super::image_doubles`] of the memory of each rank are to be kept; nothing writes to them
    /// before this returns. Collective.
    ///
    /// # Errors
    /// When a rank is lost.
    fn keep_image(&mut self, _cut: usize) -> Result<(), SolveError> {
        Ok(())
    }

    /// Called when the checksums have replaced a process column, and its finished part of U is
    /// decoded: with the bytes on a rank and the seconds it took, the most of any rank.
    fn decoded(&mut self, _bytes: u64, _seconds: f64) {}

    /// Called when the checksums have been compared with the matrix.
    fn checked(&mut self, _: Checked) {}

    /// Called before the back substitution.
    fn back_substitutes(&mut self) {}

    /// Called when this rank has x, before it stores it: with the time of each phase, and the part
    /// of `other` that checksums took.
    fn has_x(&mut self, _: Phases, _: ChecksumCosts) {}
}

/// A bit of an element that flips.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flip {
    /// The element's row among the rank's rows, and its column from the first one that is not
    /// eliminated; each modulo their number.
    pub place: (usize, usize),
    /// The bit, 0 to 63.
    pub bit: u32,
}

impl<F: FnMut(usize)> Watcher for F {
    fn columns(&mut self, done: usize) {
        self(done);
    }
}

/// Where a start resumes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Beginning {
    /// The panel at which all ranks resume.
    pub panel: usize,
    /// The ranks of the grid that were rebuilt.
    pub rebuilt: Vec<usize>,
    /// The process column that the checksums have replaced, if any.
    pub replaced: Option<usize>,
    /// How many ranks took back what they had computed of that panel.
    pub undone: usize,
    /// Whether x is known already.
    pub is_solved: bool,
    /// The process rows with data that was decoded and could not be checked, in this start or
    /// earlier.
    pub unverified: Vec<Unverified>,
}

/// A process row of which something was decoded while no checksum was left to check with. An error
/// that the other ranks of the row had at that time is in the decoded data, too, and in x.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unverified {
    /// The process row.
    pub row: usize,
    /// The eliminated columns at the first such decoding and at the last.
    pub columns: (usize, usize),
}
