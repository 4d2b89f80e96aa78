//! The random matrix [A|b].

mod lcg;
mod xoshiro;

pub use lcg::Lcg;

use crate::config::Generator;
use crate::hpl::comm::Comm;
use crate::hpl::grid::Grid;
use crate::machine::blas::MatMut;
use crate::machine::team::Team;

/// Fills this rank's part of the `n x (n+1)` matrix [A|b] (HPL_pdmatgen). Each
/// row is made on its own, so any part can be made anywhere, in any order.
///
/// `a` is the local matrix: as many rows and columns as the rank holds.
pub fn generate<C: Comm>(
    grid: &Grid<C>,
    team: &Team,
    n: usize,
    nb: usize,
    generator: Generator,
    a: MatMut,
) {
    let rows = grid.rows(nb);
    let (count, cols) = (a.rows(), a.cols());
    let (myrow, mycol, q) = (grid.myrow, grid.mycol, grid.q);
    let a = a.share();
    team.split(count, 1, |part| {
        // SAFETY: the parts do not overlap.
        let mut a = unsafe { a.block(part.clone(), 0..cols) };
        for (i, local_row) in part.enumerate() {
            let global_row = rows.global(local_row, myrow);
            for (block, values) in a.row_mut(i).chunks_mut(nb).enumerate() {
                let global_col = (block * q + mycol) * nb;
                match generator {
                    Generator::Hpl => lcg::fill_row(n, global_row, global_col, values),
                    Generator::Xoshiro => xoshiro::fill_row(n, global_row, global_col, values),
                }
            }
        }
    });
}
