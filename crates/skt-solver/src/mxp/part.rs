//! A rank's part of A, which is never kept in double precision: each pass computes its entries
//! again, a chunk of a row at a time.

use std::ops::Range;
use std::sync::Mutex;

use crate::grid::{Cyclic, Grid};
use crate::matgen::Lcg;
use crate::team::Team;
use crate::work::{self, Work};

use crate::mxp::system::System;
use crate::mxp::vectorized::{Loops, vectorized};
use crate::mxp::{CHUNK, LANES};

/// The rows after which a thread reports that it proceeds.
const PIECE_ROWS: usize = 16;

/// A function that the threads call each time some rows of a pass are done.
pub type Progress<'p> = &'p (dyn Fn() + Sync);

pub struct Part<'s> {
    system: &'s System,
    rows: Cyclic,
    myrow: usize,
    row_count: usize,
    col_count: usize,
    chunks: Vec<Chunk>,
}

struct Chunk {
    local: Range<usize>,
    /// The first one's number in A.
    global: usize,
    /// The generator's state at the first one's entry in row 0.
    state: u64,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Sums {
    /// For each row of this rank: `sum_j a_ij x_j` over its columns.
    pub products: Vec<f64>,
    /// For each row of this rank: `sum_j |a_ij|` over its columns.
    pub rows: Vec<f64>,
    /// For each column of this rank: `sum_i |a_ij|` over its rows.
    pub cols: Vec<f64>,
}

impl<'s> Part<'s> {
    pub fn new(system: &'s System, grid: &Grid, nb: usize) -> Self {
        let (n, rows, cols) = (system.n(), grid.rows(nb), grid.cols(nb));
        let mut chunks = Vec::new();
        for (local, global, len) in cols.spans(0..n, grid.mycol) {
            for start in (0..len).step_by(CHUNK) {
                let count = CHUNK.min(len - start);
                let local = local + start..local + start + count;
                let global = global + start;
                chunks.push(Chunk { local, global, state: system.column_state(global) });
            }
        }
        Self {
            system,
            rows,
            myrow: grid.myrow,
            row_count: rows.count_before(n, grid.myrow),
            col_count: cols.count_before(n, grid.mycol),
            chunks,
        }
    }

    pub(crate) fn col_count(&self) -> usize {
        self.col_count
    }

    pub(crate) fn right_hand_side(&self) -> Vec<f64> {
        let rows = 0..self.row_count;
        rows.map(|row| self.system.right_hand_side(self.rows.global(row, self.myrow))).collect()
    }

    /// Writes this rank's part into `a`, rounded to single precision, on all threads: row by row,
    /// `lda` entries from one row to the next. Entries between the rows are left as they are.
    pub fn generate(&self, team: &Team, a: &mut [f32], lda: usize, progress: Progress) {
        if self.row_count == 0 || self.col_count == 0 {
            return;
        }
        let needed = (self.row_count - 1) * lda + self.col_count;
        assert!(lda >= self.col_count && a.len() >= needed, "the local matrix is too short");
        let pieces = Mutex::new(a[..needed].chunks_mut(PIECE_ROWS * lda).enumerate());
        let job = |_| {
            loop {
                // Bound first, so that the lock is not held while the piece is filled.
                let next = pieces.lock().expect("no thread panicked").next();
                let Some((piece, a)) = next else { return };
                vectorized(Generate { part: self, first: piece * PIECE_ROWS, a, lda });
                progress();
            }
        };
        team.fork(&job, || ());
    }

    /// `A x` of this rank's part, on all threads.
    pub(crate) fn products(&self, team: &Team, x: &[f64], progress: Progress) -> Vec<f64> {
        self.pass(team, x, false, progress).products
    }

    /// As [`Self::products`], with its bits, and sums of magnitudes.
    pub(crate) fn sums(&self, team: &Team, x: &[f64], progress: Progress) -> Sums {
        self.pass(team, x, true, progress)
    }

    fn pass(&self, team: &Team, x: &[f64], has_magnitudes: bool, progress: Progress) -> Sums {
        assert_eq!(x.len(), self.col_count, "an element of x for each column of this rank");
        work::begins(Work::Generate { entries: self.row_count * self.col_count });
        let parts = Mutex::new(Vec::new());
        team.split(self.row_count, 1, |rows| {
            let first = rows.start;
            let mut sums = Sums::default();
            if has_magnitudes {
                sums.cols.resize(self.col_count, 0.0);
            }
            for start in rows.clone().step_by(PIECE_ROWS) {
                let rows = start..(start + PIECE_ROWS).min(rows.end);
                let sums = &mut sums;
                if has_magnitudes {
                    vectorized(AllSums { part: self, rows, x, sums });
                } else {
                    vectorized(Products { part: self, rows, x, products: &mut sums.products });
                }
                progress();
            }
            parts.lock().expect("no thread panicked").push((first, sums));
        });
        // In the order of the rows, not of the threads.
        let mut parts = parts.into_inner().expect("no thread panicked");
        parts.sort_by_key(|(first, _)| *first);
        let mut all = Sums { cols: vec![0.0; self.col_count], ..Sums::default() };
        for (_, part) in parts {
            all.products.extend(part.products);
            all.rows.extend(part.rows);
            all.cols.iter_mut().zip(part.cols).for_each(|(sum, more)| *sum += more);
        }
        all
    }

    /// A row of this rank's part: its number in A, and the jump of the generator down to it.
    #[inline(always)]
    fn row(&self, row: usize) -> (usize, Lcg) {
        let i = self.rows.global(row, self.myrow);
        (i, Lcg::jump(i as u64))
    }

    #[inline(always)]
    fn entries<'v>(
        &self,
        i: usize,
        down: Lcg,
        chunk: &Chunk,
        values: &'v mut [f64; CHUNK],
    ) -> &'v [f64] {
        let values = &mut values[..chunk.local.len()];
        self.system.fill(i, chunk.global, down.apply(chunk.state), values);
        values
    }
}

struct Generate<'t> {
    part: &'t Part<'t>,
    first: usize,
    a: &'t mut [f32],
    lda: usize,
}

impl Loops for Generate<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let mut values = [0.0; CHUNK];
        for (index, low) in self.a.chunks_mut(self.lda).enumerate() {
            let (i, down) = self.part.row(self.first + index);
            for chunk in &self.part.chunks {
                let values = self.part.entries(i, down, chunk, &mut values);
                for (low, value) in low[chunk.local.clone()].iter_mut().zip(values) {
                    *low = *value as f32;
                }
            }
        }
    }
}

struct Products<'t> {
    part: &'t Part<'t>,
    rows: Range<usize>,
    x: &'t [f64],
    products: &'t mut Vec<f64>,
}

impl Loops for Products<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let mut values = [0.0; CHUNK];
        for row in self.rows {
            let (i, down) = self.part.row(row);
            let mut sums = [0.0; LANES];
            for chunk in &self.part.chunks {
                let values = self.part.entries(i, down, chunk, &mut values);
                add_products(&mut sums, values, &self.x[chunk.local.clone()]);
            }
            self.products.push(total(sums));
        }
    }
}

struct AllSums<'t> {
    part: &'t Part<'t>,
    rows: Range<usize>,
    x: &'t [f64],
    sums: &'t mut Sums,
}

impl Loops for AllSums<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Sums { products, rows, cols } = self.sums;
        let mut values = [0.0; CHUNK];
        for row in self.rows {
            let (i, down) = self.part.row(row);
            let (mut sums, mut magnitudes) = ([0.0; LANES], [0.0; LANES]);
            for chunk in &self.part.chunks {
                let values = self.part.entries(i, down, chunk, &mut values);
                add_products(&mut sums, values, &self.x[chunk.local.clone()]);
                add_magnitudes(&mut magnitudes, values);
                add_to_columns(&mut cols[chunk.local.clone()], values);
            }
            products.push(total(sums));
            rows.push(total(magnitudes));
        }
    }
}

pub(crate) fn dot(u: &[f64], v: &[f64]) -> f64 {
    vectorized(Dot { u, v })
}

struct Dot<'t> {
    u: &'t [f64],
    v: &'t [f64],
}

impl Loops for Dot<'_> {
    type Output = f64;

    #[inline(always)]
    fn run(self) -> f64 {
        let mut sums = [0.0; LANES];
        add_products(&mut sums, self.u, self.v);
        total(sums)
    }
}

/// Adds `a_k x_k` to lane k mod [`LANES`].
#[inline(always)]
fn add_products(sums: &mut [f64; LANES], a: &[f64], x: &[f64]) {
    let (mut a, mut x) = (a.chunks_exact(LANES), x.chunks_exact(LANES));
    for (a, x) in (&mut a).zip(&mut x) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * x[lane];
        }
    }
    for ((sum, a), x) in sums.iter_mut().zip(a.remainder()).zip(x.remainder()) {
        *sum += a * x;
    }
}

/// Adds `|a_k|` to lane k mod [`LANES`].
#[inline(always)]
fn add_magnitudes(sums: &mut [f64; LANES], a: &[f64]) {
    let mut a = a.chunks_exact(LANES);
    for a in &mut a {
        for lane in 0..LANES {
            sums[lane] += a[lane].abs();
        }
    }
    for (sum, a) in sums.iter_mut().zip(a.remainder()) {
        *sum += a.abs();
    }
}

#[inline(always)]
fn add_to_columns(sums: &mut [f64], a: &[f64]) {
    for (sum, a) in sums.iter_mut().zip(a) {
        *sum += a.abs();
    }
}

/// The sum of all lanes, by halves.
#[inline(always)]
fn total(mut lanes: [f64; LANES]) -> f64 {
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            lanes[lane] += lanes[lane + half];
        }
        half /= 2;
    }
    lanes[0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::threads::run;
    use skt_host::choice::{MxpMatrix, Pmap};
    use std::sync::atomic::{AtomicUsize, Ordering};

    const CASES: [(usize, usize, usize, usize); 7] = [
        (1, 8, 1, 1),
        (37, 5, 2, 3),
        (64, 16, 1, 4),
        (100, 24, 3, 1),
        (255, 64, 2, 2),
        (600, 300, 1, 1),
        (5, 8, 2, 2),
    ];

    fn on_all(body: impl Fn(&Grid, &Part) + Sync) {
        for matrix in MxpMatrix::ALL {
            for (n, nb, p, q) in CASES {
                let system = System::new(n, matrix);
                let ranks = run(p * q, |comm| {
                    let grid = Grid::new(&comm, p, q, Pmap::RowMajor)?.expect("all ranks");
                    body(&grid, &Part::new(&system, &grid, nb));
                    Ok::<_, skt_comm::CommError>(())
                });
                assert!(ranks.into_iter().all(|rank| rank.is_ok()));
            }
        }
    }

    fn places(grid: &Grid, part: &Part) -> (Vec<usize>, Vec<usize>) {
        let rows = (0..part.row_count).map(|row| part.rows.global(row, grid.myrow)).collect();
        let cols = part.chunks.iter().flat_map(|chunk| (chunk.global..).take(chunk.local.len()));
        (rows, cols.collect())
    }

    #[test]
    fn generated_entries_do_not_depend_on_grid_and_threads() {
        on_all(|grid, part| {
            let (rows, cols) = places(grid, part);
            for threads in [1, 3] {
                let team = Team::new(threads, |_| ()).unwrap();
                let lda = part.col_count + 3;
                let mut a = vec![7.0; part.row_count * lda];
                part.generate(&team, &mut a, lda, &|| ());
                for (row, &i) in a.chunks_exact(lda).zip(&rows) {
                    for (value, &j) in row.iter().zip(&cols) {
                        assert_eq!(*value, part.system.entry(i, j) as f32, "{i}, {j}");
                    }
                    assert_eq!(row[part.col_count..], [7.0; 3]);
                }
            }
        });
    }

    #[test]
    fn sums_are_those_of_a_dense_product() {
        on_all(|grid, part| {
            let (rows, cols) = places(grid, part);
            let x: Vec<f64> = cols.iter().map(|&j| part.system.right_hand_side(j)).collect();
            let sums = part.sums(&Team::solo(), &x, &|| ());
            let near =
                |sum: f64, exact: f64| assert!((sum - exact).abs() < 1e-11, "{sum}, {exact}");
            assert_eq!((sums.products.len(), sums.rows.len()), (rows.len(), rows.len()));
            for (row, &i) in rows.iter().enumerate() {
                let entry = |j: &usize| part.system.entry(i, *j);
                near(sums.products[row], cols.iter().zip(&x).map(|(j, x)| entry(j) * x).sum());
                near(sums.rows[row], cols.iter().map(|j| entry(j).abs()).sum());
            }
            assert_eq!(sums.cols.len(), cols.len());
            for (sum, &j) in sums.cols.iter().zip(&cols) {
                near(*sum, rows.iter().map(|&i| part.system.entry(i, j).abs()).sum());
            }
        });
    }

    #[test]
    fn bits_do_not_depend_on_threads_and_instructions() {
        on_all(|_, part| {
            let x: Vec<f64> = (0..part.col_count).map(|k| 1.0 / (k + 3) as f64).collect();
            let (mut products, mut sums) = (Vec::new(), Sums::default());
            sums.cols.resize(part.col_count, 0.0);
            let rows = 0..part.row_count;
            // As every processor of the architecture computes it.
            Products { part, rows: rows.clone(), x: &x, products: &mut products }.run();
            AllSums { part, rows, x: &x, sums: &mut sums }.run();
            assert_eq!(products, sums.products);
            for threads in [1, 2, 5] {
                let team = Team::new(threads, |_| ()).unwrap();
                assert_eq!(part.products(&team, &x, &|| ()), products);
                let all = part.sums(&team, &x, &|| ());
                assert_eq!((all.products, all.rows), (products.clone(), sums.rows.clone()));
                if threads == 1 {
                    assert_eq!(all.cols, sums.cols);
                }
            }
        });
    }

    #[test]
    fn progress_is_reported_for_each_piece_of_rows() {
        on_all(|_, part| {
            let pieces = AtomicUsize::new(0);
            let count = || _ = pieces.fetch_add(1, Ordering::Relaxed);
            let x = vec![1.0; part.col_count];
            part.products(&Team::solo(), &x, &count);
            assert_eq!(pieces.load(Ordering::Relaxed), part.row_count.div_ceil(PIECE_ROWS));
        });
    }

    #[test]
    fn all_lanes_count_in_the_total() {
        let lanes = std::array::from_fn(|lane| (lane + 1) as f64);
        assert_eq!(total(lanes), (LANES * (LANES + 1) / 2) as f64);
    }
}
