//! What the ranks of a process column keep for each other, where they share a node.

use super::SolveError;
use crate::hpl::comm::Comm;
use crate::hpl::grid::Grid;
use crate::hpl::pfact::pivot::SharedOffers;
use crate::hpl::swap::node::{self, NodeRows};

/// The memory of a process column: nothing, or for each rank
/// `pivot offers | rows of the trailing columns | rows of the columns of one panel`,
/// and on the first one `| U of the trailing columns | U of those of one panel`.
#[derive(Default)]
pub(super) struct ColumnMemory {
    /// Where pivots are exchanged.
    pub offers: Option<SharedOffers>,
    /// Where rows of the trailing columns are.
    pub trailing: Option<NodeRows>,
    /// Where rows of the columns of one panel are.
    pub ahead: Option<NodeRows>,
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
        if !share || grid.p == 1 {
            return Ok(Self::default());
        }
        let doubles = Self::doubles(nb, cols, grid.myrow);
        let Some(mut node) = grid.col_memory.take(&grid.col, doubles)? else {
            return Ok(Self::default());
        };
        let offers = SharedOffers::new(node.split_front(SharedOffers::doubles(nb), 1), nb);
        let widths = [cols, nb];
        let rows = widths.map(|w| node.split_front(NodeRows::rows_doubles(nb, w), node::FLAGS));
        let u = widths.map(|w| node.split_front(NodeRows::u_doubles(nb, w), 0));
        let ([rows, rows_ahead], [u, u_ahead]) = (rows, u);
        Ok(Self {
            offers: Some(offers),
            trailing: Some(NodeRows::new(rows, u, (nb, cols))),
            ahead: Some(NodeRows::new(rows_ahead, u_ahead, (nb, nb))),
        })
    }

    /// Doubles of the part of process row `myrow`; at most `usize::MAX`.
    pub(super) fn doubles(nb: usize, cols: usize, myrow: usize) -> usize {
        let rows = |cols: usize| {
            let u = if myrow == 0 { NodeRows::u_doubles(nb, cols) } else { 0 };
            NodeRows::rows_doubles(nb, cols).saturating_add(u)
        };
        SharedOffers::doubles(nb).saturating_add(rows(cols)).saturating_add(rows(nb))
    }
}
