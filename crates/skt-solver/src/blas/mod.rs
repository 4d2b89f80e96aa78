//! The few BLAS calls that LU needs, safe, on matrix views.
//!
//! The products are the library's. One triangular solve is our own (`solve_rows`), as the library's
//! is much slower than its DGEMM.
//!
//! Any BLAS with the Fortran interface and 32-bit integers works: it is loaded ([`load`]), never
//! linked. All calls go through one table of its functions (`ffi`). Each view knows its own layout,
//! so that calls read like the mathematics they do.

pub mod bf16;
pub mod check;
mod element;
mod ffi;
pub(crate) mod kernels;
pub mod library;
pub mod load;
mod loader;
mod mixed;
#[cfg(target_arch = "aarch64")]
mod neon;
pub(crate) mod passes;
pub mod peak;
mod rounded;
mod solve_rows;
pub mod transpose;
pub mod triad;
pub mod view;

pub use element::{Element, Triangle};
pub use rounded::{Bf16Products, RoundedProducts};
pub use view::{MatMut, MatRef};

use element::{GemmArguments, TrsmArguments};

use ffi::{BlasInt, int};

/// `C := alpha A B + beta C`, with A `m x k`, B `k x n`, C `m x n`.
pub fn gemm<T: Element>(alpha: T, a: MatRef<T>, b: MatRef<T>, beta: T, mut c: MatMut<T>) {
    assert_eq!((a.rows(), a.cols(), b.cols()), (c.rows(), b.rows(), c.cols()), "gemm shapes");
    if c.rows() == 0 || c.cols() == 0 {
        return;
    }
    // A row-major C is the transpose of a column-major one: C' = alpha B' A' + beta C'.
    if !c.is_col_major() {
        return gemm(alpha, b.t(), a.t(), beta, c.t_mut());
    }
    let (trans_a, lda) = op(a);
    let (trans_b, ldb) = op(b);
    let (m, n, k) = (int(c.rows()), int(c.cols()), int(a.cols()));
    let trans = [trans_a, trans_b];
    let (ldc, a, b, c) = (int(c.ld()), a.as_ptr(), b.as_ptr(), c.as_mut_ptr());
    // SAFETY: the views guarantee that every element that these shapes and leading dimensions name
    // is in borrowed memory, C's exclusively.
    unsafe { T::gemm(&GemmArguments { trans, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc }) };
}

/// `target := source`, both with contiguous rows.
pub fn copy<T: Element>(source: MatRef<T>, mut target: MatMut<T>) {
    assert_eq!((source.rows(), source.cols()), (target.rows(), target.cols()), "copy shapes");
    (0..source.rows()).for_each(|i| target.row_mut(i).copy_from_slice(source.row(i)));
}

/// `B := L^-1 B` with L the unit lower triangle of the square matrix `l`, B `k x n`.
pub(crate) fn solve_unit_lower<T: Element>(l: MatRef<T>, mut b: MatMut<T>) {
    assert_eq!((l.rows(), l.cols()), (b.rows(), b.rows()), "trsm shapes");
    if b.rows() == 0 || b.cols() == 0 {
        return;
    }
    if solve_rows::solve(l, None, &mut b) {
        return;
    }
    // A row-major B is solved from the right: B' := B' L'^-1. A row-major L is
    // the transpose of a column-major upper triangle.
    let uplo = if l.is_col_major() { b'L' } else { b'U' };
    let from_right = !b.is_col_major();
    let transposed = l.is_col_major() == from_right;
    let (m, n) = if from_right { (b.cols(), b.rows()) } else { (b.rows(), b.cols()) };
    let side = if from_right { b'R' } else { b'L' };
    let trans = if transposed { b'T' } else { b'N' };
    let (m, n, lda, ldb) = (int(m), int(n), int(l.ld()), int(b.ld()));
    let (diag, a, b) = (b'U', l.as_ptr(), b.as_mut_ptr());
    // SAFETY: as for gemm.
    unsafe { T::trsm(&TrsmArguments { side, uplo, trans, diag, m, n, a, lda, b, ldb }) };
}

/// Columns up to which [`solve_upper_from_right`] calls TRSM: products run at a higher rate.
const TRSM_COLUMNS: usize = 64;

/// `B := B U^-1` with U the upper triangle of the square matrix `u`, B `m x k` and row-major:
///
/// ```text
/// B1 := B1 U11^-1,   B2 := (B2 - B1 U12) U22^-1
/// ```
pub(crate) fn solve_upper_from_right<T: Element>(u: MatRef<T>, mut b: MatMut<T>) {
    let k = b.cols();
    assert_eq!((u.rows(), u.cols()), (k, k), "trsm shapes");
    assert!(!b.is_col_major(), "rows of B are contiguous");
    if b.rows() == 0 || k == 0 {
        return;
    }
    if k > TRSM_COLUMNS {
        let half = (k / 2).next_multiple_of(TRSM_COLUMNS);
        let (mut b1, mut b2) = b.split_cols(half);
        solve_upper_from_right(u.block(0..half, 0..half), b1.rb());
        gemm(T::MINUS_ONE, b1.as_ref(), u.block(0..half, half..k), T::ONE, b2.rb());
        return solve_upper_from_right(u.block(half..k, half..k), b2);
    }
    // In column-major terms B' := U'^-1 B'; a row-major U transposed is column-major and lower.
    let (uplo, trans) = if u.is_col_major() { (b'U', b'T') } else { (b'L', b'N') };
    let (side, diag) = (b'L', b'N');
    let (m, n, lda, ldb) = (int(b.cols()), int(b.rows()), int(u.ld()), int(b.ld()));
    let (a, b) = (u.as_ptr(), b.as_mut_ptr());
    // SAFETY: as for gemm.
    unsafe { T::trsm(&TrsmArguments { side, uplo, trans, diag, m, n, a, lda, b, ldb }) };
}

/// Rows of a matrix, each at any address.
#[derive(Clone)]
pub struct Rows<'a, T = f64> {
    pub rows: &'a [&'a [T]],
    /// The elements of each row that are meant.
    pub cols: std::ops::Range<usize>,
}

/// `B := L^-1 R` with L the unit lower triangle of the square `l`, R the rows `from`, B row-major.
pub(crate) fn solve_unit_lower_from<T: Element>(l: MatRef<T>, from: Rows<T>, mut b: MatMut<T>) {
    let shape = (b.rows(), b.rows(), b.rows(), b.cols());
    assert_eq!((l.rows(), l.cols(), from.rows.len(), from.cols.len()), shape, "trsm shapes");
    assert!(from.rows.iter().all(|row| row.len() >= from.cols.end), "elements that are there");
    if b.rows() == 0 || b.cols() == 0 || solve_rows::solve(l, Some(&from), &mut b) {
        return;
    }
    for (i, row) in from.rows.iter().enumerate() {
        b.row_mut(i).copy_from_slice(&row[from.cols.clone()]);
    }
    solve_unit_lower(l, b);
}

/// `x := T^-1 x` with a triangle T of the square matrix `a`.
pub(crate) fn solve_triangle(triangle: Triangle, a: MatRef, x: &mut [f64]) {
    assert_eq!((a.rows(), a.cols()), (x.len(), x.len()), "trsv shapes");
    if x.is_empty() {
        return;
    }
    let is_upper = triangle == Triangle::Upper;
    let diag = if is_upper { b'N' } else { b'U' };
    // A row-major triangle is the transpose of a column-major one.
    let uplo = if is_upper == a.is_col_major() { b'U' } else { b'L' };
    let trans = if a.is_col_major() { b'N' } else { b'T' };
    // SAFETY: as for gemm.
    unsafe {
        (load::functions().dtrsv)(
            &uplo,
            &trans,
            &diag,
            &int(x.len()),
            a.as_ptr(),
            &int(a.ld()),
            x.as_mut_ptr(),
            &1,
            1,
            1,
            1,
        );
    }
}

/// `y := alpha A x + beta y`, with A `m x n`.
pub(crate) fn gemv(alpha: f64, a: MatRef, x: &[f64], beta: f64, y: &mut [f64]) {
    assert_eq!((a.rows(), a.cols()), (y.len(), x.len()), "gemv shapes");
    if y.is_empty() {
        return;
    }
    if x.is_empty() {
        y.iter_mut().for_each(|v| *v *= beta);
        return;
    }
    let (trans, lda) = op(a);
    let (m, n) = if trans == b'N' { (a.rows(), a.cols()) } else { (a.cols(), a.rows()) };
    // SAFETY: as for gemm.
    unsafe {
        (load::functions().dgemv)(
            &trans,
            &int(m),
            &int(n),
            &alpha,
            a.as_ptr(),
            &lda,
            x.as_ptr(),
            &1,
            &beta,
            y.as_mut_ptr(),
            &1,
            1,
        );
    }
}

/// The `trans` letter of the BLAS and the leading dimension of a view.
fn op<T: Element>(a: MatRef<T>) -> (u8, BlasInt) {
    (if a.is_col_major() { b'N' } else { b'T' }, int(a.ld()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn numbers(seed: u64, len: usize) -> Vec<f64> {
        let mut x = seed.wrapping_mul(2).wrapping_add(1);
        (0..len)
            .map(|_| {
                x = x.wrapping_mul(6364136223846793005).wrapping_add(1);
                (x >> 11) as f64 / (1u64 << 53) as f64 - 0.5
            })
            .collect()
    }

    fn view(data: &[f64], rows: usize, cols: usize, ld: usize, by_row: bool) -> MatRef<'_> {
        if by_row {
            MatRef::row_major(data, rows, cols, ld)
        } else {
            MatRef::col_major(data, rows, cols, ld)
        }
    }

    fn view_mut(data: &mut [f64], rows: usize, cols: usize, ld: usize, by_row: bool) -> MatMut<'_> {
        if by_row {
            MatMut::row_major(data, rows, cols, ld)
        } else {
            MatMut::col_major(data, rows, cols, ld)
        }
    }

    proptest! {
        #[test]
        fn solve_from_the_right_undoes_a_product(
            m in 0usize..9, k in 0usize..150, by_row: bool, seed: u64,
        ) {
            let ld = 150;
            // The diagonal dominates, and below it there is junk.
            let mut data: Vec<f32> =
                numbers(seed, ld * ld).into_iter().map(|x| x as f32).collect();
            (0..k).for_each(|i| data[i * (ld + 1)] += 20.0);
            let u = if by_row {
                MatRef::row_major(&data, k, k, ld)
            } else {
                MatRef::col_major(&data, k, k, ld)
            };
            let before: Vec<f32> =
                numbers(seed ^ 1, 9 * ld).into_iter().map(|x| x as f32).collect();
            let mut solved = before.clone();
            solve_upper_from_right(u, MatMut::row_major(&mut solved, m, k, ld));
            for (i, j) in (0..9).flat_map(|i| (0..ld).map(move |j| (i, j))) {
                let had = f64::from(before[i * ld + j]);
                let got = if i < m && j < k {
                    let term = |p: usize| f64::from(solved[i * ld + p]) * f64::from(u.at(p, j));
                    (0..=j).map(term).sum()
                } else {
                    f64::from(solved[i * ld + j])
                };
                prop_assert!((got - had).abs() < 1e-5, "({i}, {j}): {got}, {had}");
            }
        }

        #[test]
        fn gemm_agrees_with_its_formula_in_every_layout(
            m in 0usize..9, n in 0usize..9, k in 0usize..9, layouts in 0u8..8, seed: u64,
        ) {
            let ld = 10;
            let (la, lb, lc) = (layouts & 1 != 0, layouts & 2 != 0, layouts & 4 != 0);
            let (da, db, dc) =
                (numbers(seed, 100), numbers(seed ^ 1, 100), numbers(seed ^ 2, 100));
            let (a, b) = (view(&da, m, k, ld, la), view(&db, k, n, ld, lb));
            let before = view(&dc, m, n, ld, lc);
            let mut data = dc.clone();
            gemm(-0.5, a, b, 2.0, view_mut(&mut data, m, n, ld, lc));
            let after = view(&data, m, n, ld, lc);
            for i in 0..m {
                for j in 0..n {
                    let dot: f64 = (0..k).map(|p| a.at(i, p) * b.at(p, j)).sum();
                    prop_assert!((after.at(i, j) - (2.0 * before.at(i, j) - 0.5 * dot)).abs() < 1e-13);
                }
            }
        }

        #[test]
        fn solves_undo_products(n in 0usize..9, w in 0usize..9, layouts in 0u8..4, seed: u64) {
            let ld = 10;
            let (ll, lb) = (layouts & 1 != 0, layouts & 2 != 0);
            let (dl, db) = (numbers(seed, 100), numbers(seed ^ 1, 100));
            let l = view(&dl, n, n, ld, ll);
            let mut data = db.clone();
            solve_unit_lower(l, view_mut(&mut data, n, w, ld, lb));
            let (x, b) = (view(&data, n, w, ld, lb), view(&db, n, w, ld, lb));
            for i in 0..n {
                for j in 0..w {
                    let back = x.at(i, j) + (0..i).map(|p| l.at(i, p) * x.at(p, j)).sum::<f64>();
                    prop_assert!((back - b.at(i, j)).abs() < 1e-12);
                }
            }
        }

        /// The bits are those of a solve after a copy of the rows.
        #[test]
        fn rows_are_solved_from_where_they_are(
            n in 0usize..20, spare in 0usize..5, w in 0usize..60, by_row: bool, seed: u64,
        ) {
            let dl = numbers(seed, 400);
            let l = view(&dl, n, n, 20, by_row);
            let (count, ld) = (n + spare, w + 3);
            let data = numbers(seed ^ 1, count * ld + 1);
            let order = (0..n).map(|i| (i * 7 + seed as usize % 5) % count);
            let rows: Vec<&[f64]> = order.map(|row| &data[row * ld..(row + 1) * ld]).collect();
            let (mut copied, mut solved) = (vec![0.0; n * ld + 1], vec![0.5; n * ld + 1]);
            let mut b = view_mut(&mut copied, n, w, ld, true);
            for (i, row) in rows.iter().enumerate() {
                b.row_mut(i).copy_from_slice(&row[2..w + 2]);
            }
            solve_unit_lower(l, b);
            let b = view_mut(&mut solved, n, w, ld, true);
            solve_unit_lower_from(l, Rows { rows: &rows, cols: 2..w + 2 }, b);
            for i in 0..n {
                prop_assert_eq!(&copied[i * ld..i * ld + w], &solved[i * ld..i * ld + w]);
                prop_assert!(solved[i * ld + w..(i + 1) * ld].iter().all(|&x| x == 0.5));
            }
        }

        #[test]
        fn upper_solve_divides_by_subnormals(n in 1usize..9, by_row: bool) {
            let least = f64::from_bits(1);
            let mut du = vec![0.0; 100];
            (0..10).for_each(|i| du[i * 11] = 3.0 * least);
            let mut x = vec![12.0 * least; n];
            solve_triangle(Triangle::Upper, view(&du, n, n, 10, by_row), &mut x);
            prop_assert_eq!(x, vec![4.0; n]);
        }

        #[test]
        fn upper_solve_and_gemv(n in 0usize..9, by_row: bool, seed: u64) {
            let mut du = numbers(seed, 100);
            for i in 0..10 { du[i * 11] += 2.0; }
            let u = view(&du, n, n, 10, by_row);
            let b = numbers(seed ^ 3, n);
            let mut x = b.clone();
            solve_triangle(Triangle::Upper, u, &mut x);
            for (i, &bi) in b.iter().enumerate() {
                let back: f64 = (i..n).map(|p| u.at(i, p) * x[p]).sum();
                prop_assert!((back - bi).abs() < 1e-12);
            }
            let mut y = b.clone();
            gemv(-1.0, u, &x, 1.0, &mut y);
            for i in 0..n {
                let want = b[i] - (0..n).map(|p| u.at(i, p) * x[p]).sum::<f64>();
                prop_assert!((y[i] - want).abs() < 1e-12);
            }
        }
    }
}
