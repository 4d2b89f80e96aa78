//! Distributed substitution: T x = y with a triangle T of the matrix, L or U (HPL_pdtrsv).
//!
//! The blocks of x are solved for in order: with U from the last to the first, with L from the
//! first to the last. Each process column c keeps a share s_c of the right-hand side. All shares,
//! with those in transit, add up to y minus T times the part of x that is known.
//!
//! ```text
//! for each block k, on its process column:
//!     T_kk and s_k are gathered on one of its ranks; the ranks take turns from block to block
//!     x_k = T_kk^-1 s_k              solved there, broadcast to the process column
//!     s  -= T x_k                    on the rows of the blocks before its own next one; sent to
//!                                    the process column of the next block
//!     s  -= T x_k                    on all rows after those; kept
//! ```
//!
//! The process column of the next block needs only the sent rows to continue, so the product on the
//! other rows overlaps with its work. The owner of each block has received all shares of it when it
//! solves the block: a process column sends on the rows of all blocks before its own next one. It
//! gathers T_kk before it receives s_k, while the process column before it still computes.

use std::ops::Range;

use crate::blas::view::SharedMat;
use crate::blas::{Element, MatMut, MatRef, Triangle};
use crate::grid::{ColumnMap, Cyclic, Grid};
use crate::team::Team;
use crate::tuning::TUNING;
use crate::work::{self, Work};
use skt_comm::{Comm, Result, Tag, collect};

const TAG_SHARE: Tag = 0x130;
const TAG_DIAGONAL: Tag = 0x132;

pub(super) struct Substitution<'a, T> {
    pub grid: &'a Grid,
    pub team: &'a Team,
    pub n: usize,
    pub nb: usize,
    pub a: MatRef<'a, T>,
    pub triangle: Triangle,
}

impl<T: Element> Substitution<'_, T> {
    /// Solves T x = y. `share` has this rank's share of y, an element for each of its rows; the
    /// shares of the process columns add up to y, and the owners of later blocks have none of the
    /// first. Returns x for this rank's columns of A.
    pub(crate) fn solve(&self, mut share: Vec<f64>) -> Result<Vec<f64>> {
        let Self { grid, n, nb, a, triangle, .. } = *self;
        let (rows, cols) = (grid.rows(nb), grid.cols(nb));
        let mut x = vec![0.0; cols.count_before(n, grid.mycol)];
        let blocks = n.div_ceil(nb);
        let mut incoming = vec![0.0; a.rows()];
        // With P = 1 nothing has to be gathered.
        let mut diagonal = (grid.p > 1).then(|| Diagonal::new(nb.min(n), rows, grid.myrow));
        let owner = |step: usize| cols.block_owner(self.block(step));
        for step in 0..blocks {
            let k = self.block(step);
            if cols.block_owner(k) != grid.mycol {
                continue;
            }
            let range = k * nb..((k + 1) * nb).min(n);
            let first = cols.local(range.start);
            let columns = first..first + range.len();
            let own = self.rows_of_blocks(step..step + 1);
            let own_rows = a.block(own.clone(), columns.clone());
            if let Some(diagonal) = &mut diagonal {
                diagonal.begin_block(cols.block_index(k), range.clone());
                diagonal.gather(&grid.col, own_rows)?;
            }
            let before = step.checked_sub(1).map(|before| (before, owner(before)));
            if let Some((before, sender)) = before.filter(|&(_, column)| column != grid.mycol) {
                let handed = self.rows_of_blocks(step..self.next_own_step(&cols, before));
                self.add_handed_over(sender, &mut incoming[handed.clone()], &mut share[handed])?;
            }
            let xk = &mut x[columns.clone()];
            match &mut diagonal {
                Some(diagonal) => diagonal.solve(&grid.col, triangle, &share[own], xk)?,
                None => {
                    xk.copy_from_slice(&share[own]);
                    work::begins(Work::Read { entries: xk.len() * xk.len() });
                    T::solve_triangle(triangle, own_rows, xk);
                }
            }
            let next_own = self.next_own_step(&cols, step);
            let near = self.rows_of_blocks(step + 1..next_own);
            let far = self.rows_of_blocks(next_own..blocks);
            self.subtract(a.block(near.clone(), columns.clone()), xk, &mut share[near.clone()]);
            if step + 1 < next_own {
                grid.row.send(&share[near.clone()], owner(step + 1), TAG_SHARE)?;
                share[near].fill(0.0);
            }
            self.subtract(a.block(far.clone(), columns), xk, &mut share[far]);
            work::piece_done();
        }
        Ok(x)
    }

    fn block(&self, step: usize) -> usize {
        match self.triangle {
            Triangle::UnitLower => step,
            Triangle::Upper => self.n.div_ceil(self.nb) - 1 - step,
        }
    }

    /// The next step after `step` of the same process column; the number of steps if there is none.
    fn next_own_step(&self, cols: &ColumnMap, step: usize) -> usize {
        let (k, blocks) = (self.block(step), self.n.div_ceil(self.nb));
        let next = match self.triangle {
            Triangle::UnitLower => cols.next_block(k, blocks),
            Triangle::Upper => cols.earlier_block(k, 1),
        };
        next.map_or(blocks, |next| self.block(next))
    }

    fn rows_of_blocks(&self, Range { start, end }: Range<usize>) -> Range<usize> {
        let Self { grid, n, nb, .. } = *self;
        let (map, blocks) = (grid.rows(nb), n.div_ceil(nb));
        let blocks = match self.triangle {
            Triangle::UnitLower => start..end,
            Triangle::Upper => blocks - end..blocks - start,
        };
        let local = |block: usize| map.count_before((block * nb).min(n), grid.myrow);
        local(blocks.start)..local(blocks.end)
    }

    /// To these rows of `share`, adds what `sender`, the process column of the block before, sent.
    fn add_handed_over(
        &self,
        sender: usize,
        incoming: &mut [f64],
        share: &mut [f64],
    ) -> Result<()> {
        self.grid.row.recv(incoming, sender, TAG_SHARE)?;
        share.iter_mut().zip(incoming).for_each(|(mine, theirs)| *mine += *theirs);
        Ok(())
    }

    /// `s := s - T x`, on all threads: they read T from memory faster than one.
    fn subtract(&self, t: MatRef<T>, x: &[f64], s: &mut [f64]) {
        let rows = t.rows();
        work::begins(Work::Read { entries: rows * x.len() });
        let s = SharedMat::row_major(s, 1, rows);
        self.team.split(rows, TUNING.back_grain_rows, |part| {
            // SAFETY: the parts do not overlap.
            let mut s = unsafe { s.block(0..1, part.clone()) };
            T::subtract_product(t.block(part, 0..x.len()), x, s.row_mut(0));
        });
    }
}

/// A diagonal block, gathered on one rank of its process column.
struct Diagonal<T> {
    map: Cyclic,
    me: usize,
    root: usize,
    rows: Range<usize>,
    /// On the rank that gathers: the block, row by row.
    block: Vec<T>,
    /// This rank's rows to be sent; on the rank that gathers: the rows of all ranks, rank by rank.
    packed: Vec<T>,
    /// Elements of the right-hand side, as `packed` has rows.
    packed_share: Vec<f64>,
}

impl<T: Element> Diagonal<T> {
    fn new(nb: usize, map: Cyclic, me: usize) -> Self {
        let room = || vec![T::ZERO; nb * nb];
        let packed_share = vec![0.0; nb];
        Self { map, me, root: 0, rows: 0..0, block: room(), packed: room(), packed_share }
    }

    /// Begins the `count`-th block of a process column, of these global rows.
    fn begin_block(&mut self, count: usize, rows: Range<usize>) {
        self.root = count % self.map.procs;
        self.rows = rows;
    }

    fn gather(&mut self, col: &Comm, own: MatRef<T>) -> Result<()> {
        let jb = self.rows.len();
        for (i, row) in self.packed.chunks_exact_mut(jb).take(own.rows()).enumerate() {
            row.copy_from_slice(own.row(i));
        }
        let Self { map, me, root, rows, block, packed, .. } = self;
        if !send_to_root(col, (*map, *me, *root), rows, packed, (own.rows(), jb))? {
            return Ok(());
        }
        let mut block = MatMut::row_major(&mut block[..jb * jb], jb, jb, jb);
        for (i, row) in arrival_order(*map, rows, *me).zip(packed.chunks_exact(jb)) {
            block.row_mut(i).copy_from_slice(row);
        }
        Ok(())
    }

    /// This rank has `own` of the right-hand side; all ranks of the process column get `x`.
    fn solve(&mut self, col: &Comm, triangle: Triangle, own: &[f64], x: &mut [f64]) -> Result<()> {
        let Self { map, me, root, rows, block, packed_share: packed, .. } = self;
        packed[..own.len()].copy_from_slice(own);
        if send_to_root(col, (*map, *me, *root), rows, packed, (own.len(), 1))? {
            let jb = x.len();
            for (i, value) in arrival_order(*map, rows, *me).zip(packed) {
                x[i] = *value;
            }
            work::begins(Work::Read { entries: jb * jb });
            T::solve_triangle(triangle, MatRef::row_major(&block[..jb * jb], jb, jb, jb), x);
        }
        collect::broadcast(col, x, *root)
    }
}

/// Sends what is `packed`, `width` elements for each of `count` own rows of the global rows `rows`,
/// to the rank `root` that gathers, from rank `me`. Returns true on that rank, where the other
/// ranks' rows then follow its own.
fn send_to_root<T: Element>(
    col: &Comm,
    (map, me, root): (Cyclic, usize, usize),
    rows: &Range<usize>,
    packed: &mut [T],
    (count, width): (usize, usize),
) -> Result<bool> {
    if me != root {
        if count > 0 {
            col.send(&packed[..count * width], root, TAG_DIAGONAL)?;
        }
        return Ok(false);
    }
    let mut recvs = Vec::new();
    let mut rest = &mut packed[count * width..];
    for rank in others(map.procs, me) {
        let before = |row| map.count_before(row, rank);
        let count = before(rows.end) - before(rows.start);
        if count > 0 {
            let (message, after) = rest.split_at_mut(count * width);
            recvs.push((bytemuck::cast_slice_mut(message), rank, TAG_DIAGONAL));
            rest = after;
        }
    }
    col.exchange_bytes(&[], &mut recvs)?;
    Ok(true)
}

/// The ranks except `me`, in the order in which their rows follow those of `me`.
fn others(procs: usize, me: usize) -> impl Iterator<Item = usize> {
    (1..procs).map(move |step| (me + step) % procs)
}

/// The index in the block of each of its rows, in the order in which they arrive on `me`.
fn arrival_order(map: Cyclic, rows: &Range<usize>, me: usize) -> impl Iterator<Item = usize> {
    let first = rows.start;
    std::iter::once(me)
        .chain(others(map.procs, me))
        .flat_map(move |rank| map.spans(rows.clone(), rank))
        .flat_map(move |(_, row, len)| row - first..row - first + len)
}
