//! A panel as one message, with all that other ranks need of it.
//!
//! ```text
//! head (8) | ipiv (jb, padded) | L1, column by column (ld_message x jb)
//!                              | L2, row by row (rows_below x ld_message)
//! ```
//!
//! The head and the pivots are doubles, whichever numbers the matrix has.
//!
//! Each part is stored as the update reads it: the triangular solve runs down columns of L1, the
//! product along rows of L2. With pivots, the owner factors the panel column by column in the work
//! space W, and then writes L1 and L2 into the message (`pivoted`).

use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use super::SolveError;
use super::slots::{PanelBuffer, Slot};
use crate::blas::{Element, MatMut, MatRef, transpose};
use crate::comm::panel_bcast::PanelBcast;
use crate::grid::{ColumnMap, Cyclic, Grid};
use crate::pfact::first_own_row;
use crate::swap::Plan;
use crate::team::Team;
use crate::tuning::TUNING;
use crate::update::Operands;

pub use skt_host::layout::leading_dimension;

/// Doubles of a cache line: parts of the message begin on one.
const LINE: usize = 8;

/// Head of the message: 0 if all is well, else the panel broke.
const BROKE: usize = 0;
/// Global column at which it broke.
const BROKE_COLUMN: usize = 1;
const BROKE_PIVOT: usize = 2;
const FIRST_COLUMN: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Layout<T = f64> {
    /// Global index of its first column and row.
    pub j: usize,
    pub jb: usize,
    /// Local row of the diagonal block's first row or, where this rank has none of it, below it.
    pub top: usize,
    /// Local row of the first row below the diagonal block.
    pub below: usize,
    pub rows_below: usize,
    /// Doubles from one column of W to the next.
    ld: usize,
    /// Elements from one column of L1, or row of L2, to the next: whole cache lines.
    ld_message: usize,
    elements: PhantomData<T>,
}

impl<T: Element> Layout<T> {
    /// Panel `k`, of `nb` columns, of a matrix of order `n` on process row `myrow`.
    pub(crate) fn new(k: usize, (n, nb): (usize, usize), rows: Cyclic, myrow: usize) -> Self {
        let j = k * nb;
        let jb = nb.min(n - j);
        let top = rows.count_before(j, myrow);
        let below = rows.count_before(j + jb, myrow);
        let rows_below = rows.count_before(n, myrow) - below;
        Self {
            j,
            jb,
            top,
            below,
            rows_below,
            ld: odd_lines(first_own_row(jb) + below - top + rows_below),
            ld_message: leading_dimension(T::doubles(jb)) * T::PER_DOUBLE,
            elements: PhantomData,
        }
    }

    pub fn doubles(&self) -> usize {
        self.l2_start() + T::doubles(self.ld_message * self.rows_below)
    }

    fn w_doubles(&self) -> usize {
        T::doubles(self.ld * self.jb)
    }

    pub(crate) fn w_rows(&self) -> usize {
        first_own_row(self.jb) + self.below - self.top + self.rows_below
    }

    fn l1_start(&self) -> usize {
        LINE + self.jb.next_multiple_of(LINE)
    }

    fn l2_start(&self) -> usize {
        self.l1_start() + T::doubles(self.ld_message * self.jb)
    }

    /// W in `room`, column by column.
    pub fn w<'a>(&self, room: &'a mut [f64]) -> MatMut<'a, T> {
        MatMut::col_major(
            T::from_doubles_mut(&mut room[..self.w_doubles()]),
            self.w_rows(),
            self.jb,
            self.ld,
        )
    }

    pub(crate) fn head_and_ipiv<'a>(&self, data: &'a mut [f64]) -> (&'a mut [f64], &'a mut [f64]) {
        let (head, rest) = data.split_at_mut(LINE);
        (head, &mut rest[..self.jb])
    }

    pub(crate) fn l1_and_l2<'a>(&self, data: &'a mut [f64]) -> (MatMut<'a, T>, MatMut<'a, T>) {
        let numbers = T::from_doubles_mut(&mut data[self.l1_start()..self.doubles()]);
        let (l1, l2) = numbers.split_at_mut(self.ld_message * self.jb);
        let l1 = MatMut::col_major(l1, self.jb, self.jb, self.ld_message);
        (l1, MatMut::row_major(l2, self.rows_below, self.jb, self.ld_message))
    }

    /// Pivots: the global row exchanged with each row of the diagonal block.
    pub(crate) fn ipiv<'a>(&self, data: &'a [f64]) -> &'a [f64] {
        &data[LINE..LINE + self.jb]
    }

    pub fn first_column(&self, data: &[f64]) -> usize {
        data[FIRST_COLUMN] as usize
    }

    pub(crate) fn operands<'a>(&self, data: &'a [f64]) -> Operands<'a, T> {
        Operands { l1: self.l1(data), l2: self.l2(data), ipiv: self.ipiv(data), below: self.below }
    }

    /// The unit lower triangle of the diagonal block (with U1 above it).
    pub fn l1<'a>(&self, data: &'a [f64]) -> MatRef<'a, T> {
        MatRef::col_major(
            T::from_doubles(&data[self.l1_start()..]),
            self.jb,
            self.jb,
            self.ld_message,
        )
    }

    pub(crate) fn l2<'a>(&self, data: &'a [f64]) -> MatRef<'a, T> {
        MatRef::row_major(
            T::from_doubles(&data[self.l2_start()..]),
            self.rows_below,
            self.jb,
            self.ld_message,
        )
    }
}

impl Layout {
    /// Writes L1 and L2 of a panel that was factored in W into the message.
    pub fn write(&self, w: MatRef, data: &mut [f64], team: &Team) {
        let (mut l1, l2) = self.l1_and_l2(data);
        for c in 0..self.jb {
            l1.col_mut(c).copy_from_slice(&w.col(c)[..self.jb]);
        }
        let rows = self.w_rows();
        copy_rows(w.block(rows - self.rows_below..rows, 0..self.jb), l2, team);
    }
}

pub(super) fn copy_rows(source: MatRef, target: MatMut, team: &Team) {
    let cols = source.cols();
    let target = target.share();
    team.split(source.rows(), TUNING.panel_copy_grain_rows, |part| {
        // SAFETY: the parts do not overlap.
        let target = unsafe { target.block(part.clone(), 0..cols) };
        transpose::copy(source.block(part, 0..cols), target);
    });
}

pub(crate) fn mark_broken(head: &mut [f64], column: usize, pivot: f64) {
    head[BROKE] = 1.0;
    head[BROKE_COLUMN] = column as f64;
    head[BROKE_PIVOT] = pivot;
}

pub(crate) fn mark_sound(head: &mut [f64], j: usize) {
    head[BROKE] = 0.0;
    head[FIRST_COLUMN] = j as f64;
}

/// Doubles of the largest panel message of a matrix on a process row.
pub fn largest<T: Element>(n: usize, nb: usize, rows: Cyclic, myrow: usize) -> usize {
    let messages = largest_layouts::<T>(n, nb, rows, myrow).map(|layout| layout.doubles());
    messages.fold(LINE, usize::max)
}

/// Doubles of the largest W of a matrix on a process row.
pub(crate) fn largest_w(n: usize, nb: usize, rows: Cyclic, myrow: usize) -> usize {
    largest_layouts::<f64>(n, nb, rows, myrow).map(|layout| layout.w_doubles()).max().unwrap_or(0)
}

/// The layouts of the first two panels: later ones have neither more rows nor more columns.
fn largest_layouts<T: Element>(
    n: usize,
    nb: usize,
    rows: Cyclic,
    myrow: usize,
) -> impl Iterator<Item = Layout<T>> {
    (0..n.div_ceil(nb).min(2)).map(move |k| Layout::new(k, (n, nb), rows, myrow))
}

/// Rounds up to an odd number of cache lines, so that the elements of a row of W, which a pivot
/// exchange copies, are in different cache sets.
fn odd_lines(doubles: usize) -> usize {
    doubles.div_ceil(LINE) / 2 * 2 * LINE + LINE
}

/// A factored panel (HPL_T_panel): being broadcast along the process row, or arrived.
pub struct Panel<T = f64> {
    pub k: usize,
    pub layout: Layout<T>,
    message: Message,
    /// Made when the first rows are exchanged.
    plan: OnceLock<Arc<Plan>>,
}

enum Message {
    Broadcast(PanelBcast),
    /// Read in the memory of its owner.
    Shared(Slot),
}

impl<T: Element> Panel<T> {
    /// Starts to broadcast panel `k`; on its owner `buffer` holds the message.
    pub(crate) fn start_broadcast(
        grid: &Grid,
        columns: &ColumnMap,
        topology: skt_host::choice::Bcast,
        k: usize,
        layout: Layout<T>,
        buffer: PanelBuffer,
    ) -> Result<Self, SolveError> {
        let message = match buffer {
            PanelBuffer::Message(buf) => {
                let (root, next) = (columns.block_owner(k), columns.next_owner(k));
                let len = layout.doubles();
                Message::Broadcast(PanelBcast::start(&grid.row, topology, root, next, buf, len)?)
            }
            PanelBuffer::Shared(slot) => {
                slot.publish();
                Message::Shared(slot)
            }
        };
        Ok(Self { k, layout, message, plan: OnceLock::new() })
    }

    /// Forwards what has arrived; never waits.
    pub(crate) fn progress(&mut self, grid: &Grid) -> Result<(), SolveError> {
        match &mut self.message {
            Message::Broadcast(bcast) => Ok(bcast.progress(&grid.row)?),
            Message::Shared(_) => Ok(()),
        }
    }

    pub(crate) fn must_forward(&self) -> bool {
        matches!(&self.message, Message::Broadcast(bcast) if bcast.must_forward())
    }

    /// Progresses the sends of this rank while the panel is read; never waits.
    pub(crate) fn progress_sends(&self) -> Result<(), SolveError> {
        match &self.message {
            Message::Broadcast(bcast) => Ok(bcast.progress_sends()?),
            Message::Shared(_) => Ok(()),
        }
    }

    /// Forwards what has arrived, and returns whether the whole panel has. Never waits.
    pub(crate) fn has_arrived(&mut self, grid: &Grid) -> Result<bool, SolveError> {
        self.progress(grid)?;
        Ok(match &self.message {
            Message::Broadcast(bcast) => bcast.is_here(),
            Message::Shared(slot) => slot.has_arrived(&grid.row)?,
        })
    }

    /// Whether the whole panel has arrived and is sound, so that it may be read before
    /// [`Self::wait`]. Never waits.
    pub(crate) fn can_be_read(&self, grid: &Grid) -> Result<bool, SolveError> {
        let is_here = match &self.message {
            Message::Broadcast(bcast) => bcast.is_here(),
            Message::Shared(slot) => slot.has_arrived(&grid.row)?,
        };
        Ok(is_here && self.data()[BROKE] == 0.0)
    }

    pub fn wait(&mut self, grid: &Grid) -> Result<(), SolveError> {
        match &mut self.message {
            Message::Broadcast(bcast) => bcast.finish(&grid.row)?,
            Message::Shared(slot) => slot.wait(&grid.row)?,
        }
        let head = &self.data()[..LINE];
        if head[BROKE] != 0.0 {
            let column = head[BROKE_COLUMN] as usize;
            return Err(SolveError::Pivot { column, value: head[BROKE_PIVOT] });
        }
        Ok(())
    }

    /// Only after [`Self::wait`].
    fn data(&self) -> &[f64] {
        match &self.message {
            Message::Broadcast(bcast) => bcast.data(),
            Message::Shared(slot) => slot.read(),
        }
    }

    /// Only after [`Self::wait`].
    pub(crate) fn operands(&self) -> Operands<'_, T> {
        self.layout.operands(self.data())
    }

    /// The row exchange right of the panel for process row `myrow`; only after [`Self::wait`].
    pub fn plan(&self, rows: Cyclic, myrow: usize) -> &Arc<Plan> {
        let (j, ipiv) = (self.layout.j, self.operands().ipiv);
        self.plan.get_or_init(|| Arc::new(Plan::new(j, ipiv, rows, myrow)))
    }

    /// Ends the use of the panel: waits until it has been forwarded, and returns its buffer.
    pub(crate) fn release(self) -> Result<PanelBuffer, SolveError> {
        Ok(match self.message {
            Message::Broadcast(bcast) => PanelBuffer::Message(bcast.reclaim()?),
            Message::Shared(slot) => PanelBuffer::Shared(slot),
        })
    }
}
