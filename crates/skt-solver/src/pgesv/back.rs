//! Back substitution: U x = y, with y in column n (HPL_pdtrsv).

use super::substitution::Substitution;
use crate::blas::{MatRef, Triangle};
use crate::grid::Grid;
use crate::team::Team;
use skt_comm::{Result, Tag};

const TAG_FIRST: Tag = 0x131;

/// Solves U x = y. Returns x for this rank's columns of A.
pub(super) fn substitute(
    grid: &Grid,
    team: &Team,
    n: usize,
    nb: usize,
    a: MatRef,
) -> Result<Vec<f64>> {
    let mut share = vec![0.0; a.rows()];
    if n > 0 {
        take_right_hand_side(grid, n, nb, a, &mut share)?;
    }
    Substitution { grid, team, n, nb, a, triangle: Triangle::Upper }.solve(share)
}

/// Brings y from the process column that holds column n to that of the last block.
fn take_right_hand_side(
    grid: &Grid,
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
