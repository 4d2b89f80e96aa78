//! The memory that the ranks of a process column share, where they are on one node.

use super::SolveError;
use crate::grid::Grid;
use crate::pfact::pivot::SharedCandidates;
use crate::swap::RowBuffers;
use crate::swap::node::{self, NodeRows};

/// The shared memory of a process column. Without it all fields are empty. Otherwise each rank has
/// `pivot candidates | rows of the trailing columns | rows of the columns of one panel`, and the
/// first rank also has `| U of the trailing columns | U of the columns of one panel`.
#[derive(Default)]
pub(super) struct ColumnMemory {
    pub candidates: Option<SharedCandidates>,
    pub trailing: Option<NodeRows>,
    pub ahead: Option<NodeRows>,
}

impl ColumnMemory {
    /// Memory for panels of up to `nb` columns, whose rows have up to `panel_cols` doubles, and
    /// rows of up to `cols` doubles right of them: shared if `share` asks for it and all ranks of
    /// the process column are on one node, else empty. Collective over the process column.
    pub(super) fn new(
        grid: &Grid,
        share: bool,
        nb: usize,
        cols: usize,
        panel_cols: usize,
    ) -> Result<Self, SolveError> {
        if !share || grid.p == 1 {
            return Ok(Self::default());
        }
        let doubles = Self::doubles(nb, cols, panel_cols, grid.myrow);
        let Some(mut node) = grid.col_memory.take(&grid.col, doubles)? else {
            return Ok(Self::default());
        };
        let candidates =
            SharedCandidates::new(node.split_front(SharedCandidates::doubles(nb), 1), nb);
        let widths = [cols, panel_cols];
        let rows = widths.map(|w| node.split_front(RowBuffers::rows_doubles(nb, w), node::FLAGS));
        let u = widths.map(|w| node.split_front(nb * w, 0));
        let ([rows, rows_ahead], [u, u_ahead]) = (rows, u);
        Ok(Self {
            candidates: Some(candidates),
            trailing: Some(NodeRows::new(rows, u, (nb, cols))),
            ahead: Some(NodeRows::new(rows_ahead, u_ahead, (nb, panel_cols))),
        })
    }

    /// Doubles of the part of the rank in process row `myrow`; at most `usize::MAX`.
    pub(super) fn doubles(nb: usize, cols: usize, panel_cols: usize, myrow: usize) -> usize {
        let rows = |cols: usize| {
            if myrow == 0 {
                RowBuffers::doubles(nb, cols)
            } else {
                RowBuffers::rows_doubles(nb, cols)
            }
        };
        SharedCandidates::doubles(nb).saturating_add(rows(cols)).saturating_add(rows(panel_cols))
    }
}
