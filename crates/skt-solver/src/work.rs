//! Reports the work of a process's threads to a listener: a simulated machine accounts time for
//! it, and a supervisor sees progress within a long step.
//!
//! Copies of rows are not reported.

use std::sync::OnceLock;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// `A2 -= L2 U` on `rows x cols` with `k` columns of L2, in one BLAS call.
    Product {
        /// Rows of A2.
        rows: usize,
        cols: usize,
        k: usize,
    },
    /// `U = L1^-1 A1`.
    Solve {
        /// Rows of U.
        k: usize,
        cols: usize,
    },
    /// The factorization of a panel.
    Panel {
        /// Rows of this rank below the panel's diagonal block.
        rows: usize,
        jb: usize,
        p: usize,
    },
    /// A read of the matrix by the back substitution.
    Read {
        /// Entries of the matrix.
        entries: usize,
    },
    /// A product of a vector with a matrix whose entries are computed again.
    Generate {
        /// Entries of the matrix.
        entries: usize,
    },
}

#[derive(Debug, Clone, Copy, Default)]
pub struct WorkListener {
    pub begins: Option<fn(Work)>,
    /// Called by each thread after a piece of a step: some rows of a product or of the matrix.
    pub piece_done: Option<fn()>,
}

static LISTENER: OnceLock<WorkListener> = OnceLock::new();

/// Sets the listener of this process. The first one stays.
pub fn listen(listener: WorkListener) {
    LISTENER.get_or_init(|| listener);
}

pub fn begins(work: Work) {
    if let Some(WorkListener { begins: Some(begins), .. }) = LISTENER.get() {
        begins(work);
    }
}

pub(crate) fn piece_done() {
    if let Some(WorkListener { piece_done: Some(piece_done), .. }) = LISTENER.get() {
        piece_done();
    }
}
