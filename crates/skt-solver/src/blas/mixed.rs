//! Products of a vector of doubles and a matrix of floats, in double precision.
//!
//! The floats are read once, so these run at the speed of memory, as GEMV does.

use super::kernels::mixed_dot;
use super::{MatRef, Triangle};

/// `x := T^-1 x` with a triangle T of the square matrix `a`, whose rows are contiguous.
pub(super) fn solve_triangle(triangle: Triangle, a: MatRef<f32>, x: &mut [f64]) {
    let n = x.len();
    assert_eq!((a.rows(), a.cols()), (n, n), "the shape of a triangle");
    match triangle {
        Triangle::UnitLower => {
            for i in 0..n {
                x[i] -= mixed_dot(&a.row(i)[..i], &x[..i]);
            }
        }
        Triangle::Upper => {
            for i in (0..n).rev() {
                let rest = mixed_dot(&a.row(i)[i + 1..], &x[i + 1..]);
                x[i] = (x[i] - rest) / f64::from(a.row(i)[i]);
            }
        }
    }
}

/// `y := y - A x` with contiguous rows of A.
pub(super) fn subtract_product(a: MatRef<f32>, x: &[f64], y: &mut [f64]) {
    assert_eq!((a.rows(), a.cols()), (y.len(), x.len()), "the shape of a product");
    for (y, row) in y.iter_mut().zip(a.fetched_rows()) {
        *y -= mixed_dot(row, x);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn products_and_solutions_match_their_formulas(
            n in 0usize..80, a in prop::collection::vec(-1.0..1.0f32, 90 * 80),
            x in prop::collection::vec(-1.0..1.0f64, 80),
        ) {
            let mut a = a;
            (0..n).for_each(|i| a[i * 91] += 50.0);
            let matrix = MatRef::row_major(&a, n, n, 90);
            let element = |i: usize, j: usize| f64::from(a[i * 90 + j]);
            let x = &x[..n];
            let mut y = x.to_vec();
            subtract_product(matrix, x, &mut y);
            for (i, y) in y.iter().enumerate() {
                let product: f64 = (0..n).map(|j| element(i, j) * x[j]).sum();
                prop_assert!((y - (x[i] - product)).abs() < 1e-11);
            }
            for triangle in [Triangle::UnitLower, Triangle::Upper] {
                let mut solved = x.to_vec();
                solve_triangle(triangle, matrix, &mut solved);
                for i in 0..n {
                    let in_triangle = |j: &usize| match triangle {
                        Triangle::UnitLower => *j < i,
                        Triangle::Upper => *j >= i,
                    };
                    let terms = (0..n).filter(in_triangle).map(|j| element(i, j) * solved[j]);
                    let unit = if triangle == Triangle::UnitLower { solved[i] } else { 0.0 };
                    prop_assert!((terms.sum::<f64>() + unit - x[i]).abs() < 1e-9);
                }
            }
        }
    }
}
