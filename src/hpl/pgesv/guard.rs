//! The owner of the matrix, which keeps it safe: all that the solver knows of
//! checkpoints.

use std::time::Instant;

use super::steps::Final;
use super::{LocalShape, SolveError};
use crate::hpl::comm::PanelBuf;
use crate::machine::blas::MatMut;
use crate::machine::blas::view::SharedMat;

/// What is left to do in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remaining {
    /// Nothing before more is final, or before another rank says something.
    Nothing,
    /// To progress messages that are on their way.
    Messages,
    /// Work that can be done at once.
    Work,
}

/// Work in the background of the factorization: a checkpoint that is being taken.
///
/// # Safety
/// The solver may call [`Background::progress`] on another thread than that which has
/// lent the matrix, while that one computes and uses its team: the implementation must
/// not touch what is bound to a thread. There is one call at a time, and none while
/// another thread of the rank speaks to other ranks.
pub unsafe trait Background {
    /// Whether anything goes on.
    fn is_active(&self) -> bool;

    /// Does a little of it, on what is `done`. Never waits.
    ///
    /// # Errors
    /// When a rank is lost.
    fn progress(&mut self, done: Final) -> Result<Remaining, SolveError>;

    /// The solver has stood still for so long, until a call of `progress` ended.
    fn add_stall(&mut self, seconds: f64);
}

/// Nothing goes on.
pub struct Nothing;

// SAFETY: touches nothing.
unsafe impl Background for Nothing {
    fn is_active(&self) -> bool {
        false
    }

    fn progress(&mut self, _: Final) -> Result<Remaining, SolveError> {
        Ok(Remaining::Nothing)
    }

    fn add_stall(&mut self, _: f64) {}
}

/// Keeps one rank's matrix, and decides where the factorization is cut.
pub trait Guard {
    /// The rank's memory: at least as many doubles as its part of [A|b] has.
    fn matrix(&mut self) -> &mut [f64];

    /// The rank's part of [A|b], of shape `shape`, to be factored up to the next
    /// cut, and what goes on in the background meanwhile.
    fn lend(&mut self, shape: LocalShape) -> (SharedMat<'_>, &mut dyn Background);

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
    background: Nothing,
    start: Instant,
}

impl Unguarded {
    /// Memory of `doubles` zeros.
    ///
    /// # Errors
    /// When the system has no such memory.
    pub fn new(doubles: usize) -> std::io::Result<Self> {
        Ok(Self { memory: PanelBuf::new(doubles)?, background: Nothing, start: Instant::now() })
    }
}

impl Guard for Unguarded {
    fn matrix(&mut self) -> &mut [f64] {
        &mut self.memory
    }

    fn lend(&mut self, shape: LocalShape) -> (SharedMat<'_>, &mut dyn Background) {
        let LocalShape { rows, cols, lda, .. } = shape;
        (MatMut::row_major(&mut self.memory, rows, cols, lda).share(), &mut self.background)
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
