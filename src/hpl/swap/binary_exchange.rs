//! Recursive doubling: log2 P exchanges, after which all ranks have all rows,
//! those of U and the displaced ones that go to another rank (HPL_pdlaswp00). For few
//! columns, where the number of messages counts; and for P = 2, where no row travels in
//! vain.

use std::ops::Range;

use super::{Plan, gather};
use crate::hpl::comm::{Comm, Result, Tag, disjoint_ranges, doubling};
use crate::machine::blas::MatMut;

const TAG_EXCHANGE: Tag = 0x120;

/// Rows of the exchange buffer before each place of the recursive doubling, and of all.
struct Places(Vec<usize>);

impl Places {
    fn new(plan: &Plan, size: usize) -> Self {
        let mut starts = vec![0; size + 1];
        (0..size).for_each(|rank| starts[doubling::place(rank, size) + 1] = plan.offered(rank));
        (0..size).for_each(|place| starts[place + 1] += starts[place]);
        Self(starts)
    }

    fn size(&self) -> usize {
        self.0.len() - 1
    }

    /// Rows of all ranks.
    fn total(&self) -> usize {
        self.0[self.size()]
    }

    /// Rows of one rank.
    fn of(&self, rank: usize) -> Range<usize> {
        let place = doubling::place(rank, self.size());
        self.0[place]..self.0[place + 1]
    }

    /// Doubles of some places, with rows of `width` columns.
    fn doubles(&self, places: &Range<usize>, width: usize) -> Range<usize> {
        self.0[places.start] * width..self.0[places.end] * width
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
    let buffer = &mut buffer[..places.total() * width];
    let own = places.of(me);
    gather(a.as_ref(), plan.offer(), &mut buffer[own.start * width..own.end * width]);
    plan.move_staying(&mut a);
    for round in doubling::rounds(me, size) {
        let [out, into] = [&round.out, &round.into].map(|range| places.doubles(range, width));
        let (out, into) = disjoint_ranges(buffer, out, into);
        round.exchange(col, out, into, TAG_EXCHANGE)?;
    }
    let mut order = vec![0; plan.u_rows.len()];
    for rank in 0..size {
        for (place, &u_row) in places.of(rank).zip(&plan.u_rows[plan.u_rows_from(rank)]) {
            order[u_row] = place;
        }
    }
    for rank in (0..size).filter(|&rank| rank != me) {
        plan.take_coming(rank, &buffer[places.of(rank).start * width..], a.rb());
    }
    Ok(order)
}
