//! Who keeps the matrix, and keeps it safe: all that the solver knows of
//! checkpoints.

use std::time::Instant;

use super::SolveError;
use crate::comm::PanelBuf;

/// Keeps one rank's matrix, and decides where the factorization is cut.
pub trait Guard {
    /// The rank's memory: at least as many doubles as its part of [A|b] has.
    fn matrix(&mut self) -> &mut [f64];

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
    start: Instant,
}

impl Unguarded {
    /// Memory of `doubles` zeros.
    ///
    /// # Errors
    /// When the system has no such memory.
    pub fn new(doubles: usize) -> std::io::Result<Self> {
        Ok(Self { memory: PanelBuf::new(doubles)?, start: Instant::now() })
    }
}

impl Guard for Unguarded {
    fn matrix(&mut self) -> &mut [f64] {
        &mut self.memory
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
