//! Recursive doubling: log2 P exchanges, after which all ranks have all rows,
//! those of U and the displaced ones that go to another rank (HPL_pdlaswp00). For few columns, where the number of messages counts; and
//! for P = 2, where no row travels in vain.
//!
//! With P not a power of two, the ranks beyond the largest power lean on a
//! partner: it takes their rows along, and hands them the result.

use super::{Plan, gather};
use crate::hpl::comm::{Comm, Result, Tag, disjoint_ranges};
use crate::machine::blas::MatMut;

const TAG_EXCHANGE: Tag = 0x120;

/// Where each rank's rows lie in the exchange buffer: partners side by side, so
/// that what a rank has gathered is always one contiguous range.
struct Places {
    /// Rows before those of the rank at each position of `order`.
    starts: Vec<usize>,
    /// Ranks in the order of their places.
    order: Vec<usize>,
    power: usize,
}

impl Places {
    fn new(plan: &Plan, size: usize) -> Self {
        let power = 1 << size.ilog2();
        let order: Vec<usize> =
            (0..power).flat_map(|rank| [rank, rank + power]).filter(|&rank| rank < size).collect();
        let mut starts = vec![0];
        for &rank in &order {
            starts.push(starts.last().expect("not empty") + plan.offered(rank));
        }
        Self { starts, order, power }
    }

    fn position(&self, rank: usize) -> usize {
        self.order.iter().position(|&r| r == rank).expect("a rank of the column")
    }

    /// Rows of one rank.
    fn of(&self, rank: usize) -> std::ops::Range<usize> {
        let at = self.position(rank);
        self.starts[at]..self.starts[at + 1]
    }

    /// Rows of the `count` ranks below the power from `first` on, and their partners.
    fn of_group(&self, first: usize, count: usize) -> std::ops::Range<usize> {
        let end = first + count;
        let end = if end == self.power { self.order.len() } else { self.position(end) };
        self.starts[self.position(first)]..self.starts[end]
    }
}

/// Returns where in the buffer each row of U has arrived.
pub(super) fn exchange<C: Comm>(
    col: &C,
    plan: &Plan,
    mut a: MatMut,
    buffer: &mut [f64],
) -> Result<Vec<usize>> {
    let (me, size, width) = (col.rank(), col.size(), a.cols());
    let places = Places::new(plan, size);
    let total = *places.starts.last().expect("not empty");
    let buffer = &mut buffer[..total * width];
    let own = places.of(me);
    gather(a.as_ref(), plan.offer(), &mut buffer[own.start * width..own.end * width]);
    plan.move_staying(&mut a);
    gather_all(col, &places, buffer, width)?;
    let mut order = vec![0; plan.u_rows.len()];
    for rank in 0..size {
        for (place, &u_row) in places.of(rank).zip(&plan.u_rows[plan.segment(rank)]) {
            order[u_row] = place;
        }
    }
    for rank in (0..size).filter(|&rank| rank != me) {
        plan.take_coming(rank, &buffer[places.of(rank).start * width..], a.rb());
    }
    Ok(order)
}

/// Recursive doubling over the ranges of `places`.
fn gather_all<C: Comm>(col: &C, places: &Places, buffer: &mut [f64], width: usize) -> Result<()> {
    let (me, size, power) = (col.rank(), col.size(), places.power);
    let doubles = |rows: std::ops::Range<usize>| rows.start * width..rows.end * width;
    if me >= power {
        col.send(&buffer[doubles(places.of(me))], me - power, TAG_EXCHANGE)?;
        return col.recv(buffer, me - power, TAG_EXCHANGE);
    }
    if me + power < size {
        col.recv(&mut buffer[doubles(places.of(me + power))], me + power, TAG_EXCHANGE)?;
    }
    let mut step = 1;
    while step < power {
        let partner = me ^ step;
        let mine = doubles(places.of_group(me & !(step - 1), step));
        let theirs = doubles(places.of_group(partner & !(step - 1), step));
        let (out, into) = disjoint_ranges(buffer, mine, theirs);
        col.sendrecv(out, partner, into, partner, TAG_EXCHANGE)?;
        step <<= 1;
    }
    if me + power < size {
        col.send(buffer, me + power, TAG_EXCHANGE)?;
    }
    Ok(())
}
