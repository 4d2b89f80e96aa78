//! Back substitution: U x = y, with y in column n (HPL_pdtrsv).
//!
//! From the last block to the first. Process column c keeps a share s_c of the
//! right-hand side; y is the sum of all shares minus what was passed on.
//!
//! ```text
//! for each block k, on its process column:
//!     diagonal rank:  x_k = U_kk^-1 s_k, sent to its process column
//!     rows of the Q-1 blocks above:  s -= U x_k, handed to the column on the left
//!     rows above those:              s -= U x_k, kept
//! ```
//!
//! The column on the left owns block k-1, and needs only what was handed over
//! to go on; the rest of the work overlaps with its. A share reaches each
//! block's owner in time, for a column that solves a block hands over the next
//! Q-1, up to its own next one.

use crate::blas::view::SharedMat;
use crate::blas::{MatRef, gemv, solve_upper};
use crate::comm::{Comm, Result, Tag, collect};
use crate::grid::Grid;
use crate::team::Team;

/// Rows below which a product is not worth cutting up for the team.
const TEAM_GRAIN_ROWS: usize = 256;

const TAG_SHARE: Tag = 0x130;
const TAG_FIRST: Tag = 0x131;

/// Solves U x = y. Returns x for this rank's columns of A.
pub(super) fn substitute<C: Comm>(
    grid: &Grid<C>,
    team: &Team,
    n: usize,
    nb: usize,
    a: MatRef,
) -> Result<Vec<f64>> {
    let (rows, cols) = (grid.rows(nb), grid.cols(nb));
    let mut x = vec![0.0; cols.count_before(n, grid.mycol)];
    let mut share = vec![0.0; a.rows()];
    let blocks = n.div_ceil(nb);
    if blocks == 0 {
        return Ok(x);
    }
    take_right_hand_side(grid, n, nb, a, &mut share)?;
    let mut incoming = vec![0.0; a.rows()];
    for k in (0..blocks).rev() {
        if k % grid.q != grid.mycol {
            continue;
        }
        let range = k * nb..((k + 1) * nb).min(n);
        let local = |g: usize| rows.count_before(g, grid.myrow);
        // What the column on the right has handed over: the rows of this block
        // and of the Q-2 above it.
        if k + 1 < blocks && grid.q > 1 {
            let handed = local((k + 2).saturating_sub(grid.q) * nb)..local(range.end);
            let right = (grid.mycol + 1) % grid.q;
            grid.row.recv(&mut incoming[handed.clone()], right, TAG_SHARE)?;
            for (mine, theirs) in share[handed.clone()].iter_mut().zip(&incoming[handed]) {
                *mine += theirs;
            }
        }
        let first = cols.local(range.start);
        let xk = &mut x[first..first + range.len()];
        if rows.owner(range.start) == grid.myrow {
            let top = local(range.start);
            xk.copy_from_slice(&share[top..top + range.len()]);
            let columns = first..first + range.len();
            solve_upper(a.block(top..top + range.len(), columns), xk);
        }
        collect::broadcast(&grid.col, xk, rows.owner(range.start))?;
        let columns = first..first + range.len();
        let near = local((k + 1).saturating_sub(grid.q) * nb)..local(range.start);
        let far = 0..near.start;
        subtract(team, a.block(near.clone(), columns.clone()), xk, &mut share[near.clone()]);
        if k > 0 && grid.q > 1 {
            let left = (grid.mycol + grid.q - 1) % grid.q;
            grid.row.send(&share[near.clone()], left, TAG_SHARE)?;
            share[near].fill(0.0);
        }
        subtract(team, a.block(far.clone(), columns), xk, &mut share[far]);
    }
    Ok(x)
}

/// `s := s - U x`, on all threads: they read U from memory faster than one.
fn subtract(team: &Team, u: MatRef, x: &[f64], s: &mut [f64]) {
    let rows = u.rows();
    let s = SharedMat::row_major(s, 1, rows);
    team.split(rows, TEAM_GRAIN_ROWS, |part| {
        // SAFETY: the parts do not overlap.
        let mut s = unsafe { s.block(0..1, part.clone()) };
        gemv(-1.0, u.block(part, 0..x.len()), x, 1.0, s.row_mut(0));
    });
}

/// Brings y from the process column that holds column n to that of the last block.
fn take_right_hand_side<C: Comm>(
    grid: &Grid<C>,
    n: usize,
    nb: usize,
    a: MatRef,
    share: &mut [f64],
) -> Result<()> {
    let cols = grid.cols(nb);
    let (holder, taker) = (cols.owner(n), cols.owner(n - 1));
    if grid.mycol == holder {
        let column = cols.local(n);
        for (i, value) in share.iter_mut().enumerate() {
            *value = a.at(i, column);
        }
        if holder != taker {
            grid.row.send(share, taker, TAG_FIRST)?;
            share.fill(0.0);
        }
    } else if grid.mycol == taker {
        grid.row.recv(share, holder, TAG_FIRST)?;
    }
    Ok(())
}
