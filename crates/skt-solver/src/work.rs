//! Reports the work of a rank's threads to listeners that the caller gives: a simulated machine
//! advances its clock by it, and a supervisor sees that a long step makes progress.
//!
//! Copies of rows are not reported.

use std::cell::Cell;
use std::sync::OnceLock;

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

/// Reports all work of this thread to `observer` from now on.
pub fn observe(observer: Observer) {
    OBSERVER.set(Some(observer));
}

/// Reports a piece of work to this thread's observer, if it has one.
pub(crate) fn report(work: Work) {
    if let Some(observer) = OBSERVER.get() {
        observer(work);
    }
}

/// The listener that [`on_pieces`] has set.
static ON_PIECE: OnceLock<fn()> = OnceLock::new();

/// Calls `listener` from now on whenever a thread of the process has done a piece of a step: some
/// rows of a product or of the matrix. The first listener stays.
pub fn on_pieces(listener: fn()) {
    ON_PIECE.get_or_init(|| listener);
}

/// Notifies the process's listener, if it has one, that a piece of a step is done.
pub(crate) fn piece() {
    if let Some(listener) = ON_PIECE.get() {
        listener();
    }
}
