//! The P x Q process grid: this rank's row and column, and its groups of ranks.

use crate::config::Pmap;
use crate::hpl::comm::node::Kept;
use crate::hpl::comm::{Comm, Result};

pub use skt_terms::layout::Cyclic;

/// This rank's position in the process grid, and its groups of ranks.
pub struct Grid<C: Comm> {
    /// Process rows.
    pub p: usize,
    /// Process columns that hold the matrix.
    pub q: usize,
    /// Process columns behind them, which hold checksums.
    pub checksums: usize,
    /// This rank's process row.
    pub myrow: usize,
    /// This rank's process column.
    pub mycol: usize,
    /// All ranks of the grid.
    pub all: C,
    /// The ranks of this process row; a rank's number there is its process column.
    pub row: C,
    /// The ranks of this process column; a rank's number there is its process row.
    pub col: C,
    /// Memory that the ranks of the process row share.
    pub row_memory: Kept,
    /// Memory that those of the process column share.
    pub col_memory: Kept,
}

impl<C: Comm> Grid<C> {
    /// Lays `p x q` of the ranks of `world` out as a grid (HPL_grid_init).
    /// Collective over `world`; ranks beyond `p q` get `None` and stay idle.
    ///
    /// # Panics
    /// When the group is too small.
    pub fn new(world: &C, p: usize, q: usize, pmap: Pmap) -> Result<Option<Self>> {
        Self::with_checksums(world, (p, q), 0, pmap)
    }

    /// A grid of `p x q` ranks with `checksums` process columns behind it, which own no
    /// panel: `row` has all `q + checksums`. Else as [`Self::new`].
    ///
    /// # Panics
    /// When the group is too small.
    pub fn with_checksums(
        world: &C,
        (p, q): (usize, usize),
        checksums: usize,
        pmap: Pmap,
    ) -> Result<Option<Self>> {
        let width = q + checksums;
        let ranks = p * width;
        assert!(ranks <= world.size(), "a {p} x {width} grid needs {ranks} ranks");
        let rank = world.rank();
        let color = (rank < ranks).then_some(0);
        let Some(all) = world.split(color, rank as u32)? else { return Ok(None) };
        let place = match pmap {
            Pmap::RowMajor => (rank / width, rank % width),
            Pmap::ColumnMajor => (rank % p, rank / p),
        };
        Self::at(all, (p, q), checksums, place).map(Some)
    }

    /// A grid of the ranks of `all`, this one at `(myrow, mycol)`. Where places are left empty,
    /// `row` and `col` have the ranks that are there, in order. Collective.
    pub fn at(
        all: C,
        (p, q): (usize, usize),
        checksums: usize,
        (myrow, mycol): (usize, usize),
    ) -> Result<Self> {
        let row = all.split(Some(myrow as u32), mycol as u32)?.expect("a colour was given");
        let col = all.split(Some(mycol as u32), myrow as u32)?.expect("a colour was given");
        let (row_memory, col_memory) = (Kept::default(), Kept::default());
        Ok(Self { p, q, checksums, myrow, mycol, all, row, col, row_memory, col_memory })
    }

    /// Whether this rank holds checksums.
    pub fn is_checksum(&self) -> bool {
        self.mycol >= self.q
    }

    /// The process column whose columns lie as this rank's do: its own, or the first one,
    /// which has most of them, for checksums.
    pub fn layout_col(&self) -> usize {
        if self.is_checksum() { 0 } else { self.mycol }
    }

    /// How rows are dealt out, for panels of `nb` columns.
    pub fn rows(&self, nb: usize) -> Cyclic {
        Cyclic::rows(nb, self.p)
    }

    /// How columns are dealt out, for panels of `nb` columns.
    pub fn cols(&self, nb: usize) -> Cyclic {
        Cyclic::cols(nb, self.q)
    }
}
