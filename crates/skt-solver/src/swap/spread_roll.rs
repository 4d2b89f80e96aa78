//! Spread and roll: the displaced rows go to their new ranks, then the rows of U roll around the
//! ring of ranks (HPL_pdlaswp01). Each rank forwards each row of U once: for many columns, where
//! bytes count.
//!
//! The rank that rolls the most rows delays all others in each step. So ranks with more rows of U
//! than others first hand some over to them (HPL_equil), at the same time as the displaced rows.
//!
//! With NB rows of U, D displaced rows that change ranks (at most NB), LocQ columns, and links that
//! carry `bandwidth` elements a second in each direction, an exchange takes about
//!
//! ```text
//! spread    1 latency       + (D / P + H) LocQ / bandwidth      H: most rows one rank hands over
//! roll      (P - 1) latency + (1 - 1/P) NB LocQ / bandwidth     P - 1 messages of NB / P rows
//! total     P latency       + ((1 - 1/P) NB + D / P + H) LocQ / bandwidth
//! ```
//!
//! The spread sends all of a rank's messages at once, up to P - 1 of displaced rows and P - 1 of
//! rows handed over. D / P holds where the displaced rows are spread evenly: a rank sends at most
//! the rows that it has in the diagonal block, about NB / P, and receives at most NB, where it has
//! all pivots. HPL's spread goes down a binary tree, for (log2 P + P - 1) latency + K NB LocQ(N) /
//! bandwidth.

use std::ops::Range;

use super::{Displaced, Plan, gather, rows_in};
use crate::blas::{Element, MatMut};
use skt_comm::{Comm, Result, Tag, disjoint_ranges};

const TAG_SPREAD: Tag = 0x121;
const TAG_ROLL: Tag = 0x122;
const TAG_DEAL: Tag = 0x123;

/// A message to another rank: its bytes, that rank, the tag.
type Outgoing<'r> = (&'r [u8], usize, Tag);
type Incoming<'r> = (&'r mut [u8], usize, Tag);

/// Which rank rolls which rows of U: all roll the same number, or one more.
struct Deal {
    /// Where each rank's rows begin in the roll, and their end.
    starts: Vec<usize>,
    /// Where in the roll each row of [`Plan::u_rows`] is.
    places: Vec<usize>,
}

impl Deal {
    /// Each rank keeps as many of its rows as it rolls. The rest fills the gaps of the others in
    /// the order of the ranks, so the rows that one rank hands over to another are contiguous.
    fn new(plan: &Plan, size: usize) -> Self {
        let rows = plan.u_rows.len();
        let starts: Vec<usize> = (0..=size).map(|rank| rows * rank / size).collect();
        let kept = |rank: usize| {
            let most = starts[rank + 1] - starts[rank];
            starts[rank]..starts[rank] + plan.u_rows_from(rank).len().min(most)
        };
        let mut gaps = (0..size).flat_map(|rank| kept(rank).end..starts[rank + 1]);
        let mut places = Vec::with_capacity(rows);
        for rank in 0..size {
            let kept = kept(rank);
            let handed_over = plan.u_rows_from(rank).len() - kept.len();
            places.extend(kept);
            places.extend(gaps.by_ref().take(handed_over));
        }
        Self { starts, places }
    }

    fn rows_of(&self, rank: usize) -> Range<usize> {
        self.starts[rank]..self.starts[rank + 1]
    }

    /// The rows of the roll that `from` hands over to `to`, another rank.
    fn handed_over(&self, plan: &Plan, from: usize, to: usize) -> Range<usize> {
        let places = &self.places[plan.u_rows_from(from)];
        let mut there = places.iter().filter(|at| self.rows_of(to).contains(at));
        there.next().map_or(0..0, |&first| first..first + 1 + there.count())
    }

    /// The messages of rows that this rank hands over, and of those it gets: rows of `pitch`
    /// doubles, on both ranks at their positions in the roll.
    fn messages<'r>(
        &self,
        plan: &Plan,
        rolling: &'r mut [f64],
        pitch: usize,
    ) -> (Vec<Outgoing<'r>>, Vec<Incoming<'r>>) {
        let (me, own) = (plan.me, self.rows_of(plan.me));
        let (below, rest) = rolling.split_at_mut(own.start * pitch);
        let (mut gap, above) = rest.split_at_mut(own.len() * pitch);
        let (below, above, mut filled) = (&*below, &*above, own.start);
        let (mut sends, mut recvs) = (Vec::new(), Vec::new());
        for rank in (0..self.starts.len() - 1).filter(|&rank| rank != me) {
            let rows = self.handed_over(plan, me, rank);
            if !rows.is_empty() {
                let (part, first) = if rank < me { (below, 0) } else { (above, own.end) };
                let message = &part[(rows.start - first) * pitch..(rows.end - first) * pitch];
                sends.push((bytemuck::cast_slice(message), rank, TAG_DEAL));
            }
            let rows = self.handed_over(plan, rank, me);
            if !rows.is_empty() {
                let (_, from_there) = gap.split_at_mut((rows.start - filled) * pitch);
                let (message, rest) = from_there.split_at_mut(rows.len() * pitch);
                recvs.push((bytemuck::cast_slice_mut(message), rank, TAG_DEAL));
                (gap, filled) = (rest, rows.end);
            }
        }
        (sends, recvs)
    }
}

/// Exchanges the rows by spread and roll. Returns where in `buffer` each row of U has arrived.
pub(super) fn exchange<T: Element>(
    col: &Comm,
    plan: &Plan,
    mut a: MatMut<T>,
    buffer: &mut [f64],
) -> Result<Vec<usize>> {
    let (me, pitch) = (col.rank(), T::doubles(a.cols()));
    let deal = Deal::new(plan, col.size());
    let (rolling, rest) = buffer.split_at_mut(plan.u_rows.len() * pitch);
    // Own rows of U first: displaced rows overwrite the rows that they leave.
    for (&row, &place) in plan.mine.iter().zip(&deal.places[plan.u_rows_from(me)]) {
        let row_of_roll = &mut rolling[place * pitch..(place + 1) * pitch];
        T::from_doubles_mut(row_of_roll)[..a.cols()].copy_from_slice(a.as_ref().row(row));
    }
    spread(col, plan, &deal, a.rb(), rolling, rest)?;
    roll(col, &deal, rolling, pitch)?;
    let mut order = vec![0; plan.u_rows.len()];
    plan.u_rows.iter().zip(&deal.places).for_each(|(&u_row, &place)| order[u_row] = place);
    Ok(order)
}

/// Sends the displaced rows straight to the ranks that get them, and rows of U to those that roll
/// them for this rank, all at once. With about `jb / P` rows a rank, the messages are few.
fn spread<T: Element>(
    col: &Comm,
    plan: &Plan,
    deal: &Deal,
    mut a: MatMut<T>,
    rolling: &mut [f64],
    buffer: &mut [f64],
) -> Result<()> {
    let (me, pitch) = (col.rank(), T::doubles(a.cols()));
    let leaving = plan.leaving(me);
    let (out, mut into) = buffer.split_at_mut(leaving.len() * pitch);
    gather(a.as_ref(), leaving.iter().map(|row| row.from), out);
    plan.move_staying(&mut a);
    let by_taker = leaving.chunk_by(|one, next| one.taker == next.taker);
    let mut out = &*out;
    let (mut sends, mut recvs) = deal.messages(plan, rolling, pitch);
    for rows in by_taker {
        let (message, rest) = out.split_at(rows.len() * pitch);
        sends.push((bytemuck::cast_slice(message), rows[0].taker, TAG_SPREAD));
        out = rest;
    }
    let mut coming = Vec::<Displaced>::new();
    for rank in (0..col.size()).filter(|&rank| rank != me) {
        let rows = plan.coming(rank).1;
        if rows.is_empty() {
            continue;
        }
        let (message, rest) = std::mem::take(&mut into).split_at_mut(rows.len() * pitch);
        recvs.push((bytemuck::cast_slice_mut(message), rank, TAG_SPREAD));
        coming.extend(rows);
        into = rest;
    }
    col.exchange_bytes(&sends, &mut recvs)?;
    // The messages are stored one after the other.
    let arrived = rows_in(&buffer[leaving.len() * pitch..], a.cols());
    for (row, content) in coming.iter().zip(arrived) {
        a.row_mut(row.to).copy_from_slice(content);
    }
    Ok(())
}

/// Rolls the rows around the ring: in step s a rank sends the rows of rank `me - s` to its right
/// and gets those of rank `me - 1 - s` from its left.
fn roll(col: &Comm, deal: &Deal, rows: &mut [f64], pitch: usize) -> Result<()> {
    let (me, size) = (col.rank(), col.size());
    let (left, right) = ((me + size - 1) % size, (me + 1) % size);
    for step in 0..size - 1 {
        let out = deal.rows_of((me + size - step) % size);
        let into = deal.rows_of((me + size - 1 - step) % size);
        let (out, into) = disjoint_ranges(
            rows,
            out.start * pitch..out.end * pitch,
            into.start * pitch..into.end * pitch,
        );
        col.sendrecv(out, right, into, left, TAG_ROLL)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The plan, for `me`, of ranks that have `counts` rows of U.
    fn plan(counts: &[usize], me: usize) -> Plan {
        let starts = (0..=counts.len()).map(|rank| counts[..rank].iter().sum()).collect();
        let rows = counts.iter().sum();
        Plan { me, starts, u_rows: (0..rows).collect(), ..Plan::default() }
    }

    #[test]
    fn ranks_roll_equal_row_counts_and_pass_on_the_minimum() {
        for counts in
            [&[8, 8, 8][..], &[24, 0, 0], &[0, 0, 24], &[3, 20, 1, 0], &[1, 0, 1, 0, 0], &[7]]
        {
            let (plan, size) = (plan(counts, 0), counts.len());
            let deal = Deal::new(&plan, size);
            let rows = plan.u_rows.len();
            let mut places = deal.places.clone();
            places.sort_unstable();
            assert!(places.into_iter().eq(0..rows), "{counts:?}");
            for rank in 0..size {
                let share = deal.rows_of(rank).len();
                assert!(share == rows / size || share == rows / size + 1, "{counts:?}");
                let others = || (0..size).filter(|&other| other != rank);
                let over = |from, to| deal.handed_over(&plan, from, to).len();
                let given: usize = others().map(|other| over(rank, other)).sum();
                let got: usize = others().map(|other| over(other, rank)).sum();
                assert_eq!(given, counts[rank].saturating_sub(share), "{counts:?}");
                assert_eq!(got, share.saturating_sub(counts[rank]), "{counts:?}");
            }
        }
    }
}
