//! The last NBMIN columns of the recursion, one by one (HPL_pdpanll, -crn, -rln).
//!
//! With Q the columns of the range before column j and R those after it:
//!
//! ```text
//! left:    U(Q,j) = L(Q,Q)^-1 W(Q,j);  W(.,j) -= L(.,Q) U(Q,j);  pivot j;
//!          L(.,j) = W(.,j) / U(j,j)
//! Crout:   W(.,j) -= L(.,Q) U(Q,j);  pivot j;  L(.,j) = W(.,j) / U(j,j);
//!          U(j,R) = W(j,R) - L(j,Q) U(Q,R)
//! right:   pivot j;  L(.,j) = W(.,j) / U(j,j);  W(.,R) -= L(.,j) U(j,R)
//! ```
//!
//! Each column is searched for its pivot in the pass that produces it.

use std::ops::Range;

use super::{PanelWork, PfactError, pivot};
use crate::blas::kernels::{self, Best};
use crate::blas::{MatMut, passes};
use crate::tuning::TUNING;
use skt_host::choice::Fact;

pub(super) fn factor(
    panel: &mut PanelWork,
    pfact: Fact,
    range: Range<usize>,
) -> Result<(), PfactError> {
    // The first column is up to date: only its search is left.
    let mut best = column_pass(panel, range.start..range.start, range.start);
    for j in range.clone() {
        if j > range.start && pfact != Fact::Right {
            if pfact == Fact::Left {
                solve_column(panel, range.start, j);
            }
            best = column_pass(panel, range.start..j, j);
        }
        let start = panel.col.now();
        let pivot = pivot::choose_and_exchange(panel, j, best)?;
        panel.parts.pivots += (panel.col.now() - start).as_secs_f64();
        match pfact {
            Fact::Right => best = rank1_pass(panel, j..range.end, pivot),
            Fact::Left => scale_pass(panel, j, pivot),
            Fact::Crout => {
                scale_pass(panel, j, pivot);
                update_row(panel, range.start, j, range.end);
            }
        }
    }
    Ok(())
}

/// `U(Q,j) = L(Q,Q)^-1 W(Q,j)` with Q = `q0..j`.
fn solve_column(panel: &mut PanelWork, q0: usize, j: usize) {
    let (left, mut right) = panel.w.rb().split_cols(j);
    let (left, x) = (left.as_ref(), right.col_mut(0));
    for k in q0..j {
        let (above, below) = x.split_at_mut(k + 1);
        kernels::axpy(-above[k], &left.col(k)[k + 1..j], &mut below[..j - k - 1]);
    }
}

/// `U(j,R) = W(j,R) - L(j,Q) U(Q,R)` with Q = `q0..j` and R = `j+1..end`.
fn update_row(panel: &mut PanelWork, q0: usize, j: usize, end: usize) {
    for c in j + 1..end {
        let w = panel.w.as_ref();
        let dot: f64 = (q0..j).map(|k| w.at(j, k) * w.at(k, c)).sum();
        let value = w.at(j, c) - dot;
        panel.w.set(j, c, value);
    }
}

/// `W(.,j) -= L(.,Q) U(Q,j)` on the active rows. Returns the largest element of the result.
fn column_pass(panel: &mut PanelWork, q: Range<usize>, j: usize) -> Best {
    let first = panel.active(j);
    let u: Vec<f64> = q.clone().map(|k| panel.w.as_ref().at(k, j)).collect();
    let chunk = over_active_rows(panel, first, |rows| {
        let (left, mut column) = rows.split_cols(j);
        let left = left.into_ref();
        let left = left.block(0..left.rows(), q.clone());
        passes::subtract_columns(left, &u, column.col_mut(0))
    });
    best_of(panel, j, chunk)
}

/// `1 / pivot`, or nothing where it may overflow, as for a subnormal pivot.
fn inverse(pivot: f64) -> Option<f64> {
    (pivot.abs() >= f64::MIN_POSITIVE).then(|| 1.0 / pivot)
}

/// `L(.,j) = W(.,j) / pivot` below pivot j.
fn scale_pass(panel: &mut PanelWork, j: usize, pivot: f64) {
    let first = panel.active(j + 1);
    over_active_rows(panel, first, |mut rows| {
        match inverse(pivot) {
            Some(inverse) => kernels::scale(inverse, rows.col_mut(j)),
            None => kernels::divide(pivot, rows.col_mut(j)),
        }
        0
    });
}

/// `L(.,j) = W(.,j) / pivot; W(.,R) -= L(.,j) U(j,R)` with j the first of `columns` and R the
/// others. Returns the largest element of the first column of R.
fn rank1_pass(panel: &mut PanelWork, columns: Range<usize>, pivot: f64) -> Best {
    let j = columns.start;
    let inverse = inverse(pivot).unwrap_or_else(|| {
        scale_pass(panel, j, pivot);
        1.0
    });
    let first = panel.active(j + 1);
    let u: Vec<f64> = columns.clone().skip(1).map(|c| panel.w.as_ref().at(j, c)).collect();
    let chunk = over_active_rows(panel, first, |rows| {
        let (mut left, right) = rows.split_cols(j + 1);
        let right = right.block(0..left.rows(), 0..u.len());
        passes::rank1(left.col_mut(j), inverse, &u, right)
    });
    if u.is_empty() { Best::NONE } else { best_of(panel, j + 1, chunk) }
}

/// Runs `pass` over all rows from `first` on, chunk by chunk. `pass` returns the bits of the
/// largest magnitude in its chunk. Returns the chunk with the largest, if there is any chunk.
fn over_active_rows(
    panel: &mut PanelWork,
    first: usize,
    pass: impl Fn(MatMut) -> u64 + Sync,
) -> Option<Range<usize>> {
    let (rows, cols) = (panel.w.rows(), panel.w.cols());
    let shared = panel.w.rb().share();
    let best = std::sync::Mutex::new(None);
    panel.team.split(rows - first, TUNING.pass_grain_rows, |part| {
        let mut mine = None;
        let (mut start, end) = (first + part.start, first + part.end);
        while start < end {
            let chunk = start..(start + 1).next_multiple_of(TUNING.pass_chunk_rows).min(end);
            // SAFETY: chunks do not overlap, and each is taken once.
            let bits = pass(unsafe { shared.block(chunk.clone(), 0..cols) });
            start = chunk.end;
            mine = better(mine, (bits, chunk));
        }
        let mut all = best.lock().expect("search lock");
        *all = mine.into_iter().fold(all.take(), better);
    });
    best.into_inner().expect("search lock").map(|(_, chunk)| chunk)
}

/// The largest element of a column, as a row of W; it is in this chunk of rows.
fn best_of(panel: &PanelWork, column: usize, chunk: Option<Range<usize>>) -> Best {
    chunk.map_or(Best::NONE, |chunk| {
        let start = chunk.start;
        kernels::search(&panel.w.as_ref().col(column)[chunk]).moved(start)
    })
}

/// Returns the chunk with the larger element, the upper one if they are equal.
fn better(
    best: Option<(u64, Range<usize>)>,
    next: (u64, Range<usize>),
) -> Option<(u64, Range<usize>)> {
    match best {
        Some(best) if (best.0, next.1.start) >= (next.0, best.1.start) => Some(best),
        _ => Some(next),
    }
}
