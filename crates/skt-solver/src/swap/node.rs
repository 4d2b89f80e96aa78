//! The exchange where all ranks of the process column share a node: each writes the rows that
//! others need into its own shared memory, and all read them there.
//!
//! U, which every rank needs whole, exists once: each rank solves for some of its columns, in the
//! memory of the first rank.
//!
//! ```text
//! gather    own rows of U, and displaced rows that leave      raise WRITTEN
//! solve     own share of the columns, from all ranks' rows    raise SOLVED
//! ```
//!
//! A rank that has raised WRITTEN no longer reads the U of the exchange before; a rank that has
//! raised SOLVED no longer reads the others' rows.
//!
//! No message is sent. A rank waits twice for the flags of all others, writes its NB/P rows of U
//! and its displaced rows once, and reads all NB rows of U in its 1/P of the columns.
//!
//! Rows are written past the caches. The cores of other ranks have just read the same memory, so
//! each cache line of an ordinary store would first have to be taken from them.

use std::ops::Range;

use super::{Arrived, Plan, rows_in, stream_rows};
use crate::blas::view::SharedMat;
use crate::blas::{Element, MatMut};
use crate::team::Team;
use skt_comm::node::NodeMemory;
use skt_comm::{Comm, Result};

/// Doubles of a cache line, on which shares begin.
const LINE: usize = 8;

/// One rank's side of the exchanges on one range of columns.
pub struct NodeRows {
    /// The exchanged rows, in each rank's part, and the flags.
    node: NodeMemory,
    /// U, in the part of the first rank.
    u: NodeMemory,
    nb: usize,
    cols: usize,
    count: u64,
}

pub(crate) const FLAGS: usize = 2;
const WRITTEN: usize = 0;
const SOLVED: usize = 1;

impl NodeRows {
    /// For panels of up to `nb` columns on up to `cols` doubles of each row. The rows are in
    /// `node`, with [`RowBuffers::rows_doubles`](super::RowBuffers::rows_doubles) in each rank's
    /// part and [`FLAGS`] flags; U is in `u`, with `nb cols` doubles in the first rank's part.
    pub(crate) fn new(node: NodeMemory, u: NodeMemory, (nb, cols): (usize, usize)) -> Self {
        Self { node, u, nb, cols, count: 0 }
    }

    /// Exchanges rows of the columns `a` in shared memory, without messages. This rank is to solve
    /// for its share of the columns of U. Collective over the process column.
    pub(crate) fn exchange<T: Element>(
        &mut self,
        col: &Comm,
        plan: &Plan,
        team: &Team,
        mut a: MatMut<T>,
    ) -> Result<Arrived<'_, T>> {
        let (jb, width) = (plan.u_rows.len(), a.cols());
        if width == 0 {
            return Ok(Arrived::nothing(plan));
        }
        self.write(plan, team, &mut a);
        let rows = self.read(col, plan, a)?;
        Ok(Arrived {
            rows,
            u: self.u(jb, width),
            share: self.share::<T>(width),
            shared: Some(self),
        })
    }

    /// Writes the rows that other ranks need, and moves the displaced rows that stay on this rank.
    fn write<T: Element>(&mut self, plan: &Plan, team: &Team, a: &mut MatMut<T>) {
        let (width, pitch) = (a.cols(), T::doubles(a.cols()));
        assert!(
            pitch <= self.cols && plan.u_rows.len() <= self.nb,
            "an exchange beyond the memory"
        );
        let mut ranks = 0..self.node.size();
        let is_solved = ranks.all(|rank| self.node.is_raised(rank, SOLVED, self.count));
        assert!(is_solved, "an exchange before the last one is over");
        self.count += 1;
        let from: Vec<usize> = plan.contribution().collect();
        // SAFETY: this memory is used by this exchange alone, and `self` is borrowed mutably. All
        // other ranks have solved with the rows that were here, and read again only after the flag.
        let part = unsafe { self.node.mine(0..from.len() * pitch) };
        let part =
            MatMut::row_major(T::from_doubles_mut(part), from.len(), width, pitch * T::PER_DOUBLE);
        stream_rows(team, a.as_ref(), &from, part);
        self.node.raise(WRITTEN, self.count);
        plan.move_staying(a);
    }

    /// Waits for all ranks' rows, and copies those that come to this rank. Returns the rows of U.
    fn read<T: Element>(&self, col: &Comm, plan: &Plan, mut a: MatMut<T>) -> Result<Vec<&[T]>> {
        self.node.wait_for_others(col, WRITTEN, self.count)?;
        let (width, pitch) = (a.cols(), T::doubles(a.cols()));
        let mut rows: Vec<&[T]> = vec![&[]; plan.u_rows.len()];
        for rank in 0..self.node.size() {
            // SAFETY: that rank has raised WRITTEN, and writes here again only after this rank has
            // raised SOLVED, which this rank does with `self` borrowed mutably.
            let contribution =
                unsafe { self.node.part(rank, 0..plan.contributed_rows(rank) * pitch) };
            if rank != self.node.rank() {
                plan.take_coming(rank, contribution, a.rb());
            }
            let places = plan.u_rows[plan.u_rows_from(rank)].iter();
            places.zip(rows_in(contribution, width)).for_each(|(&place, row)| rows[place] = row);
        }
        Ok(rows)
    }

    /// The columns of `width` for which this rank solves, which begin on a cache line.
    fn share<T: Element>(&self, width: usize) -> Range<usize> {
        let (me, size) = (self.node.rank(), self.node.size());
        let line = LINE * T::PER_DOUBLE;
        let bound =
            |rank: usize| if rank == size { width } else { width * rank / size / line * line };
        bound(me)..bound(me + 1)
    }

    fn u<T: Element>(&self, jb: usize, width: usize) -> SharedMat<'_, T> {
        let doubles = 0..T::doubles(jb * width);
        let first = self.u.address(0, &doubles);
        // SAFETY: the doubles are within the part of rank 0, which all ranks have mapped to write,
        // and in memory that this exchange alone uses. Each rank writes its own share, after it has
        // seen all flags WRITTEN: no rank reads the last U any more. All ranks read it after all
        // flags SOLVED.
        unsafe { MatMut::row_major_at(first.cast(), jb * width, jb, width, width) }.share()
    }

    pub(super) fn wait_for_solved(&self, col: &Comm) -> Result<()> {
        self.node.raise(SOLVED, self.count);
        self.node.wait_for_others(col, SOLVED, self.count)
    }
}
