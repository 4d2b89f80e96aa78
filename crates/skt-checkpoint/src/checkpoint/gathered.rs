//! Checksums of other members' data.
//!
//! A member that computes a parity reads the data of others, in place or as it arrives, and
//! computes the checksums of their cells at the same time, which saves the owners a pass over their
//! memory. After the encoding it sends each owner its checksums. Both sides keep them in the same
//! order: unit by unit; within a unit row by row of the one block that the owner has in the stripe
//! of the keeper's first parity; within a row cell by cell.

use std::ops::Range;

use skt_store::layout::{Geometry, Stripes};

/// Rows and cells of a member's block in the open unit.
#[derive(Debug, Clone, Default)]
struct Open {
    /// Index of its first checksum.
    at: usize,
    rows: Range<usize>,
    cells: Range<usize>,
}

/// Checksums that one member has computed, by the member whose data they belong to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gathered {
    sums: Vec<Vec<u64>>,
    open: Vec<Open>,
}

/// The block of a band that `owner` has in the stripe whose first parity is on `keeper`, if any.
pub(super) fn shared_block(geometry: Geometry, owner: usize, keeper: usize) -> Option<usize> {
    let block = (keeper + geometry.members - owner - 1) % geometry.members;
    (block < geometry.data()).then_some(block)
}

impl Gathered {
    /// Clears everything for an encoding in a group of `members`.
    pub(crate) fn clear(&mut self, members: usize) {
        self.sums.resize(members, Vec::new());
        self.sums.iter_mut().for_each(Vec::clear);
        self.open = vec![Open::default(); members];
    }

    /// Opens a unit: cells `cells` of the rows of a band. `me` is the position of this member in
    /// the group.
    pub(crate) fn open(&mut self, stripes: &Stripes, me: usize, band: usize, cells: Range<usize>) {
        for (member, sums) in self.sums.iter_mut().enumerate() {
            let block = shared_block(stripes.geometry, member, me);
            let rows = block.map_or(0..0, |block| stripes.block(band, block));
            let at = sums.len();
            sums.resize(at + rows.len() * cells.len(), 0);
            self.open[member] = Open { at, rows, cells: cells.clone() };
        }
    }

    /// Stores the checksum of a cell of a member's row, of the unit opened last.
    ///
    /// # Panics
    /// When that member has no such row or cell in the stripe of this member's first parity.
    pub(crate) fn put(&mut self, member: usize, row: usize, cell: usize, sum: u64) {
        let Open { at, rows, cells } = &self.open[member];
        assert!(rows.contains(&row) && cells.contains(&cell), "of the open unit");
        let place = at + (row - rows.start) * cells.len() + (cell - cells.start);
        self.sums[member][place] = sum;
    }

    /// All checksums of a member's data.
    pub(crate) fn member(&self, member: usize) -> &[u64] {
        &self.sums[member]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_is_read_by_the_keeper_of_its_stripe() {
        for members in 2..8 {
            for parities in 1..=members / 2 {
                let geometry = Geometry { members, parities };
                for owner in 0..members {
                    let mut blocks: Vec<usize> = (0..members)
                        .filter_map(|keeper| shared_block(geometry, owner, keeper))
                        .collect();
                    blocks.sort_unstable();
                    assert!(blocks.into_iter().eq(0..geometry.data()));
                    for keeper in 0..members {
                        if let Some(block) = shared_block(geometry, owner, keeper) {
                            let stripe = geometry.stripe_of(owner, block);
                            assert_eq!(geometry.parity_member(stripe, 0), keeper);
                        }
                    }
                }
            }
        }
    }
}
