//! The trailing update by one panel on a range of columns (HPL_pdupdate).
//!
//! ```text
//! [ A1 ]    exchange rows by the panel's pivots       swap
//! [ A2 ]    U  = L1^-1 A1                             solve
//!           A2 = A2 - L2 U                            multiply
//! ```
//!
//! Rows are contiguous, so the first two steps are cut by columns and the
//! product by rows: the BLAS then packs the rows of L2 once, and those of U once
//! for each piece.

use std::ops::Range;

use crate::blas::{Element, MatMut, MatRef, Rows, gemm, solve_unit_lower, solve_unit_lower_from};
use crate::work::{self, Work};

/// What an update needs of a panel, on one rank.
#[derive(Clone, Copy)]
pub struct Operands<'a, T = f64> {
    /// Unit lower triangle of the diagonal block.
    pub l1: MatRef<'a, T>,
    /// This rank's rows of L below it.
    pub l2: MatRef<'a, T>,
    /// Pivots, as global rows.
    pub ipiv: &'a [f64],
    /// First local row of A2.
    pub below: usize,
}

/// `U = L1^-1 A1`, in place.
pub fn solve<T: Element>(panel: &Operands<T>, a1: MatMut<T>) {
    work::begins(Work::Solve { k: a1.rows(), cols: a1.cols() });
    solve_unit_lower(panel.l1, a1);
}

/// `U = L1^-1 A1` for the rows of A1 that an exchange has brought.
pub fn solve_arrived<T: Element>(panel: &Operands<T>, a1: Rows<T>, u: MatMut<T>) {
    work::begins(Work::Solve { k: u.rows(), cols: u.cols() });
    solve_unit_lower_from(panel.l1, a1, u);
}

/// `A2 = A2 - L2 U` on rows `rows` of A2; `a2` is those rows.
pub fn multiply<T: Element>(panel: &Operands<T>, u: MatRef<T>, rows: Range<usize>, a2: MatMut<T>) {
    let l2 = panel.l2.block(rows, 0..panel.l2.cols());
    work::begins(Work::Product { rows: l2.rows(), cols: u.cols(), k: l2.cols() });
    gemm(T::MINUS_ONE, l2, u, T::ONE, a2);
}

/// `A2 = A2 + L2 U` on rows `rows` of A2, which takes [`multiply`] back except for rounding; `a2`
/// is those rows.
pub fn take_back(panel: &Operands, u: MatRef, rows: Range<usize>, a2: MatMut) {
    let l2 = panel.l2.block(rows, 0..panel.l2.cols());
    gemm(1.0, l2, u, 1.0, a2);
}
