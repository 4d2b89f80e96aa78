//! Spread and roll: the diagonal rank spreads the displaced rows along a binary
//! tree, then all roll their rows of U around the ring (HPL_pdlaswp01). Each
//! rank passes on each row of U once: for many columns, where bytes count.

use super::{Plan, gather, scatter};
use crate::blas::MatMut;
use crate::comm::{Comm, Result, Tag, disjoint_ranges, tree};

const TAG_SPREAD: Tag = 0x121;
const TAG_ROLL: Tag = 0x122;

/// Returns where in the buffer each row of U has arrived.
pub(super) fn exchange<C: Comm>(
    col: &C,
    plan: &Plan,
    mut a: MatMut,
    buffer: &mut [f64],
) -> Result<Vec<usize>> {
    let (me, width) = (col.rank(), a.cols());
    let (rolling, rest) = buffer.split_at_mut(plan.u_rows.len() * width);
    let own = plan.segment(me);
    // Own rows of U first: the displaced rows go to the places they leave.
    gather(a.as_ref(), &plan.mine, &mut rolling[own.start * width..own.end * width]);
    spread(col, plan, a.rb(), &mut rest[..plan.displaced_to.len() * width])?;
    roll(col, plan, rolling, width)?;
    let mut order = vec![0; plan.u_rows.len()];
    plan.u_rows.iter().enumerate().for_each(|(place, &u_row)| order[u_row] = place);
    Ok(order)
}

/// Spreads the displaced rows from the diagonal rank and puts them in place.
///
/// In the tree ranks count from the diagonal one; the buffer holds their rows
/// in that order, so that each subtree's rows are contiguous.
fn spread<C: Comm>(col: &C, plan: &Plan, mut a: MatMut, buffer: &mut [f64]) -> Result<()> {
    let (size, width) = (col.size(), a.cols());
    let rank_of = |member: usize| (member + plan.diagonal) % size;
    let me = (col.rank() + size - plan.diagonal) % size;
    let mut starts = vec![0];
    for member in 0..size {
        let rows = plan.displaced_segment(rank_of(member)).len();
        starts.push(starts[member] + rows);
    }
    let doubles = |members: std::ops::Range<usize>| {
        starts[members.start] * width..starts[members.end] * width
    };
    match tree::parent(me) {
        None => {
            for member in 0..size {
                let from = &plan.displaced_from[plan.displaced_segment(rank_of(member))];
                gather(a.as_ref(), from, &mut buffer[doubles(member..member + 1)]);
            }
        }
        Some(parent) => {
            let rows = &mut buffer[doubles(tree::subtree(size, me))];
            if !rows.is_empty() {
                col.recv(rows, rank_of(parent), TAG_SPREAD)?;
            }
        }
    }
    for child in tree::children(size, me) {
        let rows = &buffer[doubles(tree::subtree(size, child))];
        if !rows.is_empty() {
            col.send(rows, rank_of(child), TAG_SPREAD)?;
        }
    }
    let mine = &buffer[doubles(me..me + 1)];
    scatter(mine, &plan.displaced_to[plan.displaced_segment(col.rank())], a.rb());
    Ok(())
}

/// In step s a rank sends the rows of rank `me - s` to its right and gets those
/// of rank `me - 1 - s` from its left.
fn roll<C: Comm>(col: &C, plan: &Plan, rows: &mut [f64], width: usize) -> Result<()> {
    let (me, size) = (col.rank(), col.size());
    let (left, right) = ((me + size - 1) % size, (me + 1) % size);
    for step in 0..size - 1 {
        let out = plan.segment((me + size - step) % size);
        let into = plan.segment((me + size - 1 - step) % size);
        let (out, into) = disjoint_ranges(
            rows,
            out.start * width..out.end * width,
            into.start * width..into.end * width,
        );
        col.sendrecv(out, right, into, left, TAG_ROLL)?;
    }
    Ok(())
}
