//! The exchange where all ranks of the process column share a node: each puts the
//! rows that others need into its own memory, and all read them there.
//!
//! U, which every rank needs whole, is there once: each rank solves for some of its
//! columns, in the memory of the first rank.
//!
//! ```text
//! gather    own rows of U, and displaced rows that leave      raise WRITTEN
//! solve     own share of the columns, from everybody's rows   raise SOLVED
//! ```
//!
//! A rank that has raised WRITTEN no longer reads the U of the exchange before; a rank
//! that has raised SOLVED no longer reads the others' rows.
//!
//! Rows are written past the caches: the other core has just read what was there,
//! and would have to give back each line of it, one by one.

use std::ops::Range;
use std::sync::Arc;

use super::Plan;
use crate::hpl::comm::node::NodeMemory;
use crate::hpl::comm::{Comm, Result};
use crate::machine::blas::MatMut;
use crate::machine::blas::view::SharedMat;
use crate::machine::team::Team;
use crate::machine::tuning::TUNING;
use crate::pages;

/// Shares begin on a cache line.
const LINE: usize = 8;

/// A rank's part in the exchanges of one range of columns.
pub struct NodeRoom {
    node: Arc<NodeMemory>,
    /// Where rows lie in each part.
    start: usize,
    /// Where U lies in that of the first rank.
    u_start: usize,
    nb: usize,
    cols: usize,
    /// WRITTEN, and SOLVED behind it.
    flag: usize,
    /// Exchanges begun.
    count: u64,
}

/// Flags that a room takes.
pub const FLAGS: usize = 2;
const SOLVED: usize = 1;

impl NodeRoom {
    /// A room for the rows of panels of up to `nb` columns on up to `cols` columns:
    /// in each part of `node` [`NodeRoom::rows_doubles`] from `start` on, in that of
    /// the first rank [`NodeRoom::u_doubles`] from `u_start` on, and [`FLAGS`] flags
    /// from `flag` on.
    pub fn new(
        node: Arc<NodeMemory>,
        (start, u_start): (usize, usize),
        (nb, cols): (usize, usize),
        flag: usize,
    ) -> Self {
        Self { node, start, u_start, nb, cols, flag, count: 0 }
    }

    /// Doubles that it takes of each part: rows of U, and displaced ones.
    pub fn rows_doubles(nb: usize, cols: usize) -> usize {
        nb.saturating_mul(2).saturating_mul(cols)
    }

    /// Doubles that U takes.
    pub fn u_doubles(nb: usize, cols: usize) -> usize {
        nb.saturating_mul(cols)
    }

    /// The rows that `rank` has written, `count` of `width` columns.
    fn rows(&self, rank: usize, count: usize, width: usize) -> &[f64] {
        // SAFETY: read between the owner's flag WRITTEN and this rank's flag SOLVED.
        unsafe { self.node.part(rank, self.start..self.start + count * width) }
    }

    /// Begins the next exchange.
    pub(super) fn next(&mut self) {
        self.count += 1;
    }

    /// The exchange of rows: what [`super::exchange`] does. Returns the rows of U.
    pub(super) fn exchange<C: Comm>(
        &self,
        col: &C,
        plan: &Plan,
        team: &Team,
        mut a: MatMut,
    ) -> Result<Vec<&[f64]>> {
        let (me, size, width) = (col.rank(), col.size(), a.cols());
        assert!(width <= self.cols && plan.u_rows.len() <= self.nb, "an exchange beyond the room");
        let from: Vec<usize> = plan.offer().collect();
        let doubles = from.len() * width;
        // SAFETY: all have solved with what was here, and no rank reads it before the flag.
        let part = unsafe { self.node.mine(self.start..self.start + doubles) };
        let (source, part) = (a.as_ref(), SharedMat::row_major(part, from.len(), width));
        team.split(from.len(), TUNING.exchange_grain_rows, |rows| {
            // SAFETY: the team's parts do not overlap.
            let mut part = unsafe { part.block(rows.clone(), 0..width) };
            let places = from[rows].iter().enumerate();
            places.for_each(|(i, &row)| write(source.row(row), part.row_mut(i)));
        });
        self.node.raise(self.flag, self.count);
        plan.move_staying(&mut a);
        self.node.wait_for_others(col, self.flag, self.count)?;
        let mut rows: Vec<&[f64]> = vec![&[]; plan.u_rows.len()];
        for rank in 0..size {
            let offer = self.rows(rank, plan.offered(rank), width);
            if rank != me {
                plan.take_coming(rank, offer, a.rb());
            }
            let places = plan.u_rows[plan.segment(rank)].iter();
            places.zip(offer.chunks_exact(width)).for_each(|(&place, row)| rows[place] = row);
        }
        Ok(rows)
    }

    /// The columns of `width` for which this rank solves.
    pub(super) fn share(&self, width: usize) -> Range<usize> {
        let (me, size) = (self.node.rank(), self.node.size());
        let bound = |rank: usize| match rank == size {
            true => width,
            false => width * rank / size / LINE * LINE,
        };
        bound(me)..bound(me + 1)
    }

    /// The U of all, `jb x width`.
    pub(super) fn u(&self, jb: usize, width: usize) -> SharedMat<'_> {
        let doubles = self.u_start..self.u_start + jb * width;
        let first = self.node.address(0, &doubles);
        // SAFETY: within the part of rank 0, which all have mapped to write. Each rank
        // writes its own share, after it has seen all flags WRITTEN: nobody looks at the
        // last U any more. All read it after all flags SOLVED.
        unsafe { MatMut::row_major_at(first, doubles.len(), jb, width, width) }.share()
    }

    /// Says that this rank's share is solved, and waits for those of the others.
    ///
    /// # Errors
    /// When the job has been aborted.
    pub(super) fn wait_for_solved<C: Comm>(&self, col: &C) -> Result<()> {
        self.node.raise(self.flag + SOLVED, self.count);
        self.node.wait_for_others(col, self.flag + SOLVED, self.count)
    }
}

/// Copies a row to where another core reads it next.
fn write(row: &[f64], place: &mut [f64]) {
    pages::stream(bytemuck::cast_slice(row), bytemuck::cast_slice_mut(place));
}
