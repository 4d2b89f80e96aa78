//! The last NBMIN columns of the recursion, one by one (HPL_pdpanll, -crn, -rln).
//!
//! With Q the columns of the range before column j and R those after it:
//!
//! ```text
//! left:    U(Q,j) = L(Q,Q)^-1 W(Q,j);  W(.,j) -= L(.,Q) U(Q,j);  pivot j;  L(.,j) = W(.,j) / U(j,j)
//! Crout:   W(.,j) -= L(.,Q) U(Q,j);  pivot j;  L(.,j) = W(.,j) / U(j,j);  U(j,R) = W(j,R) - L(j,Q) U(Q,R)
//! right:   pivot j;  L(.,j) = W(.,j) / U(j,j);  W(.,R) -= L(.,j) U(j,R)
//! ```
//!
//! Each column is searched for its pivot in the pass that produces it.

use std::ops::Range;

use super::kernels::{self, Best};
use super::{Panel, PfactError, pivot};
use crate::blas::view::MatMut;
use crate::comm::Comm;
use crate::config::Fact;

pub(super) fn factor<C: Comm>(
    panel: &mut Panel<C>,
    pfact: Fact,
    range: Range<usize>,
) -> Result<(), PfactError> {
    // The first column is complete: only its search is to be done.
    let mut best = column_pass(panel, range.start..range.start, range.start);
    for j in range.clone() {
        if j > range.start && pfact != Fact::Right {
            if pfact == Fact::Left {
                solve_column(panel, range.start, j);
            }
            best = column_pass(panel, range.start..j, j);
        }
        let pivot = pivot::exchange(panel, j, best)?;
        match pfact {
            Fact::Right => best = rank1_pass(panel, j..range.end, 1.0 / pivot),
            Fact::Left => scale_pass(panel, j, 1.0 / pivot),
            Fact::Crout => {
                scale_pass(panel, j, 1.0 / pivot);
                update_row(panel, range.start, j, range.end);
            }
        }
    }
    Ok(())
}

/// `U(Q,j) = L(Q,Q)^-1 W(Q,j)` with Q = `q0..j`.
fn solve_column<C: Comm>(panel: &mut Panel<C>, q0: usize, j: usize) {
    let (left, mut right) = panel.w.rb().split_cols(j);
    let (left, x) = (left.as_ref(), right.col_mut(0));
    for k in q0..j {
        let (above, below) = x.split_at_mut(k + 1);
        kernels::axpy(-above[k], &left.col(k)[k + 1..j], &mut below[..j - k - 1]);
    }
}

/// `U(j,R) = W(j,R) - L(j,Q) U(Q,R)` with Q = `q0..j` and R = `j+1..end`.
fn update_row<C: Comm>(panel: &mut Panel<C>, q0: usize, j: usize, end: usize) {
    for c in j + 1..end {
        let w = panel.w.as_ref();
        let dot: f64 = (q0..j).map(|k| w.at(j, k) * w.at(k, c)).sum();
        let value = w.at(j, c) - dot;
        panel.w.set(j, c, value);
    }
}

/// `W(.,j) -= L(.,Q) U(Q,j)` on the active rows, and the largest element of it.
fn column_pass<C: Comm>(panel: &mut Panel<C>, q: Range<usize>, j: usize) -> Best {
    let first = panel.active(j);
    let u: Vec<f64> = q.clone().map(|k| panel.w.as_ref().at(k, j)).collect();
    over_active_rows(panel, first, |rows| {
        let (left, mut column) = rows.split_cols(j);
        let (left, column) = (left.into_ref(), column.col_mut(0));
        for (k, &u) in q.clone().zip(&u) {
            kernels::axpy(-u, left.col(k), column);
        }
        kernels::search(column)
    })
}

/// `L(.,j) = W(.,j) inverse` below pivot j.
fn scale_pass<C: Comm>(panel: &mut Panel<C>, j: usize, inverse: f64) {
    let first = panel.active(j + 1);
    over_active_rows(panel, first, |mut rows| {
        kernels::scale(inverse, rows.col_mut(j));
        Best::NONE
    });
}

/// `L(.,j) = W(.,j) inverse; W(.,R) -= L(.,j) U(j,R)` with j the first of
/// `columns` and R the others, and the largest element of the first of R.
fn rank1_pass<C: Comm>(panel: &mut Panel<C>, columns: Range<usize>, inverse: f64) -> Best {
    let j = columns.start;
    let first = panel.active(j + 1);
    let u: Vec<f64> = columns.clone().skip(1).map(|c| panel.w.as_ref().at(j, c)).collect();
    over_active_rows(panel, first, |rows| {
        let (mut left, mut right) = rows.split_cols(j + 1);
        let l = left.col_mut(j);
        kernels::scale(inverse, l);
        for (c, &u) in u.iter().enumerate() {
            kernels::axpy(-u, l, right.col_mut(c));
        }
        if u.is_empty() { Best::NONE } else { kernels::search(right.col_mut(0)) }
    })
}

/// Rows that a pass works on at a time, so that they stay in the first cache.
const CHUNK_ROWS: usize = 512;
/// Rows below which a pass is not worth cutting up for the team.
const TEAM_GRAIN_ROWS: usize = 4 * CHUNK_ROWS;

/// Runs `pass` over all rows from `first` on, chunk by chunk, and returns the
/// best that any of them found, as a row of W.
fn over_active_rows<C: Comm>(
    panel: &mut Panel<C>,
    first: usize,
    pass: impl Fn(MatMut) -> Best + Sync,
) -> Best {
    let (rows, cols) = (panel.w.rows(), panel.w.cols());
    let active = panel.w.rb().block(first..rows, 0..cols);
    let shared = active.share();
    let best = std::sync::Mutex::new(Best::NONE);
    panel.team.split(rows - first, TEAM_GRAIN_ROWS, |part| {
        let mut mine = Best::NONE;
        for start in part.clone().step_by(CHUNK_ROWS) {
            let chunk = start..(start + CHUNK_ROWS).min(part.end);
            // SAFETY: chunks do not overlap, and each is taken once.
            let found = pass(unsafe { shared.block(chunk.clone(), 0..cols) });
            mine = mine.or(found.moved(first + start));
        }
        let mut all = best.lock().expect("search lock");
        *all = all.or(mine);
    });
    best.into_inner().expect("search lock")
}
