//! Norms and the scaled residual (HPL_pdtest).
//!
//! ```text
//! ||Ax - b||_oo / (eps (||A||_oo ||x||_oo + ||b||_oo) N)      eps = 2^-53
//! ```

use crate::heartbeat;
use crate::record::Norms;
use skt_comm::{Comm, Result, collect};
use skt_solver::blas::MatRef;
use skt_solver::grid::Grid;

/// Norms of the system whose local part, as generated, is `a`, and of the solution whose local part
/// is `x`. Collective over the grid; the result is the same on all ranks.
pub fn norms<C: Comm>(grid: &Grid<C>, n: usize, nb: usize, a: MatRef, x: &[f64]) -> Result<Norms> {
    let cols = grid.cols(nb);
    let holds_b = cols.owner(n) == grid.mycol;
    // For each local row: the sum of magnitudes, the product with x, the element of b.
    let mut of_rows = vec![0.0; 3 * a.rows()];
    let mut of_cols = vec![0.0; x.len()];
    for (i, of_row) in of_rows.chunks_exact_mut(3).enumerate() {
        let row = a.row(i);
        for ((value, xj), column) in row.iter().zip(x).zip(&mut of_cols) {
            let magnitude = value.abs();
            of_row[0] += magnitude;
            of_row[1] += value * xj;
            *column += magnitude;
        }
        of_row[2] = if holds_b { row[cols.local(n)] } else { 0.0 };
        heartbeat::piece();
    }
    collect::all_sum(&grid.row, &mut of_rows)?;
    collect::all_sum(&grid.col, &mut of_cols)?;
    // A NaN anywhere must win over every number.
    let largest = |values: &mut dyn Iterator<Item = f64>| {
        values.fold(0.0, |a: f64, b| if a.is_nan() || a > b { a } else { b })
    };
    let mut maxima = [
        largest(&mut of_rows.chunks_exact(3).map(|r| (r[2] - r[1]).abs())),
        largest(&mut of_rows.chunks_exact(3).map(|r| r[0])),
        largest(&mut of_rows.chunks_exact(3).map(|r| r[2].abs())),
        largest(&mut of_cols.iter().copied()),
        largest(&mut x.iter().map(|v| v.abs())),
    ];
    collect::all_max(&grid.all, &mut maxima)?;
    let mut x_1 = [x.iter().map(|v| v.abs()).sum::<f64>()];
    collect::all_sum(&grid.row, &mut x_1)?;
    let [residual_oo, a_oo, b_oo, a_1, x_oo] = maxima;
    Ok(Norms { residual_oo, a_oo, a_1, x_oo, x_1: x_1[0], b_oo })
}
