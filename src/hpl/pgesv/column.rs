//! What the ranks of a process column keep for each other, where they share a node.

use std::sync::Arc;

use super::SolveError;
use crate::hpl::comm::Comm;
use crate::hpl::comm::node::NodeMemory;
use crate::hpl::grid::Grid;
use crate::hpl::pfact::pivot::Mail;
use crate::hpl::swap::node::{self, NodeRoom};

/// Flag of the pivot mail; those of the two rooms follow.
const MAIL: usize = 0;

/// The memory of a process column: nothing, or for each rank
/// `pivot mail | rows of the trailing columns | rows of the columns of one panel`,
/// and on the first one `| U of the trailing columns | U of those of one panel`.
pub(super) struct ColumnMemory {
    node: Option<Arc<NodeMemory>>,
    nb: usize,
    cols: usize,
}

impl ColumnMemory {
    /// For panels of up to `nb` columns and up to `cols` columns right of them, in
    /// shared memory if `share` asks for it and all ranks of the process column
    /// share a node. Collective over the process column.
    pub(super) fn new<C: Comm>(
        grid: &Grid<C>,
        share: bool,
        nb: usize,
        cols: usize,
    ) -> Result<Self, SolveError> {
        let mut column = Self { node: None, nb, cols };
        if share && grid.p > 1 {
            let doubles = Self::doubles(nb, cols, grid.myrow);
            column.node = grid.col_memory.take(&grid.col, doubles)?;
        }
        Ok(column)
    }

    /// Doubles of the part of process row `myrow`.
    pub(super) fn doubles(nb: usize, cols: usize, myrow: usize) -> usize {
        let column = Self { node: None, nb, cols };
        if myrow == 0 { column.u_start(2) } else { column.rows_start(2) }
    }

    /// Where the rows of a room begin, 0 or 1, or end, 2.
    fn rows_start(&self, room: usize) -> usize {
        let rooms = [self.cols, self.nb].map(|cols| NodeRoom::rows_doubles(self.nb, cols));
        rooms[..room].iter().fold(Mail::doubles(self.nb), |sum, &room| sum.saturating_add(room))
    }

    /// Where the U of a room begins, 0 or 1, or end, 2.
    fn u_start(&self, room: usize) -> usize {
        let rooms = [self.cols, self.nb].map(|cols| NodeRoom::u_doubles(self.nb, cols));
        rooms[..room].iter().fold(self.rows_start(2), |sum, &room| sum.saturating_add(room))
    }

    /// Where pivots are exchanged.
    pub(super) fn mail(&self) -> Option<Mail> {
        self.node.as_ref().map(|node| Mail::new(node.clone(), 0, self.nb, MAIL))
    }

    /// Where rows are: those of one panel `ahead`, or those of all columns.
    pub(super) fn room(&self, ahead: bool) -> Option<NodeRoom> {
        let (index, cols) = if ahead { (1, self.nb) } else { (0, self.cols) };
        let flag = MAIL + 1 + index * node::FLAGS;
        let node = self.node.as_ref()?.clone();
        let starts = (self.rows_start(index), self.u_start(index));
        Some(NodeRoom::new(node, starts, (self.nb, cols), flag))
    }
}
