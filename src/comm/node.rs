//! Memory that the ranks of a node share, and matrices in it.

use std::ops::Range;

pub use skt_checkpoint::comm::node::*;

use crate::blas::MatMut;

/// Matrices in the memory of a node.
pub trait NodeMatrix {
    /// Doubles `range` of the part of `rank` as a matrix without gaps, whose rows are
    /// contiguous, to be written by several ranks.
    ///
    /// # Safety
    /// Flags keep ranks apart: nobody reads or writes an element that another one
    /// writes at the time.
    ///
    /// # Panics
    /// When the part has no such doubles, or they are too few.
    unsafe fn matrix(
        &self,
        rank: usize,
        range: Range<usize>,
        rows: usize,
        cols: usize,
    ) -> MatMut<'_>;
}

impl NodeMatrix for NodeMemory {
    unsafe fn matrix(
        &self,
        rank: usize,
        range: Range<usize>,
        rows: usize,
        cols: usize,
    ) -> MatMut<'_> {
        let start = self.address(rank, &range);
        // SAFETY: within the part, which all have mapped to write; the caller's promise.
        unsafe { MatMut::row_major_at(start, range.len(), rows, cols, cols) }
    }
}
