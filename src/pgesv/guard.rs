//! Who keeps the matrix, and keeps it safe: all that the solver knows of
//! checkpoints.

use std::time::Instant;

use super::{LocalShape, SolveError};
use crate::blas::MatMut;
use crate::blas::view::SharedMat;
use crate::comm::PanelBuf;

/// What of a rank's matrix has come to what it is at the next cut: local rows before
/// `rows`, and in all rows local columns before `cols`. `usize::MAX`: all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Final {
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub cols: usize,
}

/// What is left to do beside the factorization.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// Nothing before more is final, or others say something.
    Nothing,
    /// To look after messages that are on their way.
    Messages,
    /// More, at once.
    Work,
}

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

    /// Does a little of it. `done` is final. Never waits.
    ///
    /// # Safety
    /// Nobody writes to what is final before the cut.
    ///
    /// # Errors
    /// When a rank is lost.
    unsafe fn look_after(&mut self, done: Final) -> Result<Left, SolveError>;

    /// The solver has stood still for so long, for such a call to end.
    fn kept_waiting(&mut self, seconds: f64);
}

/// Nothing goes on.
pub struct Nothing;

// SAFETY: touches nothing.
unsafe impl Beside for Nothing {
    fn goes_on(&self) -> bool {
        false
    }

    unsafe fn look_after(&mut self, _: Final) -> Result<Left, SolveError> {
        Ok(Left::Nothing)
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
