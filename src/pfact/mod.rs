//! Factorization of one panel: `jb` columns below the diagonal, shared by the
//! `P` ranks of one process column (HPL_pdfact).
//!
//! The panel W lies column by column. Its first `jb` rows are the same on all
//! ranks: row `j` there is the j-th pivot row, so that they end as the unit
//! lower triangle L1 and the upper triangle U1. On the *diagonal* rank (the one
//! that holds the diagonal block) these rows start as the block itself; on the
//! others they start empty. Below them lie the rank's own rows of L2.
//!
//! ```text
//!            jb
//!        +--------+            the active rows, when j pivots are done:
//!   jb   | L1\U1  |              diagonal rank   j.. of W
//!        +--------+              other ranks     jb.. of W
//!        |   L2   |
//!        +--------+
//! ```
//!
//! `recursive` cuts the panel into NDIV parts until NBMIN columns are left,
//! which `unblocked` factors one by one. [`pivot`] finds and exchanges pivots.

pub mod kernels;
pub mod pivot;
mod recursive;
mod unblocked;

use crate::blas::MatMut;
use crate::comm::{Comm, CommError};
use crate::config::Fact;
use crate::grid::Cyclic;
use crate::team::Team;

/// How to factor a panel.
#[derive(Debug, Clone, Copy)]
pub struct Variant {
    /// Inside of the recursion.
    pub pfact: Fact,
    /// The recursion.
    pub rfact: Fact,
    /// The recursion ends at this many columns.
    pub nbmin: usize,
    /// Parts a level of the recursion makes.
    pub ndiv: usize,
}

/// Why a panel could not be factored.
#[derive(Debug, Clone, PartialEq)]
pub enum PfactError {
    /// No usable pivot: zero, infinite, or not a number.
    Pivot {
        /// Column of the panel, from 0.
        column: usize,
        /// What was found.
        value: f64,
    },
    /// A rank could not be reached.
    Comm(CommError),
}

impl From<CommError> for PfactError {
    fn from(error: CommError) -> Self {
        Self::Comm(error)
    }
}

/// Where this rank's rows of the panel belong in the matrix.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// Global index of the panel's first column, and of its first row.
    pub j: usize,
    /// How rows are dealt out.
    pub rows: Cyclic,
    /// This rank's process row.
    pub myrow: usize,
    /// Local row of the first row below the diagonal block.
    pub first_below: usize,
}

/// A panel under factorization on one rank.
pub struct Panel<'a, C: Comm> {
    /// `(jb + rows below) x jb`, column-major.
    pub w: MatMut<'a>,
    /// Global pivot row of each column, as doubles (exact below 2^53).
    pub ipiv: &'a mut [f64],
    /// Where the rows belong.
    pub place: Place,
    /// The ranks of the process column.
    pub col: &'a C,
    /// Threads that may help.
    pub team: &'a Team,
    /// Room for pivot exchanges, see [`pivot::Room`].
    pub room: &'a mut pivot::Room,
}

impl<C: Comm> Panel<'_, C> {
    fn jb(&self) -> usize {
        self.w.cols()
    }

    fn is_diagonal(&self) -> bool {
        self.place.rows.owner(self.place.j) == self.place.myrow
    }

    /// First active row of W when `done` pivots are done.
    fn active(&self, done: usize) -> usize {
        if self.is_diagonal() { done } else { self.jb() }
    }

    /// Global row of row `i` of W, for an active row.
    fn global_row(&self, i: usize) -> usize {
        let place = &self.place;
        if i < self.jb() {
            place.j + i
        } else {
            place.rows.global(place.first_below + i - self.jb(), place.myrow)
        }
    }
}

/// Factors the panel: `P W = L U`, pivots in `ipiv`. Collective over the process
/// column; all ranks return the same [`PfactError::Pivot`].
///
/// # Errors
/// When a column has no usable pivot, at once, or a rank is lost.
pub fn factor<C: Comm>(panel: &mut Panel<C>, variant: &Variant) -> Result<(), PfactError> {
    let jb = panel.jb();
    if jb > 0 { recursive::factor(panel, variant, 0..jb) } else { Ok(()) }
}
