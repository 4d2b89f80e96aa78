//! The owner of the matrix as the solver sees it: all that the solver knows of checkpoints.
//!
//! [`Guard`] is the interface at the cuts, where the solver stands still. [`Background`] is the
//! part of a guard that works between them, while its matrix is lent.

use std::time::Instant;

use skt_host::phases::{EarlierStarts, Phases};

use super::final_part::Final;
use super::{LocalShape, SolveError};
use crate::blas::view::SharedMat;
use crate::blas::{Element, MatMut};
use skt_comm::PageBuf;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remaining {
    /// Nothing, until more is final or another rank sends something.
    Nothing,
    /// Messages in progress, which have to be progressed.
    Messages,
    /// Work that can be done at once.
    Work,
}

/// The part of a [`Guard`] that works in the background of the factorization, on a checkpoint that
/// is being taken. It is a separate trait because only it may run on another thread.
///
/// # Safety
/// The solver may call [`Background::progress`] on another thread than the one that lent the
/// matrix, while that one computes and uses its team: an implementation must not use what is bound
/// to a thread. The solver makes one call at a time, and none while another thread of the rank
/// communicates with other ranks.
pub unsafe trait Background {
    fn is_active(&self) -> bool;

    /// The panel before which the work is to be complete, if that is after the next cut.
    fn end(&self) -> usize {
        0
    }

    /// Does a small part of the work, on the part of the matrix that is `done`. Never waits.
    fn progress(&mut self, done: Final) -> Result<Remaining, SolveError>;

    /// Notes that the solver stood still for `seconds`, until a call of `progress` ended.
    fn add_stall(&mut self, seconds: f64);

    /// Called after each panel, by the thread that lent the matrix.
    fn panel_done(&mut self) {}
}

pub struct Nothing;

// SAFETY: it does nothing.
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
pub trait Guard<T = f64> {
    /// The rank's memory: at least as many numbers as its part of the matrix has.
    fn matrix(&mut self) -> &mut [T];

    /// The rank's part of the matrix, of shape `shape`, to be factored up to the next cut, and the
    /// background work that overlaps with it.
    fn lend(&mut self, shape: LocalShape<T>) -> (SharedMat<'_, T>, &mut dyn Background);

    /// Begins the timed part. Returns the first panel to factor: 0, or after a restart the one
    /// before which the last checkpoint was taken.
    fn start(&mut self) -> usize;

    /// Called at the cut before panel `next`, which is `panels` when the factorization is complete.
    /// Takes a checkpoint if one is due. `phases` has the seconds of this rank in this start.
    /// Returns the panel before which the next cut is, the same on all ranks. Collective.
    fn cut(&mut self, next: usize, panels: usize, phases: &Phases) -> Result<usize, SolveError>;

    /// What the test did before this start.
    fn earlier(&self) -> EarlierStarts {
        EarlierStarts::default()
    }

    /// Seconds since the timed part first began, including all restarts and the time between them.
    fn seconds(&self) -> f64;
}

/// A guard without checkpoints or a limit of time: plain memory, one cut at the end.
pub struct Unguarded {
    memory: PageBuf,
    background: Nothing,
    start: Instant,
}

impl Unguarded {
    /// A guard with `doubles` doubles of memory, all 0 ([`LocalShape::doubles`]).
    pub fn new(doubles: usize) -> std::io::Result<Self> {
        Ok(Self { memory: PageBuf::new(doubles)?, background: Nothing, start: Instant::now() })
    }
}

impl<T: Element> Guard<T> for Unguarded {
    fn matrix(&mut self) -> &mut [T] {
        T::from_doubles_mut(&mut self.memory)
    }

    fn lend(&mut self, shape: LocalShape<T>) -> (SharedMat<'_, T>, &mut dyn Background) {
        let LocalShape { rows, cols, lda, .. } = shape;
        (
            MatMut::row_major(T::from_doubles_mut(&mut self.memory), rows, cols, lda).share(),
            &mut self.background,
        )
    }

    fn start(&mut self) -> usize {
        self.start = Instant::now();
        0
    }

    fn cut(&mut self, _: usize, panels: usize, _: &Phases) -> Result<usize, SolveError> {
        Ok(panels)
    }

    fn seconds(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }
}
