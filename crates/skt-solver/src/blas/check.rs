//! Checks what a BLAS computes, in all small sizes and in those of a run.
//!
//! Libraries have computed wrong numbers on processors newer than they are, and where rows or
//! columns are left over that fill no kernel. So each size of a side up to that of any kernel is
//! checked, next to a wide side. Matrices of small integers have exact products in any order of the
//! sums, so each wrong element shows:
//!
//! ```text
//! (C - A B) x = C x - A (B x)      n^2 operations for a check, not n^3
//! ```

use std::iter;
use std::ops::RangeInclusive;

use super::element::TrsmArguments;
use super::ffi::int;
use super::{Element, MatMut, MatRef, Triangle, gemm, gemv, solve_triangle};

/// What depends on the checks that a library has passed: another number, other checks.
pub const VERSION: u32 = 1;

/// The sides that are checked one by one: all remainders of the sizes of kernels, at most 48.
const SIZES: RangeInclusive<usize> = 1..=49;
/// The other side: one less than a multiple of the sizes of most kernels, so that what is left over
/// there needs all kernels for remainders, too.
const MEDIUM: usize = 95;
/// The other side in the layouts of the trailing matrix: such that libraries do not take products
/// of more than some tens of rows for small ones, which have other kernels.
const WIDE: usize = 767;
/// A product that is cut into blocks for caches, and between threads.
const LARGE: (usize, usize) = (768, 384);
const NARROW: usize = 5;
/// The deepest product checked, so that no user's depth takes too long; libraries cut deeper ones.
const MAX_DEPTH: usize = 1024;
/// The depth of products if no run is known.
const DEPTH: usize = 192;
const MAX_TRIANGLE: usize = 384;
/// What TRSM is called with: side, triangle, transposition and diagonal.
const SOLVES: [[u8; 4]; 6] = [*b"RLTU", *b"RUNU", *b"LLNU", *b"LUTU", *b"LUTN", *b"LLNN"];

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} computes wrong numbers")]
pub struct Wrong(String);

/// Checks the functions of the BLAS that this process calls, for products of `depths` (the k of
/// GEMM), which are the NBs of a run. Calls `step` before each function, with its name.
pub fn check(depths: &[usize], mut step: impl FnMut(&str)) -> Result<(), Wrong> {
    step("dgemm");
    check_products::<f64>("dgemm", depths)?;
    check_rounding::<f64>("dgemm", f64::EPSILON)?;
    step("sgemm");
    check_products::<f32>("sgemm", depths)?;
    check_rounding::<f32>("sgemm", f64::from(f32::EPSILON))?;
    step("dtrsm");
    check_solves::<f64>("dtrsm", depths, 1e-10)?;
    step("strsm");
    check_solves::<f32>("strsm", depths, 0.05)?;
    step("dtrsv");
    check_triangles(depths)?;
    step("dgemv");
    check_vectors()
}

/// Operations for which making and checking an element of a product counts.
const OWN: usize = 100;
const OF_SOLVES: f64 = 1e9;

/// The operations of a [`check`], about, with those that make and check the matrices.
pub fn operations(depths: &[usize]) -> f64 {
    let of = |Products { rows, cols, depth, layouts }: Products| {
        2.0 * (rows.sum::<usize>() * cols * (depth + OWN) * layouts.len()) as f64
    };
    2.0 * products(depths).into_iter().map(of).sum::<f64>() + OF_SOLVES
}

struct Products {
    rows: RangeInclusive<usize>,
    cols: usize,
    depth: usize,
    layouts: &'static [u8],
}

/// The bits of a layout: whether A, B and C are row-major.
const LAYOUTS: [u8; 8] = [0, 1, 2, 3, 4, 5, 6, 7];
/// The layouts in which a BLAS, to which all matrices are column-major, transposes nothing, as in
/// the trailing matrix: its rows are few, or its columns.
const PLAIN: [u8; 2] = [0, 7];

fn products(depths: &[usize]) -> Vec<Products> {
    let mut all = Vec::new();
    let mut add = |rows, cols, depth, layouts| all.push(Products { rows, cols, depth, layouts });
    for depth in checked(depths) {
        add(SIZES, WIDE, depth, &PLAIN);
        add(SIZES, MEDIUM, depth, &LAYOUTS[1..7]);
        add(LARGE.0..=LARGE.0, LARGE.1, depth, &PLAIN[1..]);
    }
    for depth in SIZES {
        add(MEDIUM..=MEDIUM, MEDIUM, depth, &LAYOUTS);
    }
    // A panel is factored in halves.
    let parts = |depth: usize| iter::successors(Some(depth), |k| (*k > 1).then_some(k / 2));
    for depth in checked(depths).into_iter().flat_map(parts).chain(SIZES) {
        add(NARROW..=NARROW, WIDE, depth, &PLAIN);
    }
    all
}

fn checked(depths: &[usize]) -> Vec<usize> {
    let depths = if depths.is_empty() { &[DEPTH] } else { depths };
    depths.iter().map(|depth| (*depth).clamp(1, MAX_DEPTH)).collect()
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

    /// Odd numbers, which are not 0: factors of the elements of a sum.
    fn factors(&mut self, len: usize) -> Vec<f64> {
        (0..len).map(|_| f64::from(2 * self.next() + 1)).collect()
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

fn room(rows: usize, cols: usize) -> usize {
    (rows + 3) * (cols + 3)
}

/// `A x`, in double precision.
fn times<T: Element>(a: MatRef<T>, x: &[f64]) -> Vec<f64> {
    if !a.is_col_major() {
        return (0..a.rows()).map(|i| dot(a.row(i), x)).collect();
    }
    let mut y = vec![0.0; a.rows()];
    for (j, &x) in x.iter().enumerate() {
        for (y, &a) in y.iter_mut().zip(a.col(j)) {
            *y += a.into() * x;
        }
    }
    y
}

/// The sum of products, of which some are added at once.
fn dot<T: Element>(a: &[T], x: &[f64]) -> f64 {
    let mut sums = [0.0; 8];
    for (a, x) in a.chunks(8).zip(x.chunks(8)) {
        for ((sum, &a), x) in sums.iter_mut().zip(a).zip(x) {
            *sum += a.into() * x;
        }
    }
    sums.iter().sum()
}

/// Whether two contents of the memory of a view of `rows` and `cols` differ in the view alone.
fn is_kept<T: Element>(before: &[T], after: &[T], rows: usize, cols: usize, by_row: bool) -> bool {
    let (lines, len) = if by_row { (rows, cols) } else { (cols, rows) };
    let outside = |line: usize| if line < lines { len } else { 0 };
    let both = before.chunks(len + 3).zip(after.chunks(len + 3)).enumerate();
    both.into_iter()
        .all(|(line, (before, after))| before[outside(line)..] == after[outside(line)..])
}

/// Checks products of integers, `C := C - A B`, as in the update of the trailing matrix.
fn check_products<T: Element>(name: &str, depths: &[usize]) -> Result<(), Wrong> {
    /// Where B and C begin in the numbers; A is at their start.
    const B: usize = 131;
    const C: usize = 257;
    let deepest = checked(depths).into_iter().max().unwrap_or(DEPTH).max(LARGE.1);
    let mut integers = Integers(1);
    let numbers: Vec<T> = integers.fill(C + room(LARGE.0, deepest));
    let factors = integers.factors(WIDE);
    for Products { rows, cols: n, depth: k, layouts } in products(depths) {
        for layout in layouts {
            let [a_by_row, b_by_row, c_by_row] = [1, 2, 4].map(|bit| layout & bit != 0);
            let (b, x) = (view(&numbers[B..], k, n, b_by_row), &factors[..n]);
            let bx = times(b, x);
            for m in rows.clone() {
                let a = view(&numbers, m, k, a_by_row);
                let before = &numbers[C..C + room(m, n)];
                let mut after = before.to_vec();
                gemm(T::MINUS_ONE, a, b, T::ONE, view_mut(&mut after, m, n, c_by_row));
                let product = times(a, &bx);
                let was = times(view(before, m, n, c_by_row), x);
                let is = times(view(&after, m, n, c_by_row), x);
                let is_right = (0..m).all(|i| is[i] == was[i] - product[i]);
                if !is_right || !is_kept(before, &after, m, n, c_by_row) {
                    // As the library counts rows and columns.
                    let (m, n) = if c_by_row { (n, m) } else { (m, n) };
                    return Err(wrong(name, &format!("{m} x {n}, k = {k}")));
                }
            }
        }
    }
    Ok(())
}

fn wrong(name: &str, shape: &str) -> Wrong {
    Wrong(format!("{name} ({shape})"))
}

/// Checks that products are not rounded to a shorter type: their numbers have all bits.
fn check_rounding<T: Element>(name: &str, epsilon: f64) -> Result<(), Wrong> {
    let (m, n, k) = (49, 97, 64);
    let number = |i: usize| T::rounded((i as f64 * 2f64.sqrt()).fract() + 0.5);
    let a: Vec<T> = (0..room(m, k)).map(number).collect();
    let b: Vec<T> = (0..room(k, n)).map(|i| number(i + 7)).collect();
    let (a, b) = (view(&a, m, k, true), view(&b, k, n, true));
    // With beta = 0, whatever is there must not count.
    let mut c = vec![T::rounded(f64::NAN); room(m, n)];
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

/// Triangles of up to this order whose inverses are of their size, as leading blocks of one, with 2
/// on the diagonal. On the other side there are numbers that do not count.
fn triangles<T: Element>(order: usize, integers: &mut Integers) -> Vec<T> {
    let number = |at| {
        let number = f64::from(integers.next()) / 128.0;
        T::rounded(if at % (order + 4) == 0 { 2.0 } else { number })
    };
    (0..room(order, order)).map(number).collect()
}

fn orders(depths: &[usize]) -> impl Iterator<Item = usize> {
    checked(depths).into_iter().map(|depth| depth.min(MAX_TRIANGLE))
}

/// Checks the solves of `dtrsm` and `strsm` that the program uses: `T X = B` (column-major, from
/// the left), or `X T = B`. Compares T X with B; in the direction that is not T's, sums.
fn check_solves<T: Element>(name: &str, depths: &[usize], tolerance: f64) -> Result<(), Wrong> {
    let mut integers = Integers(2);
    let order = orders(depths).max().unwrap_or(DEPTH).max(MEDIUM);
    let data: Vec<T> = triangles(order, &mut integers);
    let stored = MatRef::col_major(&data, order, order, order + 3);
    let numbers: Vec<T> = integers.fill(room(order, MEDIUM));
    let factors = integers.factors(MEDIUM);
    for letters in SOLVES {
        let [side, uplo, trans, diag] = letters;
        let (from_right, is_transposed) = (side == b'R', trans == b'T');
        // X T = B is T' X' = B'.
        let at = |i: usize, j: usize| -> f64 {
            let (i, j) = if is_transposed != from_right { (j, i) } else { (i, j) };
            match if uplo == b'U' { j.checked_sub(i) } else { i.checked_sub(j) } {
                None => 0.0,
                Some(0) if diag == b'U' => 1.0,
                Some(_) => stored.at(i, j).into(),
            }
        };
        let all = (0..order * order).map(|index| at(index / order, index % order));
        let triangle: Vec<f64> = all.collect();
        let triangle = MatRef::row_major(&triangle, order, order, order);
        let shapes = SIZES.map(|k| (k, MEDIUM)).chain(SIZES.map(|n| (MEDIUM, n)));
        for (k, n) in shapes.chain(orders(depths).map(|k| (k, 8))) {
            let (rows, cols) = if from_right { (n, k) } else { (k, n) };
            let before = &numbers[..room(rows, cols)];
            let mut after = before.to_vec();
            let arguments = TrsmArguments {
                side,
                uplo,
                trans,
                diag,
                m: int(rows),
                n: int(cols),
                a: stored.as_ptr(),
                lda: int(stored.ld()),
                b: after.as_mut_ptr(),
                ldb: int(rows + 3),
            };
            // SAFETY: the memory has these shapes and leading dimensions, B's exclusively.
            unsafe { T::trsm(&arguments) };
            let sums = |data: &[T]| {
                let matrix = view(data, rows, cols, false);
                times(if from_right { matrix.t() } else { matrix }, &factors[..n])
            };
            let product = times(triangle.block(0..k, 0..k), &sums(&after));
            let is_right =
                product.iter().zip(sums(before)).all(|(is, want)| (is - want).abs() <= tolerance);
            if !is_right || !is_kept(before, &after, rows, cols, false) {
                return Err(wrong(name, &format!("order {k}, {n} columns")));
            }
        }
    }
    Ok(())
}

fn check_triangles(depths: &[usize]) -> Result<(), Wrong> {
    let mut integers = Integers(3);
    let order = orders(depths).max().unwrap_or(DEPTH).max(MEDIUM);
    let data: Vec<f64> = triangles(order, &mut integers);
    for k in SIZES.chain(orders(depths)) {
        for (kind, is_upper) in [(Triangle::UnitLower, false), (Triangle::Upper, true)] {
            for by_row in [false, true] {
                let t = view(&data, order, order, by_row).block(0..k, 0..k);
                let x: Vec<f64> = (0..k).map(|_| f64::from(integers.next())).collect();
                let row = |i: usize| -> f64 {
                    let on_diagonal = if is_upper { t.at(i, i) * x[i] } else { x[i] };
                    let others = if is_upper { i + 1..k } else { 0..i };
                    on_diagonal + others.map(|j| t.at(i, j) * x[j]).sum::<f64>()
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

fn check_vectors() -> Result<(), Wrong> {
    let mut integers = Integers(4);
    let (numbers, vectors) =
        (integers.fill::<f64>(room(WIDE, MEDIUM)), integers.fill::<f64>(2 * WIDE));
    for (m, n) in SIZES.map(|m| (m, WIDE)).chain(SIZES.map(|n| (WIDE, n))) {
        for by_row in [false, true] {
            let (a, (x, before)) = (view(&numbers, m, n, by_row), vectors.split_at(n));
            let mut y = before[..m].to_vec();
            gemv(-1.0, a, x, 1.0, &mut y);
            let product = times(a, x);
            let is_right = (0..m).all(|i| y[i] == before[i] - product[i]);
            is_right.then_some(()).ok_or_else(|| wrong("dgemv", &format!("{m} x {n}")))?;
        }
    }
    Ok(())
}

/// Seconds of a floating-point operation in plain loops here now: what the slowest library needs.
pub fn plain_seconds_an_operation() -> f64 {
    const N: usize = 128;
    let mut integers = Integers(5);
    let (a, b) = (integers.fill::<f64>(N * N), integers.fill::<f64>(N * N));
    let (a, b) = (MatRef::row_major(&a, N, N, N), MatRef::col_major(&b, N, N, N));
    let start = std::time::Instant::now();
    for (i, j) in (0..N).flat_map(|i| (0..N).map(move |j| (i, j))) {
        let (a, b) = std::hint::black_box((a.row(i), b.col(j)));
        std::hint::black_box(a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>());
    }
    start.elapsed().as_secs_f64() / (2 * N * N * N) as f64
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::ffi::c_int;

    use super::super::ffi::Functions;
    use super::super::load::{PLANTED, library};
    use super::*;

    #[test]
    fn the_default_library_passes_and_each_function_is_named() {
        let mut steps = Vec::new();
        check(&[64, 192], |step| steps.push(step.to_owned())).unwrap();
        assert_eq!(steps, ["dgemm", "sgemm", "dtrsm", "strsm", "dtrsv", "dgemv"]);
        assert!(operations(&[64, 192]) > operations(&[64]));
        assert!(plain_seconds_an_operation() > 0.0);
    }

    /// The function that is wrong, and the sizes at which it is: this one modulo 16.
    type Fault = (&'static str, usize, usize);

    thread_local! {
        static FAULT: Cell<Option<Fault>> = const { Cell::new(None) };
    }

    fn is_wrong(function: &str, sizes: &[*const c_int]) -> bool {
        let is_it = |(name, side, remainder): Fault| {
            // SAFETY: the caller's arguments.
            name == function && unsafe { *sizes[side] } % 16 == remainder as c_int
        };
        FAULT.get().is_some_and(is_it)
    }

    unsafe fn last<T>(
        matrix: *mut T,
        m: *const c_int,
        n: *const c_int,
        ld: *const c_int,
    ) -> *mut T {
        // SAFETY: the caller's arguments.
        unsafe { matrix.add((*m - 1 + (*n - 1) * *ld) as usize) }
    }

    macro_rules! planted {
        ($name:ident($($arg:ident: $type:ty),*), $sizes:expr, $last:expr) => {
            #[allow(clippy::too_many_arguments)]
            unsafe extern "C" fn $name($($arg: $type),*) {
                // SAFETY: the caller's arguments.
                unsafe {
                    (library().functions.$name)($($arg),*);
                    if is_wrong(stringify!($name), &$sizes) {
                        *$last += 1.0;
                    }
                }
            }
        };
    }
    type I = *const c_int;
    type L = *const u8;
    macro_rules! planted_gemm {
        ($name:ident, $t:ty) => {
            planted!(
                $name(
                    ta: L, tb: L, m: I, n: I, k: I, alpha: *const $t, a: *const $t, lda: I,
                    b: *const $t, ldb: I, beta: *const $t, c: *mut $t, ldc: I, l1: usize, l2: usize
                ),
                [m, n, k],
                last(c, m, n, ldc)
            );
        };
    }
    macro_rules! planted_trsm {
        ($name:ident, $t:ty) => {
            planted!(
                $name(
                    side: L, uplo: L, trans: L, diag: L, m: I, n: I, alpha: *const $t, a: *const $t,
                    lda: I, b: *mut $t, ldb: I, l1: usize, l2: usize, l3: usize, l4: usize
                ),
                if *side == b'L' { [m, n] } else { [n, m] },
                last(b, m, n, ldb)
            );
        };
    }
    planted_gemm!(dgemm, f64);
    planted_gemm!(sgemm, f32);
    planted_trsm!(dtrsm, f64);
    planted_trsm!(strsm, f32);
    planted!(
        dtrsv(
            uplo: L, trans: L, diag: L, n: I, a: *const f64, lda: I, x: *mut f64, step: I,
            l1: usize, l2: usize, l3: usize
        ),
        [n],
        x.add(*n as usize - 1)
    );
    planted!(
        dgemv(
            trans: L, m: I, n: I, alpha: *const f64, a: *const f64, lda: I, x: *const f64, dx: I,
            beta: *const f64, y: *mut f64, dy: I, l1: usize
        ),
        if *trans == b'N' { [m, n] } else { [n, m] },
        y.add(if *trans == b'N' { *m } else { *n } as usize - 1)
    );

    type Check<'c> = &'c dyn Fn() -> Result<(), Wrong>;

    fn found(check: Check) -> Option<String> {
        static PLANTED_ONES: Functions = Functions { dgemm, dtrsm, dtrsv, dgemv, sgemm, strsm };
        PLANTED.set(Some(&PLANTED_ONES));
        let Err(Wrong(what)) = check() else { return None };
        Some(what.split(' ').next().unwrap_or_default().to_owned())
    }

    /// OpenBLAS 5997: on each Raspberry Pi 4, where six rows are left over.
    #[test]
    fn a_library_wrong_for_one_remainder_alone_is_found() {
        const NB: [usize; 1] = [40];
        let checks: [(&str, usize, Check); 6] = [
            ("dgemm", 3, &|| check_products::<f64>("dgemm", &NB)),
            ("sgemm", 3, &|| check_products::<f32>("sgemm", &NB)),
            ("dtrsm", 2, &|| check_solves::<f64>("dtrsm", &NB, 1e-10)),
            ("strsm", 2, &|| check_solves::<f32>("strsm", &NB, 0.05)),
            ("dtrsv", 1, &|| check_triangles(&NB)),
            ("dgemv", 2, &check_vectors),
        ];
        for (function, sides, check) in checks {
            FAULT.set(None);
            assert_eq!(found(check), None, "{function}");
            for (side, remainder) in (0..sides).flat_map(|side| (0..16).map(move |r| (side, r))) {
                FAULT.set(Some((function, side, remainder)));
                let at = format!("{function}, side {side}, {remainder} modulo 16");
                assert_eq!(found(check).as_deref(), Some(function), "{at}");
            }
        }
    }
}
