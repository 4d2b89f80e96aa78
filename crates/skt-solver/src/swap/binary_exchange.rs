//! Recursive doubling: log2 P exchanges, after which all ranks have all rows, those of U and the
//! displaced ones that go to another rank (HPL_pdlaswp00). Used for few columns, where the number
//! of messages counts, and for P = 2, where no rank receives a row that it does not need.
//!
//! With D the rows of the diagonal block that go to another rank (at most NB, about (1 - 1/P) NB
//! where pivots are spread evenly), LocQ the columns, and links that carry `bandwidth` elements a
//! second in each direction, an exchange takes about
//!
//! ```text
//! P = 2^r    log2(P) latency             +  (1 - 1/P) (NB + D) LocQ / bandwidth
//! else       (floor(log2 P) + 2) latency +  at most 7/3 (NB + D) LocQ / bandwidth
//! ```
//!
//! In round s = 0, 1, .. a rank sends and receives the contributions of 2^s ranks, about
//! `(NB + D) 2^s / P` rows. Where P is not a power of two, a folded rank first sends its own rows,
//! and in the end receives all NB + D. HPL's header states
//! `log2(P) (latency + NB LocQ(N) / bandwidth)` for HPL's exchange.

use std::ops::Range;

use super::{Plan, gather};
use crate::blas::{Element, MatMut};
use crate::comm::doubling;
use skt_comm::{Comm, Result, Tag, disjoint_ranges};

const TAG_EXCHANGE: Tag = 0x120;

/// Where the rows of each position begin in the exchange buffer, and the end of all.
struct Places(Vec<usize>);

impl Places {
    fn new(plan: &Plan, size: usize) -> Self {
        let mut starts = vec![0; size + 1];
        (0..size)
            .for_each(|rank| starts[doubling::place(rank, size) + 1] = plan.contributed_rows(rank));
        (0..size).for_each(|place| starts[place + 1] += starts[place]);
        Self(starts)
    }

    fn size(&self) -> usize {
        self.0.len() - 1
    }

    fn total(&self) -> usize {
        self.0[self.size()]
    }

    fn rows_of(&self, rank: usize) -> Range<usize> {
        let place = doubling::place(rank, self.size());
        self.0[place]..self.0[place + 1]
    }

    fn doubles(&self, places: &Range<usize>, pitch: usize) -> Range<usize> {
        self.0[places.start] * pitch..self.0[places.end] * pitch
    }
}

/// Exchanges the rows by recursive doubling. Returns where in `buffer` each row of U has arrived.
pub(super) fn exchange<T: Element>(
    col: &Comm,
    plan: &Plan,
    mut a: MatMut<T>,
    buffer: &mut [f64],
) -> Result<Vec<usize>> {
    let (me, size, pitch) = (col.rank(), col.size(), T::doubles(a.cols()));
    let places = Places::new(plan, size);
    let buffer = &mut buffer[..places.total() * pitch];
    let own = places.rows_of(me);
    gather(a.as_ref(), plan.contribution(), &mut buffer[own.start * pitch..own.end * pitch]);
    plan.move_staying(&mut a);
    for round in doubling::rounds(me, size) {
        let [out, into] = [&round.out, &round.into].map(|range| places.doubles(range, pitch));
        let (out, into) = disjoint_ranges(buffer, out, into);
        round.exchange(col, out, into, TAG_EXCHANGE)?;
    }
    let mut order = vec![0; plan.u_rows.len()];
    for rank in 0..size {
        for (place, &u_row) in places.rows_of(rank).zip(&plan.u_rows[plan.u_rows_from(rank)]) {
            order[u_row] = place;
        }
    }
    for rank in (0..size).filter(|&rank| rank != me) {
        plan.take_coming(rank, &buffer[places.rows_of(rank).start * pitch..], a.rb());
    }
    Ok(order)
}
