//! Spread and roll: displaced rows go to their places, then all roll their rows of
//! U around the ring (HPL_pdlaswp01). Each rank passes on each row of U once: for
//! many columns, where bytes count.

use super::{Displaced, Plan, gather};
use crate::hpl::comm::{Comm, Result, Tag, disjoint_ranges};
use crate::machine::blas::MatMut;

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
    let own = plan.u_rows_from(me);
    // Own rows of U first: the displaced rows go to the places they leave.
    gather(a.as_ref(), plan.mine.iter().copied(), &mut rolling[own.start * width..own.end * width]);
    spread(col, plan, a.rb(), rest)?;
    roll(col, plan, rolling, width)?;
    let mut order = vec![0; plan.u_rows.len()];
    plan.u_rows.iter().enumerate().for_each(|(place, &u_row)| order[u_row] = place);
    Ok(order)
}

/// Sends the displaced rows straight to the ranks that get them, all at once. Of
/// `jb` rows each rank has about `jb / P`: few messages, and none is passed on.
fn spread<C: Comm>(col: &C, plan: &Plan, mut a: MatMut, buffer: &mut [f64]) -> Result<()> {
    let (me, width) = (col.rank(), a.cols());
    let leaving = plan.leaving(me);
    let (out, mut into) = buffer.split_at_mut(leaving.len() * width);
    gather(a.as_ref(), leaving.iter().map(|row| row.from), out);
    plan.move_staying(&mut a);
    let by_taker = leaving.chunk_by(|one, next| one.taker == next.taker);
    let mut out = &*out;
    let mut sends = Vec::new();
    for rows in by_taker {
        let (message, rest) = out.split_at(rows.len() * width);
        sends.push((bytemuck::cast_slice(message), rows[0].taker, TAG_SPREAD));
        out = rest;
    }
    let (mut recvs, mut coming) = (Vec::new(), Vec::<Displaced>::new());
    for rank in (0..col.size()).filter(|&rank| rank != me) {
        let rows = plan.coming(rank).1;
        if rows.is_empty() {
            continue;
        }
        let (message, rest) = std::mem::take(&mut into).split_at_mut(rows.len() * width);
        recvs.push((bytemuck::cast_slice_mut(message), rank, TAG_SPREAD));
        coming.extend(rows);
        into = rest;
    }
    col.exchange_bytes(&sends, &mut recvs)?;
    // One message lies behind the other.
    let arrived = buffer[leaving.len() * width..].chunks_exact(width);
    for (row, content) in coming.iter().zip(arrived) {
        a.row_mut(row.to).copy_from_slice(content);
    }
    Ok(())
}

/// In step s a rank sends the rows of rank `me - s` to its right and gets those
/// of rank `me - 1 - s` from its left.
fn roll<C: Comm>(col: &C, plan: &Plan, rows: &mut [f64], width: usize) -> Result<()> {
    let (me, size) = (col.rank(), col.size());
    let (left, right) = ((me + size - 1) % size, (me + 1) % size);
    for step in 0..size - 1 {
        let out = plan.u_rows_from((me + size - step) % size);
        let into = plan.u_rows_from((me + size - 1 - step) % size);
        let (out, into) = disjoint_ranges(
            rows,
            out.start * width..out.end * width,
            into.start * width..into.end * width,
        );
        col.sendrecv(out, right, into, left, TAG_ROLL)?;
    }
    Ok(())
}
