//! One rank's part of the system.

use std::ops::Range;
use std::time::Instant;

use super::Params;
use super::background::{BackgroundWork, Token};
use super::final_part::Stretch;
use super::guard::Background;
use super::panel;
use crate::blas::view::SharedMat;
use crate::blas::{MatRef, transpose};
use crate::comm::Comm;
use crate::grid::{Cyclic, Grid};
use crate::team::Team;

/// Shape of one rank's part of [A|b].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalShape {
    /// Local rows.
    pub rows: usize,
    /// Local columns, with that of b where this rank holds it.
    pub cols: usize,
    /// Doubles from one row to the next, the same on all ranks.
    pub lda: usize,
    /// Rows of the rank with the most rows.
    pub max_rows: usize,
}

impl LocalShape {
    /// The shape on process `(myrow, mycol)`.
    pub fn new(n: usize, rows: Cyclic, cols: Cyclic, myrow: usize, mycol: usize) -> Self {
        // Process 0 has the most rows and columns.
        Self {
            rows: rows.count_before(n, myrow),
            cols: cols.count_before(n + 1, mycol),
            lda: panel::leading_dimension(cols.count_before(n + 1, 0)),
            max_rows: rows.count_before(n, 0),
        }
    }

    /// Doubles of this rank's part; at most `usize::MAX`.
    pub fn doubles(&self) -> usize {
        self.rows.saturating_mul(self.lda)
    }
}

/// One rank's part of the system, and the processes and threads that solve it.
pub(super) struct Local<'m, C: Comm> {
    pub grid: &'m Grid<C>,
    pub team: &'m Team,
    pub params: Params,
    /// The part of [A|b], row by row.
    pub a: &'m SharedMat<'m>,
    pub rows: Cyclic,
    pub cols: Cyclic,
    pub shape: LocalShape,
}

impl<C: Comm> Local<'_, C> {
    /// Seconds since `start` on the clock of the ranks.
    pub fn seconds_since(&self, start: Instant) -> f64 {
        (self.grid.all.now() - start).as_secs_f64()
    }

    /// Whether this process column owns panel `k`.
    pub fn owns(&self, k: usize) -> bool {
        k % self.grid.q == self.grid.mycol
    }

    /// Local columns of panels `panels`, without b; empty on a rank of checksums.
    pub fn columns_of(&self, panels: Range<usize>) -> Range<usize> {
        if self.grid.is_checksum() {
            return 0..0;
        }
        let local =
            |k: usize| self.cols.count_before(self.params.columns_before(k), self.grid.mycol);
        local(panels.start)..local(panels.end)
    }

    /// Local columns right of panel `k`, with that of b where this rank holds it; on a rank of
    /// checksums, the columns from the panel's group on.
    pub fn columns_right_of(&self, k: usize) -> Range<usize> {
        let first = if self.grid.is_checksum() {
            (k / self.grid.q * self.params.nb).min(self.shape.cols)
        } else {
            self.columns_of(0..k + 1).end
        };
        first..self.shape.cols
    }

    /// What runs in the `background` on this rank until the cut before panel `end`.
    pub fn background_work<'b>(
        &self,
        background: &'b mut dyn Background,
        end: usize,
    ) -> BackgroundWork<'b> {
        let Self { grid, params, rows, cols, .. } = *self;
        let Params { n, nb, .. } = params;
        let (myrow, mycol) = (grid.myrow, grid.layout_col());
        let stretch = Stretch { n, nb, rows, cols, myrow, mycol, end };
        BackgroundWork { background, stretch, helper_cpu: self.team.helper_cpu() }
    }

    /// Releases the token with P = 1, before calls that communicate only within the process column:
    /// this rank is all of it.
    pub fn release_if_alone(&self, token: &mut Token) {
        if self.grid.p == 1 {
            token.release();
        }
    }

    /// Writes U1 of panel `k`, which is being applied, into its columns, where the back
    /// substitution reads it. This must not happen earlier: while the panel is in the look-ahead, a
    /// checkpoint needs its columns as they are.
    pub fn store_u1(&self, k: usize, l1: MatRef) {
        if !self.owns(k) {
            return;
        }
        let cols = self.columns_of(k..k + 1);
        let panel::Layout { j, jb, .. } = self.layout(k);
        for (local, row, len) in self.rows.spans(j..j + jb, self.grid.myrow) {
            // SAFETY: the solver's thread alone is on these columns.
            let diagonal = unsafe { self.a.block(local..local + len, cols.clone()) };
            transpose::copy(l1.block(row - j..row - j + len, 0..jb), diagonal);
        }
    }

    /// The layout of panel `k` on this rank.
    pub fn layout(&self, k: usize) -> panel::Layout {
        panel::Layout::new(k, (self.params.n, self.params.nb), self.rows, self.grid.myrow)
    }
}
