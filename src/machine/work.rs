//! What a thread computes for the solver, told to an observer that the caller gives: a simulated
//! machine, for instance, charges time for it.
//!
//! Copies of rows are not told.

use std::cell::Cell;

/// A piece of the solver's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// `A2 -= L2 U` on `rows x cols` with `k` columns of L2, in one BLAS call.
    Product {
        /// Rows of A2.
        rows: usize,
        /// Columns of A2.
        cols: usize,
        /// Columns of L2.
        k: usize,
    },
    /// `U = L1^-1 A1`.
    Solve {
        /// Rows of U.
        k: usize,
        /// Columns of U.
        cols: usize,
    },
    /// The factorization of a panel.
    Panel {
        /// Rows of this rank below the panel's diagonal block.
        rows: usize,
        /// Columns of the panel.
        jb: usize,
        /// Process rows.
        p: usize,
    },
    /// A read of the matrix by the back substitution.
    Read {
        /// Entries of the matrix.
        entries: usize,
    },
}

/// Called with each piece of work, just before a thread does it.
pub type Observer = fn(Work);

thread_local!(static OBSERVER: Cell<Option<Observer>> = const { Cell::new(None) });

/// Tells `observer` of all work of this thread from now on.
pub fn observe(observer: Observer) {
    OBSERVER.set(Some(observer));
}

/// Tells this thread's observer, if it has one, of a piece of work.
pub(crate) fn tell(work: Work) {
    if let Some(observer) = OBSERVER.get() {
        observer(work);
    }
}
