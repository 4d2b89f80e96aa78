//! Norms and the scaled residual (HPL_pdtest).
//!
//! ```text
//! ||Ax - b||_oo / (eps (||A||_oo ||x||_oo + ||b||_oo) N)      eps = 2^-53
//! ```

use crate::heartbeat;
use crate::record::Norms;
use skt_comm::{Result, collect};
use skt_mxp::check::reduce;
use skt_solver::blas::MatRef;
use skt_solver::grid::Grid;

/// Norms of the system whose local part, as generated, is `a`, and of the solution whose local part
/// is `x`. Collective over the grid; the result is the same on all ranks.
pub fn norms(grid: &Grid, n: usize, nb: usize, a: MatRef, x: &[f64]) -> Result<Norms> {
    let (cols, rows) = (grid.cols(nb), a.rows());
    let holds_b = cols.owner(n) == grid.mycol;
    // Of all local rows: the sums of magnitudes, the products with x, the elements of b.
    let mut of_rows = vec![0.0; 3 * rows];
    let mut of_cols = vec![0.0; x.len()];
    for i in 0..rows {
        let row = a.row(i);
        let (mut sum, mut product) = (0.0, 0.0);
        for ((value, xj), column) in row.iter().zip(x).zip(&mut of_cols) {
            let magnitude = value.abs();
            sum += magnitude;
            product += value * xj;
            *column += magnitude;
        }
        let b = if holds_b { row[cols.local(n)] } else { 0.0 };
        (of_rows[i], of_rows[rows + i], of_rows[2 * rows + i]) = (sum, product, b);
        heartbeat::piece();
    }
    collect::all_sum(&grid.row, &mut of_rows)?;
    collect::all_sum(&grid.col, &mut of_cols)?;
    let (sums, rest) = of_rows.split_at(rows);
    let (products, b) = rest.split_at(rows);
    let residual: Vec<f64> = b.iter().zip(products).map(|(b, ax)| b - ax).collect();
    reduce(grid, [&residual, sums, &of_cols, x, b])
}
