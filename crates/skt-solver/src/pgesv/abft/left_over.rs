//! Eliminates what is left over below the diagonal of finished columns that were decoded.
//!
//! U of a finished column whose group is not finished is decoded from a sum that the elimination
//! has carried, and so are the rows below it:
//! ```text
//! A_f = L [ U_f   ]          as it was eliminated, and lost
//!         [ 0     ]
//! A_f = L [ U_f + delta ]    as it is decoded: delta is L11^-1 times rounding errors, and
//!         [ rho         ]    rho, which would be 0, makes up for it
//! ```
//!
//! U_f + delta without rho would be off by L [0; rho], and the residual would grow with it. So rho
//! is eliminated, like a panel without row exchanges, whose multipliers are no larger than
//! rounding:
//!
//! ```text
//! [ D   ] = [ L1 ] U1        D the decoded diagonal block, all of it
//! [ rho ]   [ L2 ]
//! U  = L1^-1 U               rows of the diagonal block, on all columns to the right
//! A2 = A2 - L2 U             rows below
//! ```
//!
//! All changes are of the size of rounding errors. A death in between leaves an equally good
//! system, so no word records how far this step has come.

use std::ops::Range;

use super::super::SolveError;
use super::super::local::Local;
use super::super::panel::Layout;
use super::memory::{Journal, LEFT_OVER, Places};
use crate::blas::{self, MatMut, MatRef, kernels};
use skt_comm::collect;

const GRAIN_COLUMNS: usize = 64;
const GRAIN_ROWS: usize = 16;

/// Eliminates what is left over in the columns of the finished panels `decoded`, in order, before
/// panel `cut`; all are of one group. No rank of the grid has begun panel `cut`. Collective.
pub(super) fn eliminate(
    local: &Local,
    places: &Places,
    journal: &Journal,
    decoded: &[usize],
    cut: usize,
) -> Result<(), SolveError> {
    let Some(&first) = decoded.first() else { return Ok(()) };
    // Eliminating one panel leaves something over in the finished columns to its right, too.
    let panels = first..cut;
    for k in panels.clone().filter(|k| !decoded.contains(k) && local.owns(*k)) {
        journal.before(LEFT_OVER, k)?;
        clear_below_diagonal(local, k);
    }
    for k in panels {
        eliminate_panel(local, places, journal, k)?;
    }
    Ok(())
}

/// Clears the columns of panel `k` below the diagonal, which store other data and have nothing left
/// over.
fn clear_below_diagonal(local: &Local, k: usize) {
    let (Layout { j, jb, top, .. }, cols) = (local.layout(k), local.columns_of(k..k + 1));
    // SAFETY: only this thread uses A.
    let mut a = unsafe { local.a.block(top..local.shape.rows, cols) };
    for i in 0..a.rows() {
        let row = local.rows.global(top + i, local.grid.myrow);
        a.row_mut(i)[..(row - j).min(jb)].fill(0.0);
    }
}

fn eliminate_panel(
    local: &Local,
    places: &Places,
    journal: &Journal,
    k: usize,
) -> Result<(), SolveError> {
    let Local { grid, team, a, .. } = *local;
    let Layout { jb, below, rows_below, .. } = local.layout(k);
    // SAFETY: panels and U belong to the last step, which all ranks have finished, or to none.
    let ([mut panel, _], [_, mut u_room]) =
        unsafe { (places.panel_buffers(0), places.u_buffers()) };
    journal.before(LEFT_OVER, k)?;
    let diagonal = factored_diagonal(local, k)?;
    let diagonal = MatRef::row_major(&diagonal, jb, jb, jb);
    let l2 = &mut panel[..rows_below * jb];
    if local.owns(k) {
        // SAFETY: no thread writes to these columns.
        let rho = unsafe { a.read(below..below + rows_below, local.columns_of(k..k + 1)) };
        let target = MatMut::row_major(l2, rows_below, jb, jb).share();
        team.split(rows_below, GRAIN_ROWS, |rows| {
            // SAFETY: threads have disjoint rows.
            let mut l2 = unsafe { target.block(rows.clone(), 0..jb) };
            for (i, row) in rows.enumerate() {
                l2.row_mut(i).copy_from_slice(rho.row(row));
                divide_by_upper(l2.row_mut(i), diagonal);
            }
        });
    }
    collect::broadcast(&grid.row, l2, local.cols.block_owner(k))?;
    let l2 = MatRef::row_major(l2, rows_below, jb, jb);

    let right = local.columns_right_of(k);
    let u = solved_rows(local, k, diagonal, &mut u_room)?;
    journal.before(LEFT_OVER, k)?;
    team.split(right.len(), GRAIN_COLUMNS, |cols| {
        let rows = below..below + rows_below;
        // SAFETY: threads have disjoint columns, and none of these rows are read.
        let a2 = unsafe { a.block(rows, right.start + cols.start..right.start + cols.end) };
        blas::gemm(-1.0, l2, u.block(0..jb, cols), 1.0, a2);
    });
    Ok(())
}

/// Gathers the rows of the diagonal block of panel `k`, of the local columns `cols`, on all process
/// rows. Collective over the process column.
fn gather_rows(
    local: &Local,
    k: usize,
    cols: Range<usize>,
    into: &mut [f64],
) -> Result<(), SolveError> {
    let (grid, Layout { j, jb, .. }, width) = (local.grid, local.layout(k), cols.len());
    for owner in 0..grid.p {
        for (at, row, len) in local.rows.spans(j..j + jb, owner) {
            let rows = &mut into[(row - j) * width..(row - j + len) * width];
            if owner == grid.myrow {
                // SAFETY: no thread writes to A.
                let own = unsafe { local.a.read(at..at + len, cols.clone()) };
                for i in 0..len {
                    rows[i * width..(i + 1) * width].copy_from_slice(own.row(i));
                }
            }
            collect::broadcast(&grid.col, rows, owner)?;
        }
    }
    Ok(())
}

/// Stores this process row's rows of the diagonal block of panel `k`, of the local columns `cols`.
fn store_rows(local: &Local, k: usize, cols: Range<usize>, block: MatRef) {
    let Layout { j, jb, .. } = local.layout(k);
    for (at, row, len) in local.rows.spans(j..j + jb, local.grid.myrow) {
        // SAFETY: only this thread uses A.
        let mut own = unsafe { local.a.block(at..at + len, cols.clone()) };
        for i in 0..len {
            own.row_mut(i).copy_from_slice(block.row(row - j + i));
        }
    }
}

/// Solves for U in the rows of the diagonal block of panel `k`, on all columns to its right.
/// Returns U, in A if P = 1, else in `room`. Collective over the process column.
fn solved_rows<'u>(
    local: &'u Local,
    k: usize,
    diagonal: MatRef,
    room: &'u mut [f64],
) -> Result<MatRef<'u>, SolveError> {
    let Local { grid, team, a, .. } = *local;
    let (Layout { jb, top, below, .. }, right) = (local.layout(k), local.columns_right_of(k));
    let width = right.len();
    if grid.p == 1 {
        team.split(width, GRAIN_COLUMNS, |cols| {
            let cols = right.start + cols.start..right.start + cols.end;
            // SAFETY: threads have disjoint columns.
            blas::solve_unit_lower(diagonal, unsafe { a.block(top..below, cols) });
        });
        // SAFETY: later writes are below these rows.
        return Ok(unsafe { a.read(top..below, right) });
    }
    let room = &mut room[..jb * width];
    gather_rows(local, k, right.clone(), room)?;
    let u = MatMut::row_major(room, jb, width, width).share();
    team.split(width, GRAIN_COLUMNS, |cols| {
        // SAFETY: threads have disjoint columns.
        blas::solve_unit_lower(diagonal, unsafe { u.block(0..jb, cols) });
    });
    // SAFETY: no thread writes to it any more.
    let u = unsafe { u.read(0..jb, 0..width) };
    store_rows(local, k, right, u);
    Ok(u)
}

/// Factors the decoded diagonal block of panel `k`, and stores it. Returns it row by row: L1
/// without its diagonal, and U1. Collective.
fn factored_diagonal(local: &Local, k: usize) -> Result<Vec<f64>, SolveError> {
    let (grid, Layout { jb, .. }) = (local.grid, local.layout(k));
    let mut data = vec![0.0; jb * jb];
    if local.owns(k) {
        let cols = local.columns_of(k..k + 1);
        gather_rows(local, k, cols.clone(), &mut data)?;
        for i in 1..jb {
            let (above, row) = data.split_at_mut(i * jb);
            divide_by_upper(&mut row[..jb], MatRef::row_major(above, i, jb, jb));
        }
        store_rows(local, k, cols, MatRef::row_major(&data, jb, jb, jb));
    }
    collect::broadcast(&grid.row, &mut data, local.cols.block_owner(k))?;
    Ok(data)
}

/// Divides the row `x` by the rows of U in `upper`: the first elements become multipliers, and
/// their products are subtracted from the rest. With all of U, `x := x U^-1`.
fn divide_by_upper(x: &mut [f64], upper: MatRef) {
    for c in 0..upper.rows() {
        let row = upper.row(c);
        x[c] /= row[c];
        kernels::axpy(-x[c], &row[c + 1..], &mut x[c + 1..]);
    }
}
