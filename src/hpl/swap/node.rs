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

use super::{Arrived, Plan, stream_rows};
use crate::hpl::comm::node::NodeMemory;
use crate::hpl::comm::{Comm, Result};
use crate::machine::blas::MatMut;
use crate::machine::blas::view::SharedMat;
use crate::machine::team::Team;

/// Shares begin on a cache line.
const LINE: usize = 8;

/// A rank's part in the exchanges of one range of columns.
pub struct NodeRows {
    /// Rows, in each part, and the flags.
    node: NodeMemory,
    /// U, in the part of the first rank.
    u: NodeMemory,
    nb: usize,
    cols: usize,
    /// Exchanges begun.
    count: u64,
}

/// Flags that the exchange of rows takes.
pub const FLAGS: usize = 2;
const WRITTEN: usize = 0;
const SOLVED: usize = 1;

impl NodeRows {
    /// Rows of panels of up to `nb` columns on up to `cols` columns: the rows in `node`,
    /// with [`NodeRows::rows_doubles`] of each part and [`FLAGS`] flags, and U in `u`, with
    /// [`NodeRows::u_doubles`] of the part of the first rank.
    pub fn new(node: NodeMemory, u: NodeMemory, (nb, cols): (usize, usize)) -> Self {
        Self { node, u, nb, cols, count: 0 }
    }

    /// Doubles that it takes of each part: rows of U, and displaced ones.
    pub fn rows_doubles(nb: usize, cols: usize) -> usize {
        nb.saturating_mul(2).saturating_mul(cols)
    }

    /// Doubles that U takes.
    pub fn u_doubles(nb: usize, cols: usize) -> usize {
        nb.saturating_mul(cols)
    }

    /// As [`super::exchange`], without messages: this rank solves for its share of the columns.
    ///
    /// # Errors
    /// When the job has been aborted.
    pub fn exchange<C: Comm>(
        &mut self,
        col: &C,
        plan: &Plan,
        team: &Team,
        mut a: MatMut,
    ) -> Result<Arrived<'_>> {
        let (jb, width) = (plan.u_rows.len(), a.cols());
        if width == 0 {
            return Ok(Arrived::nothing(plan));
        }
        self.write(plan, team, &mut a);
        let rows = self.read(col, plan, a)?;
        Ok(Arrived { rows, u: self.u(jb, width), share: self.share(width), shared: Some(self) })
    }

    /// Begins the next exchange: writes the rows that others need, and puts in their
    /// places those that stay on this rank.
    fn write(&mut self, plan: &Plan, team: &Team, a: &mut MatMut) {
        let width = a.cols();
        assert!(
            width <= self.cols && plan.u_rows.len() <= self.nb,
            "an exchange beyond the memory"
        );
        let mut ranks = 0..self.node.size();
        let is_solved = ranks.all(|rank| self.node.is_raised(rank, SOLVED, self.count));
        assert!(is_solved, "an exchange before the last one is over");
        self.count += 1;
        let from: Vec<usize> = plan.offer().collect();
        // SAFETY: this memory is this exchange's alone, and `self` is borrowed to be changed. All
        // others have solved with what was here, and look again after the flag.
        let part = unsafe { self.node.mine(0..from.len() * width) };
        let part = MatMut::row_major(part, from.len(), width, width);
        stream_rows(team, a.as_ref(), &from, part);
        self.node.raise(WRITTEN, self.count);
        plan.move_staying(a);
    }

    /// Waits for the rows of all, and takes those that come to this rank. Returns the
    /// rows of U.
    ///
    /// # Errors
    /// When the job has been aborted.
    fn read<C: Comm>(&self, col: &C, plan: &Plan, mut a: MatMut) -> Result<Vec<&[f64]>> {
        self.node.wait_for_others(col, WRITTEN, self.count)?;
        let width = a.cols();
        let mut rows: Vec<&[f64]> = vec![&[]; plan.u_rows.len()];
        for rank in 0..self.node.size() {
            // SAFETY: its rank has raised WRITTEN, and writes here again once this one has
            // raised SOLVED; this rank does so with `self` borrowed to be changed.
            let offer = unsafe { self.node.part(rank, 0..plan.offered(rank) * width) };
            if rank != self.node.rank() {
                plan.take_coming(rank, offer, a.rb());
            }
            let places = plan.u_rows[plan.u_rows_from(rank)].iter();
            places.zip(offer.chunks_exact(width)).for_each(|(&place, row)| rows[place] = row);
        }
        Ok(rows)
    }

    /// The columns of `width` for which this rank solves.
    fn share(&self, width: usize) -> Range<usize> {
        let (me, size) = (self.node.rank(), self.node.size());
        let bound = |rank: usize| match rank == size {
            true => width,
            false => width * rank / size / LINE * LINE,
        };
        bound(me)..bound(me + 1)
    }

    /// The U of all, `jb x width`.
    fn u(&self, jb: usize, width: usize) -> SharedMat<'_> {
        let doubles = 0..jb * width;
        let first = self.u.address(0, &doubles);
        // SAFETY: within the part of rank 0, which all have mapped to write, and in memory
        // that is this exchange's alone. Each rank writes its own share, after it has seen all
        // flags WRITTEN: nobody looks at the last U any more. All read it after all flags
        // SOLVED.
        unsafe { MatMut::row_major_at(first, doubles.len(), jb, width, width) }.share()
    }

    /// Says that this rank's share is solved, and waits for those of the others.
    ///
    /// # Errors
    /// When the job has been aborted.
    pub(super) fn wait_for_solved<C: Comm>(&self, col: &C) -> Result<()> {
        self.node.raise(SOLVED, self.count);
        self.node.wait_for_others(col, SOLVED, self.count)
    }
}
