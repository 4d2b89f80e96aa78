//! Each function against plain loops, for each instruction set of this processor.

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use skt_host::vectors::Vectors;

use super::gemm::{Shape, gemm};
use super::kernel::Number;
use super::room::with_room;
use super::strided::Strided;
use super::triangle::{Triangle, solve, solve_vector};
use super::vector::gemv;

trait Tested: Number + Into<f64> {
    const EPSILON: f64;
    fn rounded(value: f64) -> Self;
    fn bits(self) -> u64;
}

impl Tested for f64 {
    const EPSILON: f64 = f64::EPSILON;
    fn rounded(value: f64) -> Self {
        value
    }
    fn bits(self) -> u64 {
        self.to_bits()
    }
}

impl Tested for f32 {
    const EPSILON: f64 = f32::EPSILON as f64;
    fn rounded(value: f64) -> Self {
        value as Self
    }
    fn bits(self) -> u64 {
        self.to_bits().into()
    }
}

/// A matrix with its memory, which has more in each column (or row) than it needs.
#[derive(Clone)]
struct Matrix<T> {
    data: Vec<T>,
    rows: usize,
    columns: usize,
    ld: usize,
    by_row: bool,
}

impl<T: Tested> Matrix<T> {
    /// Pseudo-random numbers between -1 and 1, also in what the matrix does not need.
    fn new(rows: usize, columns: usize, by_row: bool, seed: u64) -> Self {
        let (length, count) = if by_row { (columns, rows) } else { (rows, columns) };
        let ld = length.max(1) + seed as usize % 3;
        let mut x = seed.wrapping_mul(2).wrapping_add(1);
        let next = |_| {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            T::rounded((x >> 11) as f64 / (1u64 << 52) as f64 - 1.0)
        };
        Self { data: (0..ld * (count + 1)).map(next).collect(), rows, columns, ld, by_row }
    }

    fn place(&self, i: usize, j: usize) -> usize {
        if self.by_row { i * self.ld + j } else { j * self.ld + i }
    }

    fn at(&self, i: usize, j: usize) -> f64 {
        self.data[self.place(i, j)].into()
    }

    fn set(&mut self, i: usize, j: usize, value: f64) {
        let place = self.place(i, j);
        self.data[place] = T::rounded(value);
    }

    /// The matrix for functions that write only if it is theirs to write.
    fn strided(&mut self) -> Strided<T> {
        Strided::stored(self.data.as_mut_ptr(), self.ld, self.by_row)
    }

    fn places(&self) -> impl Iterator<Item = (usize, usize)> + use<T> {
        let columns = self.columns;
        (0..self.rows).flat_map(move |i| (0..columns).map(move |j| (i, j)))
    }

    fn assert_kept_outside(&self, before: &Self) {
        let mut outside = vec![true; self.data.len()];
        self.places().for_each(|(i, j)| outside[self.place(i, j)] = false);
        for place in (0..self.data.len()).filter(|&place| outside[place]) {
            assert_eq!(self.data[place].bits(), before.data[place].bits(), "{place} is outside");
        }
    }
}

/// Sizes about those of tiles and of their multiples.
fn size() -> impl Strategy<Value = usize> {
    prop_oneof![0usize..10, 22usize..27, 46usize..51, 0usize..120]
}

/// Depths, some of which are several blocks.
fn depth() -> impl Strategy<Value = usize> {
    prop_oneof![8 => 0usize..40, 1 => 254usize..260, 1 => 380usize..400, 1 => 500usize..800]
}

const FACTORS: [f64; 4] = [-1.0, 1.0, 0.0, 0.5];

fn factor() -> impl Strategy<Value = f64> {
    (0usize..4).prop_map(|index| FACTORS[index])
}

/// Where A, B and C are stored by rows.
type Layouts = (bool, bool, bool);

fn check_product<T: Tested>(
    (m, n, k): (usize, usize, usize),
    (by_row_a, by_row_b, by_row_c): Layouts,
    (alpha, beta): (f64, f64),
    seed: u64,
) -> TestCaseResult {
    let mut a = Matrix::<T>::new(m, k, by_row_a, seed);
    let mut b = Matrix::<T>::new(k, n, by_row_b, seed ^ 1);
    let mut before = Matrix::<T>::new(m, n, by_row_c, seed ^ 2);
    if beta == 0.0 {
        before
            .places()
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|(i, j)| before.set(i, j, f64::NAN));
    }
    if alpha == 0.0 {
        a.data.fill(T::rounded(f64::NAN));
    }
    for vectors in Vectors::all_here() {
        let mut c = before.clone();
        let factors = (T::rounded(alpha), T::rounded(beta));
        // SAFETY: the matrices have this shape, and the processor these vectors.
        unsafe {
            let (a, b) = (a.strided(), b.strided());
            gemm(vectors, Shape { m, n, k }, factors.0, a, b, factors.1, c.strided());
        }
        for (i, j) in c.places() {
            let terms = || (0..k).map(|p| a.at(i, p) * b.at(p, j));
            let product = if alpha == 0.0 { 0.0 } else { alpha * terms().sum::<f64>() };
            let was = if beta == 0.0 { 0.0 } else { beta * before.at(i, j) };
            let size = if alpha == 0.0 { 0.0 } else { terms().map(f64::abs).sum::<f64>() };
            let bound = T::EPSILON * (k as f64 + 4.0) * (size + was.abs());
            let off = (c.at(i, j) - (was + product)).abs();
            prop_assert!(off <= bound, "{vectors:?} ({i}, {j}) is off by {off}");
        }
        c.assert_kept_outside(&before);
    }
    Ok(())
}

/// Computes `C := C - A B` whole and in parts, whose borders are `rows` and `columns`.
fn check_parts<T: Tested>(
    (m, n, k): (usize, usize, usize),
    (rows, columns): (usize, usize),
    (by_row_a, by_row_b, by_row_c): Layouts,
    seed: u64,
) -> TestCaseResult {
    let mut a = Matrix::<T>::new(m, k, by_row_a, seed);
    let mut b = Matrix::<T>::new(k, n, by_row_b, seed ^ 1);
    let before = Matrix::<T>::new(m, n, by_row_c, seed ^ 2);
    let (rows, columns) = (rows.min(m), columns.min(n));
    for vectors in Vectors::all_here() {
        let (mut whole, mut parts) = (before.clone(), before.clone());
        // SAFETY: the matrices and their parts have these shapes.
        unsafe {
            let (a, b, one) = (a.strided(), b.strided(), T::ONE);
            gemm(vectors, Shape { m, n, k }, -one, a, b, one, whole.strided());
            for (i, m) in [(0, rows), (rows, m - rows)] {
                for (j, n) in [(0, columns), (columns, n - columns)] {
                    let (a, b) = (a.from(i, 0), b.from(0, j));
                    let c = parts.strided().from(i, j);
                    gemm(vectors, Shape { m, n, k }, -one, a, b, one, c);
                }
            }
        }
        for (i, j) in whole.places() {
            let (whole, parts) = (whole.at(i, j), parts.at(i, j));
            prop_assert_eq!(whole.to_bits(), parts.to_bits(), "{:?} ({}, {})", vectors, i, j);
        }
    }
    Ok(())
}

/// A triangle whose inverse is of its size, with NaN on what must not be read.
fn triangle<T: Tested>(
    order: usize,
    is_upper: bool,
    is_unit: bool,
    by_row: bool,
    seed: u64,
) -> Matrix<T> {
    let mut matrix = Matrix::<T>::new(order, order, by_row, seed);
    let places: Vec<_> = matrix.places().collect();
    for (i, j) in places {
        let value = match (i == j, (i < j) == is_upper) {
            (true, _) if is_unit => f64::NAN,
            (true, _) => 2.0 + matrix.at(i, j),
            (false, true) => matrix.at(i, j) / order as f64,
            (false, false) => f64::NAN,
        };
        matrix.set(i, j, value);
    }
    matrix
}

fn element<T: Tested>(t: &Matrix<T>, is_upper: bool, is_unit: bool, (i, j): (usize, usize)) -> f64 {
    if i == j && is_unit {
        1.0
    } else if i == j || (i < j) == is_upper {
        t.at(i, j)
    } else {
        0.0
    }
}

/// Solves `T X = alpha B` for the columns `parts` of B, one part after the other.
fn solve_parts<T: Tested>(
    vectors: Vectors,
    t: &mut Matrix<T>,
    (is_upper, is_unit): (bool, bool),
    alpha: f64,
    b: &mut Matrix<T>,
    parts: &[usize],
) {
    let mut at = 0;
    for &count in parts {
        let matrix = Triangle { matrix: t.strided(), order: b.rows, is_upper, is_unit };
        // SAFETY: T and B have these shapes.
        unsafe { solve(vectors, matrix, T::rounded(alpha), b.strided().from(0, at), count) };
        at += count;
    }
}

fn check_solve<T: Tested>(
    (order, n, cut): (usize, usize, usize),
    (is_upper, is_unit): (bool, bool),
    (by_row_t, by_row_b): (bool, bool),
    alpha: f64,
    seed: u64,
) -> TestCaseResult {
    let mut t = triangle::<T>(order, is_upper, is_unit, by_row_t, seed);
    let before = Matrix::<T>::new(order, n, by_row_b, seed ^ 1);
    for vectors in Vectors::all_here() {
        let (mut whole, mut parts) = (before.clone(), before.clone());
        let cut = cut.min(n);
        solve_parts(vectors, &mut t, (is_upper, is_unit), alpha, &mut whole, &[n]);
        solve_parts(vectors, &mut t, (is_upper, is_unit), alpha, &mut parts, &[cut, n - cut]);
        for (i, j) in whole.places() {
            let terms =
                || (0..order).map(|p| element(&t, is_upper, is_unit, (i, p)) * whole.at(p, j));
            let (back, size) = (terms().sum::<f64>(), terms().map(f64::abs).sum::<f64>());
            let wanted = alpha * before.at(i, j);
            let bound = T::EPSILON * (order as f64 + 4.0) * (size + wanted.abs());
            let off = (back - wanted).abs();
            prop_assert!(off <= bound, "{vectors:?} ({i}, {j}) is off by {off}");
            let (whole, parts) = (whole.at(i, j), parts.at(i, j));
            prop_assert_eq!(whole.to_bits(), parts.to_bits(), "{:?} ({}, {})", vectors, i, j);
        }
        whole.assert_kept_outside(&before);
    }
    Ok(())
}

/// Orders of triangles, some of which are several blocks.
fn order() -> impl Strategy<Value = usize> {
    prop_oneof![8 => 0usize..70, 1 => 255usize..259, 1 => 383usize..387]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn products_match_their_formula(
        shape in (size(), size(), depth()), layouts: Layouts, factors in (factor(), factor()),
        seed: u64,
    ) {
        check_product::<f64>(shape, layouts, factors, seed)?;
        check_product::<f32>(shape, layouts, factors, seed)?;
    }

    #[test]
    fn the_bits_of_products_do_not_depend_on_their_parts(
        shape in (size(), size(), depth()), cuts in (size(), size()), layouts: Layouts, seed: u64,
    ) {
        check_parts::<f64>(shape, cuts, layouts, seed)?;
        check_parts::<f32>(shape, cuts, layouts, seed)?;
    }

    #[test]
    fn solves_undo_products_with_the_same_bits_in_parts(
        shape in (order(), size(), size()), kind: (bool, bool), layouts: (bool, bool),
        alpha in factor(), seed: u64,
    ) {
        check_solve::<f64>(shape, kind, layouts, alpha, seed)?;
        check_solve::<f32>(shape, kind, layouts, alpha, seed)?;
    }

    #[test]
    fn vectors_are_solved_and_multiplied(
        n in size(), m in size(), kind: (bool, bool), by_row: bool,
        (alpha, beta) in (factor(), factor()), seed: u64,
    ) {
        let (is_upper, is_unit) = kind;
        let mut t = triangle::<f64>(n, is_upper, is_unit, by_row, seed);
        let b = Matrix::<f64>::new(n.max(1), 1, false, seed ^ 1).data[..n].to_vec();
        let mut a = Matrix::<f64>::new(m, n, by_row, seed ^ 2);
        let before = if beta == 0.0 { vec![f64::NAN; m] } else { vec![0.25; m] };
        for vectors in Vectors::all_here() {
            let (mut x, mut y) = (b.clone(), before.clone());
            let matrix = Triangle { matrix: t.strided(), order: n, is_upper, is_unit };
            // SAFETY: the matrices have these shapes.
            unsafe {
                solve_vector(vectors, matrix, &mut x);
                gemv(vectors, alpha, a.strided(), &x, beta, &mut y);
            }
            for (i, b) in b.iter().enumerate() {
                let term = |p| element(&t, is_upper, is_unit, (i, p)) * x[p];
                prop_assert!(((0..n).map(term).sum::<f64>() - b).abs() < 1e-12);
            }
            for i in 0..m {
                let product: f64 = (0..n).map(|p| a.at(i, p) * x[p]).sum();
                let was = if beta == 0.0 { 0.0 } else { beta * before[i] };
                prop_assert!((y[i] - (was + alpha * product)).abs() < 1e-12, "{vectors:?} {i}");
            }
        }
    }
}

#[test]
fn a_product_of_several_blocks_has_the_bits_of_its_parts() {
    let shape = (1100, 2200, 260);
    check_parts::<f64>(shape, (500, 700), (false, false, false), 7).unwrap();
    check_parts::<f32>(shape, (500, 700), (true, false, true), 8).unwrap();
}

/// A product of several blocks, and a solve with the largest triangle that is packed at once.
fn use_most_room<T: Tested>() {
    let mut matrices =
        [(1100, 400), (400, 1100), (1100, 1100)].map(|(m, n)| Matrix::<T>::new(m, n, false, 3));
    let [a, b, c] = matrices.each_mut().map(Matrix::strided);
    let t = Triangle { matrix: a, order: 400, is_upper: false, is_unit: true };
    // SAFETY: the matrices have these shapes.
    unsafe {
        gemm(Vectors::here(), Shape { m: 1100, n: 1100, k: 400 }, T::ONE, a, b, T::ONE, c);
        solve(Vectors::here(), t, T::ONE, c, 1100);
    }
}

#[test]
fn the_first_call_has_the_work_space_of_all_others() {
    let room = || with_room(1, 1, |first: *mut u8, _| first as usize);
    let on_thread = move || {
        let first = room();
        use_most_room::<f64>();
        use_most_room::<f32>();
        (first, room())
    };
    let (first, last) = std::thread::spawn(on_thread).join().unwrap();
    assert_eq!(first, last);
    assert!(super::work_space_bytes() < 16 << 20);
}

#[test]
fn subnormal_diagonals_divide() {
    let least = f64::from_bits(1);
    let mut t = Matrix::<f64>::new(9, 9, false, 0);
    t.data.fill(0.0);
    (0..9).for_each(|i| t.set(i, i, 3.0 * least));
    for vectors in Vectors::all_here() {
        let mut b = Matrix::<f64>::new(9, 5, false, 0);
        b.data.fill(12.0 * least);
        solve_parts(vectors, &mut t, (true, false), 1.0, &mut b, &[5]);
        assert!(b.places().all(|(i, j)| b.at(i, j) == 4.0), "{vectors:?}");
    }
}

#[test]
fn the_best_vectors_are_taken_and_named() {
    let names: Vec<_> = Vectors::all_here().into_iter().map(Vectors::name).collect();
    assert_eq!(names.last(), Some(&Vectors::here().name()));
    assert_eq!(names[0], "portable");
}
