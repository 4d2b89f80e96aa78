//! The row exchange of a step and the solve for U, on a range of columns.
//!
//! ```text
//! A1 = P A1        rows of the process column, by the panel's pivots
//! U  = L1^-1 A1
//! ```

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use skt_host::phases::Phases;

use super::half::Half;
use super::local::Local;
use super::panel::{Layout, Panel};
use super::{SolveError, memory_error};
use crate::blas::{Element, MatRef};
use crate::swap::node::NodeRows;
use crate::tuning::TUNING;
use crate::{swap, update};
use skt_comm::PageBuf;

/// How the rows of a process column are exchanged, with the work space for it.
pub enum RowExchange {
    /// P = 1: in A.
    InPlace,
    /// By messages; U is solved in the work space.
    Messages(swap::RowBuffers),
    /// By messages that are sent while this rank computes.
    Half(Half),
    /// In memory that all ranks of the process column see.
    Node(NodeRows),
}

impl RowExchange {
    /// An exchange for panels of up to `nb` columns, up to `cols` doubles of a row at a time, on
    /// `p` process rows: in `shared` memory if any, in A with one process row, else by messages.
    pub fn new(
        p: usize,
        nb: usize,
        cols: usize,
        shared: Option<NodeRows>,
    ) -> Result<Self, SolveError> {
        let by_messages = || Self::with_u(p, nb, cols, || PageBuf::new(nb * cols));
        shared.map_or_else(by_messages, |rows| Ok(Self::Node(rows)))
    }

    /// An exchange without shared memory: in A where there is one process row, else by messages,
    /// with U in the buffer of `nb cols` doubles that `u` allocates.
    pub(crate) fn with_u(
        p: usize,
        nb: usize,
        cols: usize,
        u: impl FnOnce() -> std::io::Result<PageBuf>,
    ) -> Result<Self, SolveError> {
        if p == 1 {
            return Ok(Self::InPlace);
        }
        let buffers = u().and_then(|u| swap::RowBuffers::new(nb, cols, u));
        buffers.map(Self::Messages).map_err(memory_error("the row exchange"))
    }

    /// By messages that are sent while this rank computes, up to `cols` doubles of a row.
    pub fn half(nb: usize, cols: usize) -> Result<Self, SolveError> {
        Half::new(nb, cols).map(Self::Half).map_err(memory_error("the row exchange"))
    }

    pub fn is_shared(&self) -> bool {
        matches!(self, Self::Node(_))
    }

    pub(crate) fn as_half(&mut self) -> &mut Half {
        match self {
            Self::Half(half) => half,
            _ => panic!("an exchange of all columns at once"),
        }
    }

    /// Passes `take` each row of the diagonal block of a panel that moves no rows, with its number
    /// in the block; `cols` are the panel's local columns, and `plan` is its row exchange.
    /// Collective over the process column.
    /// Safety: no other thread uses these columns.
    pub(crate) unsafe fn gather<T: Element>(
        &mut self,
        local: &Local<T>,
        layout: &Layout<T>,
        plan: &swap::Plan,
        cols: Range<usize>,
        mut take: impl FnMut(usize, &[T]),
    ) -> Result<(), SolveError> {
        let (Local { grid, team, params, .. }, &Layout { top, jb, .. }) = (local, layout);
        // SAFETY: the caller's promise.
        let columns = unsafe { local.a.block(0..local.shape.rows, cols) };
        let arrived = match self {
            Self::InPlace => {
                (0..jb).for_each(|i| take(i, columns.as_ref().row(top + i)));
                return Ok(());
            }
            Self::Messages(buffers) => {
                let (swap, threshold) = (params.swap, params.swap_threshold);
                swap::exchange(&grid.col, plan, swap, threshold, columns, buffers)?
            }
            Self::Half(_) => panic!("an exchange of trailing columns"),
            Self::Node(rows) => rows.exchange(&grid.col, plan, team, columns)?,
        };
        let rows = arrived.columns(0..jb).rows;
        rows.iter().enumerate().for_each(|(i, row)| take(i, row));
        // The ranks have read each other's rows.
        arrived.solved(&grid.col)?;
        Ok(())
    }

    /// Exchanges rows on the columns `cols` and solves for U there. Returns U, `jb x cols`; this
    /// rank's rows of it are in A as well.
    /// Safety: no other thread uses these columns; U in A is not written to while the result is in
    /// use.
    pub(crate) unsafe fn solve<'u, 'm: 'u, T: Element>(
        &'u mut self,
        local: &Local<'m, T>,
        panel: &Panel<T>,
        cols: Range<usize>,
        phases: &mut Phases,
    ) -> Result<MatRef<'u, T>, SolveError> {
        let Local { grid, team, params, .. } = local;
        let start = grid.all.now();
        let plan = || panel.plan(local.rows, grid.myrow);
        // SAFETY: the caller's promise.
        let columns = || unsafe { local.a.block(0..local.shape.rows, cols.clone()) };
        let arrived = match self {
            Self::InPlace => None,
            Self::Messages(buffers) => {
                let (swap, threshold) = (params.swap, params.swap_threshold);
                Some(swap::exchange(&grid.col, plan(), swap, threshold, columns(), buffers)?)
            }
            // SAFETY: the caller's promise.
            Self::Half(half) => Some(unsafe {
                half.start(local, panel, cols.clone())?;
                half.arrive(local, panel, cols.clone())?
            }),
            Self::Node(rows) => Some(rows.exchange(&grid.col, plan(), team, columns())?),
        };
        let swapped = grid.all.now();
        // SAFETY: the caller's promise.
        let (u, swapped) = match arrived {
            None => unsafe { in_place(local, panel, cols, start) },
            Some(arrived) => (unsafe { solve_arrived(local, panel, cols, arrived) }?, swapped),
        };
        phases.swap += (swapped - start).as_secs_f64();
        phases.update += local.seconds_since(swapped);
        Ok(u)
    }
}

/// Solves for U, whose rows of the columns `cols` have arrived. Returns U; this rank's rows of it
/// are in A as well.
/// Safety: no other thread uses these columns.
unsafe fn solve_arrived<'u, T: Element>(
    local: &Local<T>,
    panel: &Panel<T>,
    cols: Range<usize>,
    arrived: swap::Arrived<'u, T>,
) -> Result<MatRef<'u, T>, SolveError> {
    let (operands, Layout { j, jb, .. }) = (panel.operands(), panel.layout);
    let Local { grid, team, a, .. } = local;
    let own = arrived.share();
    team.split(own.len(), TUNING.solve_grain_cols, |share| {
        let cols = own.start + share.start..own.start + share.end;
        // SAFETY: the ranks' shares do not overlap, nor do the team's shares of this one.
        let u = unsafe { arrived.u().block(0..jb, cols.clone()) };
        update::solve_arrived(&operands, arrived.columns(cols), u);
    });
    let u = arrived.solved(&grid.col)?;
    // SAFETY: U is only read from here on.
    let u = unsafe { u.read(0..jb, 0..cols.len()) };
    for (row_here, row, len) in local.rows.spans(j..j + jb, grid.myrow) {
        // SAFETY: the caller's promise; these rows of A receive this rank's rows of U.
        let mut own = unsafe { a.block(row_here..row_here + len, cols.clone()) };
        (0..len).for_each(|i| own.row_mut(i).copy_from_slice(u.row(row - j + i)));
    }
    Ok(u)
}

/// P = 1: exchanges rows in A and solves for U, in turn, on a few columns at a time. Returns U,
/// which is in A, and the start plus the time spent in exchanges: the phases count as if all
/// exchange preceded the solve. Only the exchange on the first thread's columns is timed: that is
/// the calling thread, whose time the phases count.
/// Safety: no other thread uses these columns; U in A is not written to while the result is in use.
unsafe fn in_place<'m, T: Element>(
    local: &Local<'m, T>,
    panel: &Panel<T>,
    cols: Range<usize>,
    start: Instant,
) -> (MatRef<'m, T>, Instant) {
    let (operands, Layout { top, below, .. }) = (panel.operands(), panel.layout);
    let (a, rows, swap_nanos) = (local.a, local.shape.rows, AtomicU64::new(0));
    local.team.split(cols.len(), TUNING.solve_grain_cols, |share| {
        let is_first = share.start == 0;
        for first in share.clone().step_by(TUNING.exchange_cols) {
            let few = first..(first + TUNING.exchange_cols).min(share.end);
            let cols = cols.start + few.start..cols.start + few.end;
            let start = Instant::now();
            // SAFETY: the caller's promise; the team's shares do not overlap.
            let columns = unsafe { a.block(0..rows, cols.clone()) };
            swap::exchange_local(columns, top, operands.ipiv);
            if is_first {
                swap_nanos.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
            }
            // SAFETY: the caller's promise; the team's shares do not overlap.
            update::solve(&operands, unsafe { a.block(top..below, cols) });
        }
    });
    // SAFETY: U is only read from here on.
    let u = unsafe { a.read(top..below, cols) };
    (u, start + Duration::from_nanos(swap_nanos.into_inner()))
}
