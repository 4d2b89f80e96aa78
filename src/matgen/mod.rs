//! The random matrix [A|b].

mod lcg;
mod xoshiro;

pub use lcg::Lcg;

use crate::blas::MatMut;
use crate::comm::Comm;
use crate::config::Generator;
use crate::grid::Grid;

/// Fills this rank's part of the `n x (n+1)` matrix [A|b] (HPL_pdmatgen).
/// Each row is made on its own, so any part can be made anywhere, in any order.
///
/// `a` is the local matrix: as many rows and columns as the rank holds.
pub fn generate<C: Comm>(
    grid: &Grid<C>,
    n: usize,
    nb: usize,
    generator: Generator,
    mut a: MatMut,
) {
    let rows = grid.rows(nb);
    for i in 0..a.rows() {
        let global_row = rows.global(i, grid.myrow);
        let row = a.row_mut(i);
        for (block, values) in row.chunks_mut(nb).enumerate() {
            let global_col = (block * grid.q + grid.mycol) * nb;
            match generator {
                Generator::Hpl => lcg::fill_row(n, global_row, global_col, values),
                Generator::Xoshiro => xoshiro::fill_row(n, global_row, global_col, values),
            }
        }
    }
}
