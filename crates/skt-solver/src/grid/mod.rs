//! The P x Q process grid: this rank's row and column, and its groups of ranks.

use skt_comm::node::KeptMemory;
use skt_comm::{Comm, Result};
use skt_host::choice::Pmap;

pub use skt_host::columns::ColumnMap;
pub use skt_host::layout::Cyclic;

pub struct Grid {
    pub p: usize,
    /// Process columns that hold the matrix.
    pub q: usize,
    /// Process columns after those, which hold checksums.
    pub checksums: usize,
    pub myrow: usize,
    pub mycol: usize,
    pub all: Comm,
    /// The ranks of this process row; a rank's number there is its process column.
    pub row: Comm,
    /// The ranks of this process column; a rank's number there is its process row.
    pub col: Comm,
    pub row_memory: KeptMemory,
    pub col_memory: KeptMemory,
    /// The distribution of columns, where they do not go to process columns in turn.
    columns: Option<ColumnMap>,
}

impl Grid {
    /// Arranges `p x q` of the ranks of `world` as a grid (HPL_grid_init). Collective over `world`;
    /// ranks from `p q` on get `None` and stay idle.
    pub fn new(world: &Comm, p: usize, q: usize, pmap: Pmap) -> Result<Option<Self>> {
        Self::with_checksums(world, p, q, 0, pmap)
    }

    /// [`Self::new`] with `p x (q + checksums)` ranks. The last `checksums` process columns own no
    /// panel; `row` has all `q + checksums` ranks.
    pub fn with_checksums(
        world: &Comm,
        p: usize,
        q: usize,
        checksums: usize,
        pmap: Pmap,
    ) -> Result<Option<Self>> {
        let width = q + checksums;
        let ranks = p * width;
        assert!(ranks <= world.size(), "a {p} x {width} grid needs {ranks} ranks");
        let rank = world.rank();
        let color = (rank < ranks).then_some(0);
        let Some(all) = world.split(color, rank as u32)? else { return Ok(None) };
        let (myrow, mycol) = match pmap {
            Pmap::RowMajor => (rank / width, rank % width),
            Pmap::ColumnMajor => (rank % p, rank / p),
        };
        Self::at(all, p, q, checksums, myrow, mycol).map(Some)
    }

    /// Makes a grid of the ranks of `all`, with this one at `(myrow, mycol)`. Positions may be
    /// empty: `row` and `col` then have the ranks that exist, in order. Collective over `all`.
    pub fn at(
        all: Comm,
        p: usize,
        q: usize,
        checksums: usize,
        myrow: usize,
        mycol: usize,
    ) -> Result<Self> {
        let row = all.split(Some(myrow as u32), mycol as u32)?.expect("a colour was given");
        let col = all.split(Some(mycol as u32), myrow as u32)?.expect("a colour was given");
        let (row_memory, col_memory) = (KeptMemory::default(), KeptMemory::default());
        let columns = None;
        Ok(Self { p, q, checksums, myrow, mycol, all, row, col, row_memory, col_memory, columns })
    }

    pub fn is_checksum(&self) -> bool {
        self.mycol >= self.q
    }

    /// The process column with this rank's column layout: its own, or for checksums the first one,
    /// which has the most columns.
    pub fn layout_col(&self) -> usize {
        if self.is_checksum() { 0 } else { self.mycol }
    }

    pub fn rows(&self, nb: usize) -> Cyclic {
        Cyclic::rows(nb, self.p)
    }

    pub fn distribute_columns(&mut self, columns: ColumnMap) {
        assert_eq!(columns.q(), self.q, "process columns");
        assert!(columns.is_cyclic() || self.checksums == 0, "checksums need blocks in turn");
        self.columns = (!columns.is_cyclic()).then_some(columns);
    }

    pub fn cols(&self, nb: usize) -> ColumnMap {
        match &self.columns {
            None => ColumnMap::cyclic(nb, self.q),
            Some(columns) => {
                assert_eq!(columns.nb(), nb, "columns of a panel");
                columns.clone()
            }
        }
    }
}
