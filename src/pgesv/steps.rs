//! The steps of the factorization, and what part of the matrix each leaves final.

use crate::grid::Cyclic;

/// The part of a rank's matrix that nobody writes to before the next cut: local rows
/// before [`Final::rows`], and in all rows local columns before [`Final::cols`].
///
/// The driver alone makes one, of a step that it has come to: whoever gets one may read
/// that part up to the cut, although the solver is at work on the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Final {
    rows: usize,
    cols: usize,
}

impl Final {
    /// Local rows; `usize::MAX`: all, those included that only other ranks have.
    pub fn rows(self) -> usize {
        self.rows
    }

    /// Local columns.
    pub fn cols(self) -> usize {
        self.cols
    }

    /// The same with the rows before `rows`.
    pub(super) fn with_rows(self, rows: usize) -> Self {
        Self { rows, ..self }
    }
}

/// How far the factorization has come between two cuts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The first panels are factored; none of them has been applied.
    Begun,
    /// DEPTH 0: panel `k` is being factored, and all before it have been applied.
    Factoring {
        /// The panel.
        k: usize,
    },
    /// Panel `k` is being applied: its U1 is in its columns.
    Applying {
        /// The panel.
        k: usize,
    },
    /// Panel `k` is being applied, panel `k` + DEPTH has been advanced, and the first
    /// `rows` local rows of A2 have their product.
    Multiplied {
        /// The panel.
        k: usize,
        /// Rows of A2, from its first on.
        rows: usize,
    },
    /// Panel `k` has been applied.
    Applied {
        /// The panel.
        k: usize,
    },
}

/// The way of one process from a cut to the cut before panel `end`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stretch {
    /// Order of the matrix.
    pub n: usize,
    /// Blocking factor.
    pub nb: usize,
    /// Distribution of the rows.
    pub rows: Cyclic,
    /// Distribution of the columns.
    pub cols: Cyclic,
    /// Process row.
    pub myrow: usize,
    /// Process column.
    pub mycol: usize,
    /// The panel before which the next cut is.
    pub end: usize,
}

impl Stretch {
    /// The part of the local matrix that nobody writes to between `step` and the cut.
    ///
    /// The exchange and the product of a panel write to rows from its first one on, in
    /// columns right of it. So rows above panel `k`, which are U, are final when it is
    /// applied, and so are its columns; in the last panel's step those rows are, too,
    /// that have their product.
    pub fn final_part(&self, step: Step) -> Final {
        let row = |k: usize| self.rows.count_before((k * self.nb).min(self.n), self.myrow);
        let col = |k: usize| self.cols.count_before((k * self.nb).min(self.n), self.mycol);
        match step {
            Step::Begun => Final { rows: 0, cols: 0 },
            Step::Factoring { k } => Final { rows: row(k), cols: col(k) },
            Step::Applied { k } if k + 1 == self.end => {
                Final { rows: usize::MAX, cols: col(k + 1) }
            }
            Step::Applied { k } => Final { rows: row(k + 1), cols: col(k + 1) },
            Step::Multiplied { k, rows } if k + 1 == self.end => {
                let product = row(k + 1) + rows;
                let is_all = product >= self.rows.count_before(self.n, self.myrow);
                Final { rows: if is_all { usize::MAX } else { product }, cols: col(k + 1) }
            }
            Step::Applying { k } | Step::Multiplied { k, .. } => {
                Final { rows: row(k), cols: col(k + 1) }
            }
        }
    }
}
