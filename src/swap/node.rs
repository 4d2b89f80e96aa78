//! The exchange where all ranks of the process column share a node: each puts the
//! rows that others need into its own memory, and all read them there.
//!
//! The solve for U, which every rank needs whole, is shared as well: each rank
//! solves for some of the columns, and copies the others from their solvers.
//!
//! ```text
//! gather    own rows of U, on the diagonal rank displaced rows     raise WRITTEN
//! solve     own share of the columns, from everybody's rows        raise SOLVED
//! copy      the others' shares                                     raise READ
//! ```
//!
//! Rows are written past the caches: the other core has just read what was there,
//! and would have to give back each line of it, one by one.

use std::ops::Range;
use std::sync::Arc;

use super::{Plan, scatter};
use crate::blas::view::SharedMat;
use crate::blas::{MatMut, MatRef};
use crate::comm::node::NodeMemory;
use crate::comm::{Comm, Result};
use crate::pages;
use crate::team::Team;

/// Columns a rank below which sharing the solve is not worth waiting for it.
const SHARE_COLS: usize = 64;
/// Rows below which copying is not worth cutting up for the team.
const TEAM_GRAIN_ROWS: usize = 16;
/// Shares begin on a cache line.
const LINE: usize = 8;

/// A rank's part in the exchanges of one range of columns.
pub struct NodeRoom {
    node: Arc<NodeMemory>,
    /// Where rows lie in each part, and behind them the solved share.
    start: usize,
    nb: usize,
    cols: usize,
    /// WRITTEN, and the two flags behind it.
    flag: usize,
    /// Exchanges begun.
    count: u64,
}

/// Flags that a room takes.
pub const FLAGS: usize = 3;
const SOLVED: usize = 1;
const READ: usize = 2;

impl NodeRoom {
    /// A room in parts of `node`, of [`NodeRoom::doubles`] from `start` on, with
    /// [`FLAGS`] flags from `flag` on.
    pub fn new(node: Arc<NodeMemory>, start: usize, nb: usize, cols: usize, flag: usize) -> Self {
        Self { node, start, nb, cols, flag, count: 0 }
    }

    /// Doubles that it takes of each part: rows of U and displaced ones, and a
    /// solved share of U.
    pub fn doubles(nb: usize, cols: usize, procs: usize) -> usize {
        2 * nb * cols + nb * (cols.div_ceil(procs) + LINE)
    }

    /// Rows of `width` columns in everybody's part, from `first` on.
    fn rows(&self, rank: usize, first: usize, count: usize, width: usize) -> &[f64] {
        let start = self.start + first * width;
        // SAFETY: read between the owner's flag WRITTEN and this rank's flag READ.
        unsafe { self.node.part(rank, start..start + count * width) }
    }

    /// The exchange of rows: what [`super::exchange`] does. Returns the rows of U.
    pub(super) fn exchange<C: Comm>(
        &mut self,
        col: &C,
        plan: &Plan,
        team: &Team,
        mut a: MatMut,
    ) -> Result<Vec<&[f64]>> {
        let (me, size, width) = (col.rank(), col.size(), a.cols());
        assert!(width <= self.cols && plan.u_rows.len() <= self.nb, "an exchange beyond the room");
        // All have read what the last exchange left here.
        self.node.wait_for_others(col, self.flag + READ, self.count)?;
        self.count += 1;
        let leaving: Vec<usize> = match me == plan.diagonal {
            true => plan.leaving().map(|i| plan.displaced_from[i]).collect(),
            false => Vec::new(),
        };
        let doubles = (plan.mine.len() + leaving.len()) * width;
        // SAFETY: nobody reads it before the flag.
        let part = unsafe { self.node.mine(self.start..self.start + doubles) };
        let from: Vec<usize> = plan.mine.iter().chain(&leaving).copied().collect();
        let (source, part) = (a.as_ref(), SharedMat::row_major(part, from.len(), width));
        team.split(from.len(), TEAM_GRAIN_ROWS, |rows| {
            // SAFETY: the team's parts do not overlap.
            let mut part = unsafe { part.block(rows.clone(), 0..width) };
            let places = from[rows].iter().enumerate();
            places.for_each(|(i, &row)| write(source.row(row), part.row_mut(i)));
        });
        self.node.raise(self.flag, self.count);
        if me == plan.diagonal {
            plan.move_staying(&mut a);
        }
        self.node.wait_for_others(col, self.flag, self.count)?;
        if me != plan.diagonal {
            let mine = plan.displaced_segment(me);
            let rows = self.rows(plan.diagonal, plan.first_for(me), mine.len(), width);
            scatter(rows, &plan.displaced_to[mine], a.rb());
        }
        let mut rows: Vec<&[f64]> = vec![&[]; plan.u_rows.len()];
        for rank in 0..size {
            let own = plan.segment(rank);
            let there = self.rows(rank, 0, own.len(), width).chunks_exact(width);
            plan.u_rows[own].iter().zip(there).for_each(|(&place, row)| rows[place] = row);
        }
        Ok(rows)
    }

    /// The columns of `width` that `rank` solves for; all of them, for every rank,
    /// where that is not to be shared.
    pub fn share(&self, rank: usize, width: usize) -> Range<usize> {
        let size = self.node.size();
        if width < size * SHARE_COLS {
            return 0..width;
        }
        let bound = |rank: usize| match rank == size {
            true => width,
            false => width * rank / size / LINE * LINE,
        };
        bound(rank)..bound(rank + 1)
    }

    /// Shares what this rank has solved for, its columns of `u`, and copies there
    /// what the others have.
    ///
    /// # Errors
    /// When the job has been aborted.
    pub fn share_solved<C: Comm>(
        &self,
        col: &C,
        u: &SharedMat,
        (jb, width): (usize, usize),
        team: &Team,
    ) -> Result<()> {
        let me = self.node.rank();
        let own = self.share(me, width);
        if own.len() == width {
            return Ok(());
        }
        let start = self.start + 2 * self.nb * self.cols;
        let place = |rank: usize| start..start + jb * self.share(rank, width).len();
        // SAFETY: all have read the last share, and do not look before the flag.
        let mine = unsafe { self.node.mine(place(me)) };
        let mine = SharedMat::row_major(mine, jb, own.len());
        team.split(jb, TEAM_GRAIN_ROWS, |rows| {
            // SAFETY: the parts do not overlap, and U is only read.
            let (from, mut to) = unsafe {
                (u.block(rows.clone(), own.clone()), mine.block(rows.clone(), 0..own.len()))
            };
            let from = from.as_ref();
            (0..rows.len()).for_each(|i| write(from.row(i), to.row_mut(i)));
        });
        self.node.raise(self.flag + SOLVED, self.count);
        for rank in (0..self.node.size()).filter(|&rank| rank != me) {
            self.node.wait(col, rank, self.flag + SOLVED, self.count)?;
            let cols = self.share(rank, width);
            // SAFETY: solved, and not written before this rank's flag READ.
            let theirs = unsafe { self.node.part(rank, place(rank)) };
            let theirs = MatRef::row_major(theirs, jb, cols.len(), cols.len());
            team.split(jb, TEAM_GRAIN_ROWS, |rows| {
                // SAFETY: the parts do not overlap.
                let mut to = unsafe { u.block(rows.clone(), cols.clone()) };
                for (i, row) in rows.enumerate() {
                    to.row_mut(i).copy_from_slice(theirs.row(row));
                }
            });
        }
        Ok(())
    }

    /// Says that this rank does not look at the others' rows any more.
    pub(super) fn release(&self) {
        self.node.raise(self.flag + READ, self.count);
    }
}

/// Copies a row to where another core reads it next.
fn write(row: &[f64], place: &mut [f64]) {
    pages::stream(bytemuck::cast_slice(row), bytemuck::cast_slice_mut(place));
}
