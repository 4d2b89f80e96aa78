//! A panel as it travels: one message with all that other ranks need of it.
//!
//! ```text
//! head (8) | ipiv (jb, padded) | W, column by column (ld x jb)
//! ```
//!
//! The owner factors W in place in the message, and the others read L1 and L2
//! from it: nothing is packed or unpacked.

use std::ops::Range;

use super::SolveError;
use crate::blas::MatRef;
use crate::comm::panel_bcast::PanelBcast;
use crate::comm::{Comm, PanelBuf};
use crate::grid::{Cyclic, Grid};

/// Doubles of a cache line: parts of the message begin on one.
const LINE: usize = 8;

/// Head of the message: 0 if all is well, else the panel broke.
const BROKE: usize = 0;
/// Global column at which it broke.
const BROKE_COLUMN: usize = 1;
/// The pivot found there.
const BROKE_PIVOT: usize = 2;

/// Which panel, and how it lies on one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Global index of its first column and row.
    pub j: usize,
    /// Columns.
    pub jb: usize,
    /// Local row of the first row of the diagonal block or, elsewhere, below it.
    pub top: usize,
    /// Local row of the first row below the diagonal block.
    pub below: usize,
    /// This rank's rows below the diagonal block.
    pub rows_below: usize,
    /// Doubles from one column of W to the next.
    ld: usize,
}

impl Layout {
    /// Panel `k` of a matrix of order `n` on process row `myrow`.
    pub fn new(k: usize, n: usize, rows: Cyclic, myrow: usize) -> Self {
        let j = k * rows.nb;
        let jb = rows.nb.min(n - j);
        let top = rows.count_before(j, myrow);
        let below = rows.count_before(j + jb, myrow);
        let rows_below = rows.count_before(n, myrow) - below;
        Self { j, jb, top, below, rows_below, ld: leading_dimension(jb + rows_below) }
    }

    /// Doubles of the message.
    pub fn doubles(&self) -> usize {
        self.w_start() + self.ld * self.jb
    }

    /// Rows of W.
    pub fn w_rows(&self) -> usize {
        self.jb + self.rows_below
    }

    /// Whether this rank holds the diagonal block.
    pub fn is_diagonal(&self) -> bool {
        self.below > self.top
    }

    fn w_start(&self) -> usize {
        LINE + self.jb.next_multiple_of(LINE)
    }

    /// Head, pivots and W of a message to be made.
    pub fn parts<'a>(&self, data: &'a mut [f64]) -> (&'a mut [f64], &'a mut [f64], MatMutW<'a>) {
        let (head, rest) = data[..self.doubles()].split_at_mut(LINE);
        let (ipiv, w) = rest.split_at_mut(self.w_start() - LINE);
        let w = crate::blas::MatMut::col_major(w, self.w_rows(), self.jb, self.ld);
        (head, &mut ipiv[..self.jb], w)
    }

    /// Pivots: the global row exchanged with each row of the diagonal block.
    pub fn ipiv<'a>(&self, data: &'a [f64]) -> &'a [f64] {
        &data[LINE..LINE + self.jb]
    }

    fn w<'a>(&self, data: &'a [f64]) -> MatRef<'a> {
        MatRef::col_major(&data[self.w_start()..], self.w_rows(), self.jb, self.ld)
    }

    /// The unit lower triangle of the diagonal block (with U1 above it).
    pub fn l1<'a>(&self, data: &'a [f64]) -> MatRef<'a> {
        self.w(data).block(0..self.jb, 0..self.jb)
    }

    /// This rank's rows of L below the diagonal block.
    pub fn l2<'a>(&self, data: &'a [f64]) -> MatRef<'a> {
        self.w(data).block(self.jb..self.w_rows(), 0..self.jb)
    }
}

type MatMutW<'a> = crate::blas::MatMut<'a>;

/// Marks a message as that of a panel that could not be factored.
pub fn mark_broken(head: &mut [f64], column: usize, pivot: f64) {
    head[BROKE] = 1.0;
    head[BROKE_COLUMN] = column as f64;
    head[BROKE_PIVOT] = pivot;
}

/// Marks a message as sound.
pub fn mark_sound(head: &mut [f64]) {
    head[BROKE] = 0.0;
}

/// Doubles of the largest panel message of a matrix: that of the first panel.
pub fn longest_message(n: usize, rows: Cyclic, myrow: usize) -> usize {
    if n == 0 {
        LINE
    } else {
        Layout::new(0, n, rows, myrow).doubles().max(worst_len(n, rows, myrow))
    }
}

/// The first panel has most rows below it, but the diagonal rank has `nb` fewer;
/// the next panel may be the longest there.
fn worst_len(n: usize, rows: Cyclic, myrow: usize) -> usize {
    if n > rows.nb { Layout::new(1, n, rows, myrow).doubles() } else { 0 }
}

/// A multiple of a cache line that is not a multiple of a page: columns that lie
/// whole pages apart would share few cache sets.
pub fn leading_dimension(doubles: usize) -> usize {
    let ld = doubles.next_multiple_of(LINE).max(LINE);
    if ld.is_multiple_of(512) { ld + LINE } else { ld }
}

/// A panel on its way along the process row, or arrived.
pub struct Flight<C: Comm> {
    /// Its number: column over NB.
    pub k: usize,
    /// How it lies on this rank.
    pub layout: Layout,
    bcast: PanelBcast<C>,
}

impl<C: Comm> Flight<C> {
    /// Starts to broadcast panel `k`; on its owner `buf` holds the message.
    pub fn start(
        grid: &Grid<C>,
        topology: crate::config::Bcast,
        k: usize,
        layout: Layout,
        buf: PanelBuf,
    ) -> Result<Self, SolveError> {
        let bcast = PanelBcast::start(&grid.row, topology, k % grid.q, buf, layout.doubles())?;
        Ok(Self { k, layout, bcast })
    }

    /// Passes on what has arrived; never waits.
    pub fn progress(&mut self, grid: &Grid<C>) -> Result<(), SolveError> {
        Ok(self.bcast.progress(&grid.row)?)
    }

    /// Waits for the panel.
    ///
    /// # Errors
    /// On all ranks alike when it could not be factored.
    pub fn finish(&mut self, grid: &Grid<C>) -> Result<(), SolveError> {
        self.bcast.finish(&grid.row)?;
        let head = &self.bcast.data()[..LINE];
        if head[BROKE] != 0.0 {
            let column = head[BROKE_COLUMN] as usize;
            return Err(SolveError::Pivot { column, value: head[BROKE_PIVOT] });
        }
        Ok(())
    }

    /// The message.
    ///
    /// # Panics
    /// Before [`Self::finish`].
    pub fn data(&self) -> &[f64] {
        self.bcast.data()
    }

    /// Gives the buffer back once it has been passed on.
    pub fn land(self) -> Result<PanelBuf, SolveError> {
        Ok(self.bcast.reclaim()?)
    }

    /// Global columns of the panel.
    pub fn columns(&self) -> Range<usize> {
        self.layout.j..self.layout.j + self.layout.jb
    }
}
