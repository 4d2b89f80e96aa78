//! The random matrix [A|b] (HPL_pdmatgen).

mod lcg;
mod xoshiro;

pub use lcg::Lcg;

use crate::blas::MatMut;
use crate::grid::Grid;
use crate::team::Team;
use crate::work;
use skt_host::choice::Generator;

/// A source of the entries of [A|b]: fills the slice with entries of a global row, from a global
/// column on. Any part can be generated on any rank, in any order.
pub type Entries<'e> = &'e (dyn Fn(usize, usize, &mut [f64]) + Sync);

pub fn entries(n: usize, generator: Generator) -> impl Fn(usize, usize, &mut [f64]) + Sync {
    move |row, col, values| match generator {
        Generator::Hpl => lcg::fill_row(n, row, col, values),
        Generator::Xoshiro => xoshiro::fill_row(n, row, col, values),
    }
}

/// Fills this rank's part of the `n x (n+1)` matrix [A|b] (HPL_pdmatgen).
pub fn generate(grid: &Grid, team: &Team, n: usize, nb: usize, generator: Generator, a: MatMut) {
    generate_columns(grid, team, nb, &entries(n, generator), a);
}

pub(crate) fn generate_columns(grid: &Grid, team: &Team, nb: usize, entries: Entries, a: MatMut) {
    let (cols, mycol) = (grid.cols(nb), grid.mycol);
    by_rows(grid, team, nb, a, |row, values| {
        for (block, values) in values.chunks_mut(nb).enumerate() {
            entries(row, cols.global(block * nb, mycol), values);
        }
    });
}

/// Fills this rank's checksums of [A|b], of order `n`: for each group of Q block columns the sum of
/// their entries times the weights of their process columns. Columns from `n + 1` on count as 0.
pub(crate) fn generate_checksum(
    grid: &Grid,
    team: &Team,
    n: usize,
    nb: usize,
    weights: &[f64],
    entries: Entries,
    a: MatMut,
) {
    assert_eq!(weights.len(), grid.q, "a weight for each process column");
    by_rows(grid, team, nb, a, |row, values| {
        let mut one = vec![0.0; nb];
        values.fill(0.0);
        for (block, sums) in values.chunks_mut(nb).enumerate() {
            for (q, weight) in weights.iter().enumerate() {
                let first = (block * weights.len() + q) * nb;
                if first > n {
                    break;
                }
                let one = &mut one[..sums.len().min(n + 1 - first)];
                entries(row, first, one);
                sums.iter_mut().zip(one).for_each(|(sum, value)| *sum += weight * *value);
            }
        }
    });
}

/// Calls `fill` for each local row of `a`, with its global number and its values, on all threads.
fn by_rows(
    grid: &Grid,
    team: &Team,
    nb: usize,
    a: MatMut,
    fill: impl Fn(usize, &mut [f64]) + Sync,
) {
    let (rows, myrow, count, cols) = (grid.rows(nb), grid.myrow, a.rows(), a.cols());
    let a = a.share();
    team.split(count, 1, |part| {
        // SAFETY: the parts do not overlap.
        let mut a = unsafe { a.block(part.clone(), 0..cols) };
        for (i, local_row) in part.enumerate() {
            fill(rows.global(local_row, myrow), a.row_mut(i));
            work::piece_done();
        }
    });
}
