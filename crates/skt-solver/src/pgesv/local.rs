//! One rank's part of the system.

use std::marker::PhantomData;
use std::ops::Range;
use std::time::Instant;

use super::background::{BackgroundWork, Token};
use super::final_part::Stretch;
use super::guard::Background;
use super::{Params, panel};
use crate::blas::view::SharedMat;
use crate::blas::{Element, MatRef, copy, transpose};
use crate::grid::{ColumnMap, Cyclic, Grid};
use crate::team::Team;
use crate::tuning::TUNING;

/// Shape of one rank's part of [A|b], or of A, with numbers of type `T`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LocalShape<T = f64> {
    pub rows: usize,
    /// Local columns, with that of b where this rank holds it.
    pub cols: usize,
    /// Numbers from one row to the next, the same on all ranks; whole cache lines.
    pub lda: usize,
    pub max_rows: usize,
    pub(crate) numbers: PhantomData<T>,
}

impl LocalShape {
    /// The shape of [A|b] on process `(myrow, mycol)`.
    pub fn new(n: usize, rows: Cyclic, cols: &ColumnMap, myrow: usize, mycol: usize) -> Self {
        Self::with_columns(n, n + 1, rows, cols, myrow, mycol)
    }
}

impl<T: Element> LocalShape<T> {
    pub fn without_b(n: usize, rows: Cyclic, cols: &ColumnMap, myrow: usize, mycol: usize) -> Self {
        Self::with_columns(n, n, rows, cols, myrow, mycol)
    }

    fn with_columns(
        n: usize,
        columns: usize,
        rows: Cyclic,
        cols: &ColumnMap,
        myrow: usize,
        mycol: usize,
    ) -> Self {
        let max_cols = T::doubles(cols.max_count_before(columns));
        Self {
            rows: rows.count_before(n, myrow),
            cols: cols.count_before(columns, mycol),
            lda: panel::leading_dimension(max_cols) * T::PER_DOUBLE,
            // Process row 0 has the most rows.
            max_rows: rows.count_before(n, 0),
            numbers: PhantomData,
        }
    }

    /// Doubles in the memory of this rank's part; at most `usize::MAX`.
    pub fn doubles(&self) -> usize {
        self.rows.saturating_mul(self.lda / T::PER_DOUBLE)
    }
}

pub struct Local<'m, T = f64> {
    pub grid: &'m Grid,
    pub team: &'m Team,
    pub params: Params,
    /// The part of [A|b], row by row.
    pub a: &'m SharedMat<'m, T>,
    pub rows: Cyclic,
    pub cols: ColumnMap,
    pub shape: LocalShape<T>,
}

impl<T: Element> Local<'_, T> {
    /// Seconds since `start` on the clock of the ranks.
    pub(crate) fn seconds_since(&self, start: Instant) -> f64 {
        (self.grid.all.now() - start).as_secs_f64()
    }

    pub fn owns(&self, k: usize) -> bool {
        self.cols.block_owner(k) == self.grid.mycol
    }

    /// Local columns of panels `panels`, without b; empty on a rank of checksums.
    pub(crate) fn columns_of(&self, panels: Range<usize>) -> Range<usize> {
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
            (self.cols.block_index(k) * self.params.nb).min(self.shape.cols)
        } else {
            self.columns_of(0..k + 1).end
        };
        first..self.shape.cols
    }

    pub(super) fn background_work<'b>(
        &self,
        background: &'b mut dyn Background,
        end: usize,
    ) -> BackgroundWork<'b> {
        let Self { grid, params: Params { n, nb, .. }, rows, .. } = *self;
        let (myrow, mycol) = (grid.myrow, grid.layout_col());
        let stretch = Stretch { n, nb, rows, cols: self.cols.clone(), myrow, mycol, end };
        BackgroundWork { background, stretch, helper_cpu: self.team.helper_cpu() }
    }

    /// Releases the token with P = 1, before calls that communicate only within the process column:
    /// this rank is all of it.
    pub(super) fn release_if_alone(&self, token: &mut Token) {
        if self.grid.p == 1 {
            token.release();
        }
    }

    /// Writes L1 and U1 of panel `k`, which is being applied, into its columns, where the back
    /// substitution reads U1. This must not happen earlier: while the panel is in the look-ahead, a
    /// checkpoint needs its columns as they are.
    pub(crate) fn store_diagonal(&self, k: usize, l1: MatRef<T>) {
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

    /// Writes L2 of panel `k`, which is being applied, into its columns: for solutions with L.
    pub(crate) fn store_l2(&self, k: usize, l2: MatRef<T>) {
        if !self.owns(k) {
            return;
        }
        let (cols, below) = (self.columns_of(k..k + 1), self.layout(k).below);
        self.team.split(l2.rows(), TUNING.panel_copy_grain_rows, |part| {
            let rows = below + part.start..below + part.end;
            // SAFETY: the solver alone is on these columns, and the team's parts do not overlap.
            let stored = unsafe { self.a.block(rows, cols.clone()) };
            copy(l2.block(part, 0..cols.len()), stored);
        });
    }

    pub fn layout(&self, k: usize) -> panel::Layout<T> {
        panel::Layout::new(k, (self.params.n, self.params.nb), self.rows, self.grid.myrow)
    }
}
