//! P = 1: the rows are exchanged in place, one pair after the other (HPL_dlaswp). Rows are
//! contiguous, so each exchange streams two rows.

use crate::blas::{Element, MatMut};

/// Exchanges row `first + i` of `a` with row `ipiv[i]`, for each i in order.
pub fn exchange<T: Element>(mut a: MatMut<T>, first: usize, ipiv: &[f64]) {
    for (i, &pivot) in ipiv.iter().enumerate() {
        let (row, pivot) = (first + i, pivot as usize);
        if row != pivot {
            let (x, y) = a.two_rows_mut(row, pivot);
            T::swap(x, y);
        }
    }
}
