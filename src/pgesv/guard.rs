//! Who keeps the matrix, and keeps it safe: all that the solver knows of
//! checkpoints.

use std::time::Instant;

use super::{LocalShape, SolveError};
use crate::blas::MatMut;
use crate::blas::view::SharedMat;
use crate::comm::PanelBuf;

/// What goes on beside the factorization: a checkpoint that is being taken.
///
/// # Safety
/// The solver may call it from another thread than that which has lent the matrix,
/// while that one computes and uses its team: the implementation must not touch
/// what is bound to a thread. There is one call at a time, and none while another
/// thread of the rank speaks to other ranks.
pub unsafe trait Beside {
    /// Whether anything goes on.
    fn goes_on(&self) -> bool;

    /// Local rows before `rows` (`usize::MAX`: all) have come to what they are at
    /// the next cut. A good time to move messages, too: never waits.
    ///
    /// # Safety
    /// Nobody writes to these rows before that cut.
    ///
    /// # Errors
    /// When a rank is lost.
    unsafe fn rows_are_final(&mut self, rows: usize) -> Result<(), SolveError>;

    /// The solver has stood still for so long, for such calls of another thread to
    /// end.
    fn kept_waiting(&mut self, seconds: f64);
}

/// Nothing goes on.
pub struct Nothing;

// SAFETY: touches nothing.
unsafe impl Beside for Nothing {
    fn goes_on(&self) -> bool {
        false
    }

    unsafe fn rows_are_final(&mut self, _: usize) -> Result<(), SolveError> {
        Ok(())
    }

    fn kept_waiting(&mut self, _: f64) {}
}

/// Keeps one rank's matrix, and decides where the factorization is cut.
pub trait Guard {
    /// The rank's memory: at least as many doubles as its part of [A|b] has.
    fn matrix(&mut self) -> &mut [f64];

    /// The rank's part of [A|b], of shape `shape`, to be factored up to the next
    /// cut, and who is to be told of it.
    fn lend(&mut self, shape: LocalShape) -> (SharedMat<'_>, &mut dyn Beside);

    /// The timed part begins. Returns the panel to go on from: 0, or after a
    /// restart the one before which the last checkpoint was taken.
    fn start(&mut self) -> usize;

    /// The factorization stands cut before panel `next`; `panels` of them if it
    /// is complete. Takes a checkpoint where one is due. Returns the panel
    /// before which to cut next. Collective; the same on all ranks.
    ///
    /// # Errors
    /// When a rank is lost, or the checkpoint cannot be taken.
    fn cut(&mut self, next: usize, panels: usize) -> Result<usize, SolveError>;

    /// Seconds since the timed part began first: all restarts and what was
    /// between them included.
    fn seconds(&self) -> f64;
}

/// No checkpoints: plain memory, one cut at the end.
pub struct Unguarded {
    memory: PanelBuf,
    beside: Nothing,
    start: Instant,
}

impl Unguarded {
    /// Memory of `doubles` zeros.
    ///
    /// # Errors
    /// When the system has no such memory.
    pub fn new(doubles: usize) -> std::io::Result<Self> {
        Ok(Self { memory: PanelBuf::new(doubles)?, beside: Nothing, start: Instant::now() })
    }
}

impl Guard for Unguarded {
    fn matrix(&mut self) -> &mut [f64] {
        &mut self.memory
    }

    fn lend(&mut self, shape: LocalShape) -> (SharedMat<'_>, &mut dyn Beside) {
        let LocalShape { rows, cols, lda, .. } = shape;
        (MatMut::row_major(&mut self.memory, rows, cols, lda).share(), &mut self.beside)
    }

    fn start(&mut self) -> usize {
        self.start = Instant::now();
        0
    }

    fn cut(&mut self, _: usize, panels: usize) -> Result<usize, SolveError> {
        Ok(panels)
    }

    fn seconds(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }
}
