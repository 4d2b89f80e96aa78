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

use crate::blas::bf16::Bf16;
use crate::blas::{
    Element, MatMut, MatRef, RoundedProducts, Rows, gemm, solve_unit_lower, solve_unit_lower_from,
};
use crate::work::{self, Work};

#[derive(Clone, Copy)]
pub struct Operands<'a, T = f64> {
    pub l1: MatRef<'a, T>,
    pub l2: MatRef<'a, T>,
    /// Pivots, as global rows.
    pub ipiv: &'a [f64],
    pub below: usize,
}

/// U of an update, as its products read it.
#[derive(Clone, Copy)]
pub enum ProductU<'a, T: Element = f64> {
    /// As it was solved for.
    Solved(MatRef<'a, T>),
    /// Rounded, and packed for these products.
    Packed(T::Rounded, MatRef<'a, Bf16>),
}

impl<'a, T: Element> ProductU<'a, T> {
    pub(crate) fn rows(&self) -> usize {
        match self {
            Self::Solved(u) => u.rows(),
            Self::Packed(_, u) => u.rows(),
        }
    }

    /// The products that read it rounded, if these do.
    pub(crate) fn products(&self) -> Option<T::Rounded> {
        match self {
            Self::Solved(_) => None,
            Self::Packed(products, _) => Some(*products),
        }
    }

    pub(crate) fn columns(self, cols: Range<usize>) -> Self {
        let rows = 0..self.rows();
        match self {
            Self::Solved(u) => Self::Solved(u.block(rows, cols)),
            Self::Packed(products, u) => Self::Packed(products, u.block(rows, cols)),
        }
    }
}

impl<'a, T: Element> From<MatRef<'a, T>> for ProductU<'a, T> {
    fn from(u: MatRef<'a, T>) -> Self {
        Self::Solved(u)
    }
}

/// `U = L1^-1 A1`, in place.
pub fn solve<T: Element>(panel: &Operands<T>, a1: MatMut<T>) {
    work::begins(Work::Solve { k: a1.rows(), cols: a1.cols() });
    solve_unit_lower(panel.l1, a1);
}

/// `U = L1^-1 A1` for the rows of A1 that an exchange has brought.
pub(crate) fn solve_arrived<T: Element>(panel: &Operands<T>, a1: Rows<T>, u: MatMut<T>) {
    work::begins(Work::Solve { k: u.rows(), cols: u.cols() });
    solve_unit_lower_from(panel.l1, a1, u);
}

/// `A2 = A2 - L2 U` on rows `rows` of A2; `a2` is those rows.
pub fn multiply<T: Element>(
    panel: &Operands<T>,
    u: ProductU<T>,
    rows: Range<usize>,
    a2: MatMut<T>,
) {
    let l2 = panel.l2.block(rows, 0..panel.l2.cols());
    work::begins(Work::Product { rows: l2.rows(), cols: a2.cols(), k: l2.cols() });
    match u {
        ProductU::Solved(u) => gemm(T::MINUS_ONE, l2, u, T::ONE, a2),
        ProductU::Packed(products, u) => products.multiply(l2, u, a2),
    }
}

/// `A2 = A2 + L2 U` on rows `rows`, which are `a2`: takes [`multiply`] back except for rounding.
pub(crate) fn take_back(panel: &Operands, u: MatRef, rows: Range<usize>, a2: MatMut) {
    let l2 = panel.l2.block(rows, 0..panel.l2.cols());
    gemm(1.0, l2, u, 1.0, a2);
}
