//! The trailing update by one panel on a range of columns (HPL_pdupdate).
//!
//! ```text
//! [ A1 ]    exchange rows by the panel's pivots
//! [ A2 ]    U  = L1^-1 A1
//!           A2 = A2 - L2 U
//! ```

use std::time::Instant;

use crate::blas::{MatMut, MatRef, gemm, solve_unit_lower};
use crate::swap;

/// What an update needs of a panel, on one rank.
#[derive(Clone, Copy)]
pub struct Operands<'a> {
    /// Unit lower triangle of the diagonal block.
    pub l1: MatRef<'a>,
    /// This rank's rows of L below it.
    pub l2: MatRef<'a>,
    /// Pivots, as global rows.
    pub ipiv: &'a [f64],
    /// Local row of A1, where this rank holds it.
    pub top: Option<usize>,
    /// Local row of A2.
    pub below: usize,
}

/// Seconds that an update took.
#[derive(Debug, Clone, Copy, Default)]
pub struct Spent {
    /// Row exchange.
    pub swap: f64,
    /// Solve and product.
    pub update: f64,
}

/// P = 1: everything on the columns `a` (all local rows), in place.
pub fn apply_local(panel: &Operands, mut a: MatMut) -> Spent {
    let start = Instant::now();
    let top = panel.top.expect("with P = 1 every rank holds every row");
    swap::exchange_local(a.rb(), top, panel.ipiv);
    let swapped = Instant::now();
    let (rows, cols) = (a.rows(), a.cols());
    let (a1, a2) = a.split_rows(panel.below);
    let mut u = a1.block(top..panel.below, 0..cols);
    debug_assert_eq!(rows - panel.below, panel.l2.rows());
    solve_unit_lower(panel.l1, u.rb());
    gemm(-1.0, panel.l2, u.as_ref(), 1.0, a2);
    let done = Instant::now();
    Spent { swap: (swapped - start).as_secs_f64(), update: (done - swapped).as_secs_f64() }
}

/// P > 1, once the rows of A1 are in `u` (`jb x cols`): solve and product. The
/// rank that holds the diagonal block keeps U, which is final there.
pub fn apply_spread(panel: &Operands, mut u: MatMut, mut a: MatMut) {
    solve_unit_lower(panel.l1, u.rb());
    let (rows, cols) = (a.rows(), a.cols());
    if let Some(top) = panel.top {
        for i in 0..u.rows() {
            a.row_mut(top + i).copy_from_slice(u.as_ref().row(i));
        }
    }
    gemm(-1.0, panel.l2, u.as_ref(), 1.0, a.block(panel.below..rows, 0..cols));
}
