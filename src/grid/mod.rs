//! The P x Q process grid and the block-cyclic map of rows and columns onto it.
//!
//! One dimension at a time: global indices are dealt out in blocks of `nb` to
//! `procs` processes in turn, the first block to process 0.

use crate::comm::{Comm, Result};
use crate::config::Pmap;

/// One dimension of a block-cyclic distribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cyclic {
    /// Block size.
    pub nb: usize,
    /// Number of processes.
    pub procs: usize,
}

impl Cyclic {
    /// The process that holds global index `g` (HPL_indxg2p).
    pub fn owner(self, g: usize) -> usize {
        (g / self.nb) % self.procs
    }

    /// How many of the global indices `0..n` process `me` holds (HPL_numroc).
    /// Also the local index of the first index at or beyond `n` that it holds.
    pub fn count_before(self, n: usize, me: usize) -> usize {
        let (blocks, rest) = (n / self.nb, n % self.nb);
        let whole = (blocks + self.procs - 1 - me) / self.procs * self.nb;
        whole + if blocks % self.procs == me { rest } else { 0 }
    }

    /// Local index of global index `g` on its owner (HPL_indxg2l).
    pub fn local(self, g: usize) -> usize {
        g / (self.nb * self.procs) * self.nb + g % self.nb
    }

    /// Global index of local index `l` on process `me` (HPL_indxl2g).
    pub fn global(self, l: usize, me: usize) -> usize {
        (l / self.nb * self.procs + me) * self.nb + l % self.nb
    }
}

/// This rank's place in the process grid, and the groups it talks in.
pub struct Grid<C: Comm> {
    /// Process rows.
    pub p: usize,
    /// Process columns.
    pub q: usize,
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
}

impl<C: Comm> Grid<C> {
    /// Lays `p x q` of the ranks of `world` out as a grid (HPL_grid_init).
    /// Collective over `world`; ranks beyond `p q` get `None` and stay idle.
    ///
    /// # Panics
    /// When the group is too small.
    pub fn new(world: &C, p: usize, q: usize, pmap: Pmap) -> Result<Option<Self>> {
        assert!(p * q <= world.size(), "a {p} x {q} grid needs {} ranks", p * q);
        let rank = world.rank();
        let color = (rank < p * q).then_some(0);
        let Some(all) = world.split(color, rank as u32)? else { return Ok(None) };
        let (myrow, mycol) = match pmap {
            Pmap::RowMajor => (rank / q, rank % q),
            Pmap::ColumnMajor => (rank % p, rank / p),
        };
        let row = all.split(Some(myrow as u32), mycol as u32)?.expect("a colour was given");
        let col = all.split(Some(mycol as u32), myrow as u32)?.expect("a colour was given");
        Ok(Some(Self { p, q, myrow, mycol, all, row, col }))
    }

    /// How rows are dealt out.
    pub fn rows(&self, nb: usize) -> Cyclic {
        Cyclic { nb, procs: self.p }
    }

    /// How columns are dealt out.
    pub fn cols(&self, nb: usize) -> Cyclic {
        Cyclic { nb, procs: self.q }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_index_has_one_place(n in 0usize..200, nb in 1usize..40, procs in 1usize..8) {
            let map = Cyclic { nb, procs };
            let mut next = vec![0; procs];
            for g in 0..n {
                let me = map.owner(g);
                prop_assert_eq!(map.local(g), next[me]);
                prop_assert_eq!(map.global(next[me], me), g);
                next[me] += 1;
            }
            for (me, &count) in next.iter().enumerate() {
                prop_assert_eq!(map.count_before(n, me), count);
            }
        }
    }
}
