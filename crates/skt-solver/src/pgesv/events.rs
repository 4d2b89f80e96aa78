//! What the solver reports to its caller while it solves.

use skt_host::phases::{ChecksumCosts, Phases};

use super::abft::{Beginning, Checked, Flip};
use super::{Rates, SolveError};

/// Callbacks of a solution to its caller, on every rank: its progress, and what only an elimination
/// with checksums has: images of the system, checks, fault injection.
pub trait SolverEvents {
    /// Called with the number of eliminated columns, and with the rates of this rank's products and
    /// the seconds of its phases so far in this start.
    fn columns(&mut self, _: usize, _: &Rates, _: &Phases) -> Result<(), SolveError> {
        Ok(())
    }

    /// Called when a rank with data has generated its part, before it waits for the others: those
    /// with checksums, which generate all process columns' entries, take up to `seconds` more.
    fn generated(&mut self, _seconds: f64) {}

    /// Called when all ranks are at a cut, before they continue from it. Collective.
    fn begins(&mut self, _: &Beginning) -> Result<(), SolveError> {
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
    /// [`image_doubles`](super::abft::image_doubles) of the memory of each rank are to be kept;
    /// nothing writes to them before this returns. `phases` has the seconds of this rank in this
    /// start. Collective.
    fn keep_image(&mut self, _cut: usize, _phases: &Phases) -> Result<(), SolveError> {
        Ok(())
    }

    /// Called when the checksums have replaced a process column, and its finished part of U is
    /// decoded: with the bytes on a rank and the seconds it took, the most of any rank.
    fn decoded(&mut self, _bytes: u64, _seconds: f64) {}

    fn checked(&mut self, _: Checked) {}

    fn back_substitutes(&mut self) {}

    /// Called when this rank has x, before it stores it: with the time of each phase, and the part
    /// of `other` that checksums took.
    fn has_x(&mut self, _: Phases, _: ChecksumCosts) {}
}

pub struct Silent;

impl SolverEvents for Silent {}

impl<F: FnMut(usize, &Rates, &Phases) -> Result<(), SolveError>> SolverEvents for F {
    fn columns(&mut self, done: usize, rates: &Rates, phases: &Phases) -> Result<(), SolveError> {
        self(done, rates, phases)
    }
}
