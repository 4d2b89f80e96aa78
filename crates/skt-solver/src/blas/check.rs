//! Checks what a BLAS computes, in awkward shapes and in those of a run.
//!
//! Libraries have computed wrong numbers on processors newer than they are. Matrices of small
//! integers have exact products in any order of the sums, so each wrong element shows:
//!
//! ```text
//! (C - A B) x = C x - A (B x)      n^2 operations for a check, not n^3
//! ```

use std::iter;

use super::element::TrsmArguments;
use super::ffi::int;
use super::{Element, MatMut, MatRef, Triangle, gemm, gemv, solve_triangle};

/// Rows and columns of products: around the sizes of the kernels of all libraries.
const SIZES: [usize; 10] = [1, 2, 3, 7, 8, 9, 31, 48, 49, 97];
/// A product that is cut into blocks for caches, and between threads.
const LARGE: (usize, usize) = (768, 384);
/// Products within a panel, and their depths besides parts of NB.
const NARROW: [(usize, usize); 2] = [(768, 5), (5, 768)];
const NARROW_DEPTHS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
/// The orders of triangles.
const TRIANGLES: [usize; 5] = [1, 2, 7, 48, 97];
/// The largest order of a triangle, as its right side is made by plain loops.
const MAX_TRIANGLE: usize = 384;

/// A wrong result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} computes wrong numbers")]
pub struct Wrong(String);

/// Checks the functions of the BLAS that this process calls, for products of `depths` (the k of
/// GEMM), which are the NBs of a run. Calls `step` before each function, with its name.
///
/// # Errors
/// When a result is wrong.
pub fn check(depths: &[usize], mut step: impl FnMut(&str)) -> Result<(), Wrong> {
    step("dgemm");
    check_products::<f64>("dgemm", depths)?;
    check_rounding::<f64>("dgemm", f64::EPSILON)?;
    step("sgemm");
    check_products::<f32>("sgemm", depths)?;
    check_rounding::<f32>("sgemm", f64::from(f32::EPSILON))?;
    step("dtrsm");
    check_solves::<f64>("dtrsm", depths, 1e-12)?;
    step("strsm");
    check_solves::<f32>("strsm", depths, 1e-4)?;
    step("dtrsv");
    check_triangles()?;
    step("dgemv");
    check_vectors()
}

/// Operations for which making and checking an element of a product counts.
const OWN: usize = 100;
/// The operations of the solves, about.
const SOLVES: f64 = 1e8;

/// The operations of a [`check`], about, with those that make and check the matrices.
pub fn operations(depths: &[usize]) -> f64 {
    let shapes = SIZES.into_iter().flat_map(|m| SIZES.map(|n| (4 * m, n)));
    let elements: usize = shapes.chain([LARGE]).map(|(m, n)| m * n).sum();
    let of_depth = |k: usize| 2.0 * (elements * (k + OWN)) as f64;
    2.0 * depths_with(depths).map(of_depth).sum::<f64>() + SOLVES
}

/// Short depths, and those of the run.
fn depths_with(depths: &[usize]) -> impl Iterator<Item = usize> {
    [1, 8].into_iter().chain(depths.iter().copied())
}

/// Pseudo-random numbers in steps of 1, from -8 to 8.
struct Integers(u64);

impl Integers {
    fn next(&mut self) -> i32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as i32 % 17 - 8
    }

    fn fill<T: Element>(&mut self, len: usize) -> Vec<T> {
        (0..len).map(|_| T::rounded(f64::from(self.next()))).collect()
    }
}

fn view<T: Element>(data: &[T], rows: usize, cols: usize, by_row: bool) -> MatRef<'_, T> {
    if by_row {
        MatRef::row_major(data, rows, cols, cols + 3)
    } else {
        MatRef::col_major(data, rows, cols, rows + 3)
    }
}

fn view_mut<T: Element>(data: &mut [T], rows: usize, cols: usize, by_row: bool) -> MatMut<'_, T> {
    if by_row {
        MatMut::row_major(data, rows, cols, cols + 3)
    } else {
        MatMut::col_major(data, rows, cols, rows + 3)
    }
}

/// The numbers of a matrix in either layout.
fn room(rows: usize, cols: usize) -> usize {
    (rows + 3) * (cols + 3)
}

/// `A x`, in double precision.
fn times<T: Element>(a: MatRef<T>, x: &[f64]) -> Vec<f64> {
    let mut y = vec![0.0; a.rows()];
    if a.is_col_major() {
        for (j, &x) in x.iter().enumerate() {
            y.iter_mut().zip(a.col(j)).for_each(|(y, &a)| *y += a.into() * x);
        }
    } else {
        for (i, y) in y.iter_mut().enumerate() {
            *y = a.row(i).iter().zip(x).map(|(&a, x)| a.into() * x).sum();
        }
    }
    y
}

/// Checks products of integers in all layouts: `C := C - A B`, as in the update of the trailing
/// matrix, and `C := A B`.
fn check_products<T: Element>(name: &str, depths: &[usize]) -> Result<(), Wrong> {
    let mut integers = Integers(1);
    for k in depths_with(depths) {
        let sizes = SIZES.into_iter().flat_map(|m| SIZES.map(|n| (m, n)));
        for (m, n) in sizes {
            for layout in 0..4 {
                check_product::<T>(name, (m, n, k), layout, &mut integers)?;
            }
        }
        check_product::<T>(name, (LARGE.0, LARGE.1, k), 3, &mut integers)?;
    }
    let parts = |depth: usize| iter::successors(Some(depth), |k| (*k > 1).then_some(k / 2));
    for k in depths.iter().flat_map(|&depth| parts(depth)).chain(NARROW_DEPTHS) {
        for (m, n) in NARROW {
            check_product::<T>(name, (m, n, k), 3, &mut integers)?;
        }
    }
    Ok(())
}

fn check_product<T: Element>(
    name: &str,
    (m, n, k): (usize, usize, usize),
    layout: u8,
    integers: &mut Integers,
) -> Result<(), Wrong> {
    let (a, b) = (integers.fill::<T>(room(m, k)), integers.fill::<T>(room(k, n)));
    let (a, b) = (view(&a, m, k, layout & 1 != 0), view(&b, k, n, layout & 2 != 0));
    let before = integers.fill::<T>(room(m, n));
    let is_update = (m + n + k) % 2 == 0 || m.max(n) == LARGE.0;
    let (alpha, beta) = if is_update { (T::MINUS_ONE, T::ONE) } else { (T::ONE, T::ZERO) };
    let mut after = before.clone();
    let mut c = view_mut(&mut after, m, n, true);
    if !is_update {
        // With beta = 0, whatever is there must not count.
        (0..m * n).for_each(|at| c.set(at / n, at % n, T::rounded(f64::NAN)));
    }
    gemm(alpha, a, b, beta, c);
    let x: Vec<f64> = (0..n).map(|_| f64::from(integers.next())).map(|x| x * 2.0 + 1.0).collect();
    let product = times(a, &times(b, &x));
    let was = times(view(&before, m, n, true), &x);
    let is = times(view(&after, m, n, true), &x);
    let (alpha, beta): (f64, f64) = (alpha.into(), beta.into());
    // Nothing but C may change: the last numbers of each row are not part of it.
    let ld = n + 3;
    let is_outside = |at: &usize| at % ld >= n || at / ld >= m;
    let is_kept = (0..before.len()).filter(is_outside).all(|at| before[at] == after[at]);
    let is_right = (0..m).all(|i| is[i] == alpha * product[i] + beta * was[i]);
    if is_right && is_kept { Ok(()) } else { Err(wrong(name, &format!("{m} x {n}, k = {k}"))) }
}

fn wrong(name: &str, shape: &str) -> Wrong {
    Wrong(format!("{name} ({shape})"))
}

/// Checks that products are rounded to their type, not to a shorter one: each element of a product
/// of numbers with all bits is compared.
fn check_rounding<T: Element>(name: &str, epsilon: f64) -> Result<(), Wrong> {
    let (m, n, k) = (49, 97, 64);
    let number = |i: usize| T::rounded((i as f64 * 2f64.sqrt()).fract() + 0.5);
    let a: Vec<T> = (0..room(m, k)).map(number).collect();
    let b: Vec<T> = (0..room(k, n)).map(|i| number(i + 7)).collect();
    let (a, b) = (view(&a, m, k, true), view(&b, k, n, true));
    let mut c = vec![T::ZERO; room(m, n)];
    gemm(T::ONE, a, b, T::ZERO, view_mut(&mut c, m, n, true));
    let c = view(&c, m, n, true);
    let product = |i, j| -> f64 { (0..k).map(|p| a.at(i, p).into() * b.at(p, j).into()).sum() };
    let is_right = |i, j| {
        let (is, expected): (f64, f64) = (c.at(i, j).into(), product(i, j));
        (is - expected).abs() <= k as f64 * epsilon * expected
    };
    let all = (0..m).all(|i| (0..n).all(|j| is_right(i, j)));
    if all { Ok(()) } else { Err(wrong(name, &format!("{m} x {n}, k = {k}, all bits"))) }
}

/// A triangle of order `k` whose inverse is of its size, with 1 on the diagonal, or `diagonal`.
fn triangle<T: Element>(k: usize, diagonal: f64, integers: &mut Integers) -> Vec<T> {
    let ld = k + 3;
    let mut data: Vec<T> =
        (0..room(k, k)).map(|_| T::rounded(f64::from(integers.next()) / (8 * k) as f64)).collect();
    (0..k).for_each(|i| data[i * (ld + 1)] = T::rounded(diagonal));
    data
}

/// Checks the solves of `dtrsm` and `strsm` that the program uses.
fn check_solves<T: Element>(name: &str, depths: &[usize], tolerance: f64) -> Result<(), Wrong> {
    let mut integers = Integers(2);
    let shapes = TRIANGLES.into_iter().flat_map(|k| [1, 8, 97].map(|n| (k, n)));
    let of_run = depths.iter().map(|&depth| (depth.min(MAX_TRIANGLE), 8));
    for (k, n) in shapes.chain(of_run) {
        for case in 0..8u8 {
            let is_right = check_solve::<T>(k, n, case, tolerance, &mut integers);
            is_right.then_some(()).ok_or_else(|| wrong(name, &format!("{k} x {n}")))?;
        }
    }
    Ok(())
}

/// Solves `T X = B` (column-major, from the left), or `X T = B`, and compares X with the one from
/// which B was computed. The bits of `case`: from the right, upper, transposed.
fn check_solve<T: Element>(
    k: usize,
    n: usize,
    case: u8,
    tolerance: f64,
    integers: &mut Integers,
) -> bool {
    let [from_right, is_upper, is_transposed] = [1, 2, 4].map(|bit| case & bit != 0);
    let diagonal = if is_upper { 2.0 } else { 1.0 };
    let t: Vec<T> = triangle(k, diagonal, integers);
    let stored = MatRef::col_major(&t, k, k, k + 3);
    // What is stored on the other side of the diagonal does not count.
    let at = |i: usize, j: usize| -> f64 {
        let (i, j) = if is_transposed { (j, i) } else { (i, j) };
        let counts = if is_upper { i <= j } else { i >= j };
        if counts { stored.at(i, j).into() } else { 0.0 }
    };
    let (rows, cols) = if from_right { (n, k) } else { (k, n) };
    let x: Vec<f64> = (0..rows * cols).map(|_| f64::from(integers.next())).collect();
    let x_at = |i: usize, j: usize| x[j * rows + i];
    let mut b = vec![T::ZERO; room(rows, cols)];
    let mut view = MatMut::col_major(&mut b, rows, cols, rows + 3);
    for (i, j) in (0..rows).flat_map(|i| (0..cols).map(move |j| (i, j))) {
        let sum: f64 = if from_right {
            (0..k).map(|p| x_at(i, p) * at(p, j)).sum()
        } else {
            (0..k).map(|p| at(i, p) * x_at(p, j)).sum()
        };
        view.set(i, j, T::rounded(sum));
    }
    let arguments = TrsmArguments {
        side: if from_right { b'R' } else { b'L' },
        uplo: if is_upper { b'U' } else { b'L' },
        trans: if is_transposed { b'T' } else { b'N' },
        diag: if is_upper { b'N' } else { b'U' },
        m: int(rows),
        n: int(cols),
        a: stored.as_ptr(),
        lda: int(stored.ld()),
        b: view.as_mut_ptr(),
        ldb: int(rows + 3),
    };
    // SAFETY: the views have these shapes and leading dimensions, and B is borrowed exclusively.
    unsafe { T::trsm(&arguments) };
    let is_near = |i, j| (view.as_ref().at(i, j).into() - x_at(i, j)).abs() <= tolerance * 8.0;
    (0..rows).all(|i| (0..cols).all(|j| is_near(i, j)))
}

/// Checks `dtrsv`.
fn check_triangles() -> Result<(), Wrong> {
    let mut integers = Integers(3);
    for k in TRIANGLES {
        for (kind, diagonal) in [(Triangle::UnitLower, 1.0), (Triangle::Upper, 2.0)] {
            for by_row in [false, true] {
                let t: Vec<f64> = triangle(k, diagonal, &mut integers);
                let t = view(&t, k, k, by_row);
                let x: Vec<f64> = (0..k).map(|_| f64::from(integers.next())).collect();
                let counts = |i: usize, j: usize| if diagonal == 1.0 { i >= j } else { i <= j };
                let row = |i: usize| -> f64 {
                    (0..k).filter(|&j| counts(i, j)).map(|j| t.at(i, j) * x[j]).sum()
                };
                let mut b: Vec<f64> = (0..k).map(row).collect();
                solve_triangle(kind, t, &mut b);
                let is_right = b.iter().zip(&x).all(|(b, x)| (b - x).abs() <= 1e-11);
                is_right.then_some(()).ok_or_else(|| wrong("dtrsv", &format!("order {k}")))?;
            }
        }
    }
    Ok(())
}

/// Checks `dgemv`.
fn check_vectors() -> Result<(), Wrong> {
    let mut integers = Integers(4);
    for (m, n) in SIZES.into_iter().flat_map(|m| SIZES.map(|n| (m, n))) {
        for by_row in [false, true] {
            let a = integers.fill::<f64>(room(m, n));
            let a = view(&a, m, n, by_row);
            let (x, before) = (integers.fill::<f64>(n), integers.fill::<f64>(m));
            let mut y = before.clone();
            gemv(-1.0, a, &x, 1.0, &mut y);
            let product = times(a, &x);
            let is_right = (0..m).all(|i| y[i] == before[i] - product[i]);
            is_right.then_some(()).ok_or_else(|| wrong("dgemv", &format!("{m} x {n}")))?;
        }
    }
    Ok(())
}

/// Seconds that a floating-point operation takes in plain loops on this machine now: what the
/// slowest library needs.
pub fn plain_seconds_an_operation() -> f64 {
    const N: usize = 128;
    let mut integers = Integers(5);
    let (a, b) = (integers.fill::<f64>(N * N), integers.fill::<f64>(N * N));
    let (a, b) = (MatRef::row_major(&a, N, N, N), MatRef::col_major(&b, N, N, N));
    let start = std::time::Instant::now();
    for j in 0..N {
        std::hint::black_box(times(a, std::hint::black_box(b.col(j))));
    }
    start.elapsed().as_secs_f64() / (2 * N * N * N) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_linked_library_passes_and_each_function_is_named() {
        let mut steps = Vec::new();
        check(&[64, 192], |step| steps.push(step.to_owned())).unwrap();
        assert_eq!(steps, ["dgemm", "sgemm", "dtrsm", "strsm", "dtrsv", "dgemv"]);
        assert!(operations(&[64, 192]) > operations(&[64]));
        assert!(plain_seconds_an_operation() > 0.0);
    }
}
