//! The norms of the residual, in HPL and in the criterion of HPL-MxP's rules.
//!
//! ```text
//! ||Ax - b||_oo / (eps (||A||_oo ||x||_oo + ||b||_oo) n) <= 16      eps = 2^-53
//! ```

use crate::grid::Grid;
use crate::team::Team;
use skt_comm::collect;
use skt_host::norms::Norms;

use crate::mxp::part::{Part, Progress};
use crate::mxp::refine::largest_here;
use crate::mxp::system::System;

/// The norms of a system that is distributed for panels of `nb` columns, and of the solution whose
/// part for this rank's columns is `x`. Collective over the grid; the result is the same on all
/// ranks. A NaN anywhere in x makes the norms NaN.
pub fn norms(
    system: &System,
    grid: &Grid,
    team: &Team,
    nb: usize,
    x: &[f64],
    progress: Progress,
) -> skt_comm::Result<Norms> {
    let part = Part::new(system, grid, nb);
    let mut sums = part.sums(team, x, progress);
    collect::all_sum(&grid.row, &mut sums.products)?;
    collect::all_sum(&grid.row, &mut sums.rows)?;
    collect::all_sum(&grid.col, &mut sums.cols)?;
    let b = part.right_hand_side();
    let residual: Vec<f64> = b.iter().zip(&sums.products).map(|(b, ax)| b - ax).collect();
    reduce(grid, [&residual, &sums.rows, &sums.cols, x, &b])
}

/// [`norms`] from these parts on this rank: `b - A x` of its rows, the sums of magnitudes of A's
/// rows and columns, x, and b. Collective over the grid; the result is the same on all ranks.
pub fn reduce(grid: &Grid, parts: [&[f64]; 5]) -> skt_comm::Result<Norms> {
    let mut maxima = parts.map(largest_here);
    collect::all_max(&grid.all, &mut maxima)?;
    let x_1: f64 = parts[3].iter().map(|value| value.abs()).sum();
    let mut x_1 = [x_1];
    collect::all_sum(&grid.row, &mut x_1)?;
    let [residual_oo, a_oo, a_1, x_oo, b_oo] = maxima;
    Ok(Norms { residual_oo, a_oo, a_1, x_oo, x_1: x_1[0], b_oo })
}
