//! Back substitution: U x = y, with y in column n (HPL_pdtrsv).
//!
//! The blocks of x are solved for from the last to the first. Each process column c keeps a share
//! s_c of the right-hand side. All shares, with those in transit, add up to y minus U times the
//! part of x that is known.
//!
//! ```text
//! for each block k, on its process column:
//!     U_kk and s_k are gathered on one of its ranks; the ranks take turns from block to block
//!     x_k = U_kk^-1 s_k              solved there, broadcast to the process column
//!     s  -= U x_k                    on the rows of the Q-1 blocks above; sent to the process
//!                                    column on the left
//!     s  -= U x_k                    on all rows above those; kept
//! ```
//!
//! The process column on the left owns block k-1, and needs only the sent rows to continue, so the
//! product on the rows above them overlaps with its work. The owner of each block has received all
//! shares of it when it solves the block: a process column sends on the rows of all blocks before
//! its own next one, k-Q. It gathers U_kk before it receives s_k, while the process column on the
//! right still computes.

use std::ops::Range;

use crate::blas::view::SharedMat;
use crate::blas::{MatMut, MatRef, gemv, solve_upper};
use crate::comm::{Comm, Result, Tag, collect};
use crate::grid::{Cyclic, Grid};
use crate::team::Team;
use crate::tuning::TUNING;
use crate::work::{self, Work};

const TAG_SHARE: Tag = 0x130;
const TAG_FIRST: Tag = 0x131;
const TAG_DIAGONAL: Tag = 0x132;

/// Solves U x = y. Returns x for this rank's columns of A.
pub(super) fn substitute<C: Comm>(
    grid: &Grid<C>,
    team: &Team,
    n: usize,
    nb: usize,
    a: MatRef,
) -> Result<Vec<f64>> {
    let (rows, cols) = (grid.rows(nb), grid.cols(nb));
    let mut x = vec![0.0; cols.count_before(n, grid.mycol)];
    let mut share = vec![0.0; a.rows()];
    let blocks = n.div_ceil(nb);
    if blocks == 0 {
        return Ok(x);
    }
    take_right_hand_side(grid, n, nb, a, &mut share)?;
    let mut incoming = vec![0.0; a.rows()];
    // With P = 1 nothing has to be gathered.
    let mut diagonal = (grid.p > 1).then(|| Diagonal::new(nb.min(n), rows, grid.myrow));
    for k in (0..blocks).rev() {
        if k % grid.q != grid.mycol {
            continue;
        }
        let range = k * nb..((k + 1) * nb).min(n);
        let local = |g: usize| rows.count_before(g, grid.myrow);
        let first = cols.local(range.start);
        let columns = first..first + range.len();
        let own = local(range.start)..local(range.end);
        let own_rows = a.block(own.clone(), columns.clone());
        if let Some(diagonal) = &mut diagonal {
            diagonal.begin_block(k / grid.q, range.clone());
            diagonal.gather(&grid.col, own_rows)?;
        }
        // The rows of this block and of the Q-2 above it.
        if k + 1 < blocks && grid.q > 1 {
            let handed = local((k + 2).saturating_sub(grid.q) * nb)..local(range.end);
            add_handed_over(grid, &mut incoming[handed.clone()], &mut share[handed])?;
        }
        let xk = &mut x[columns.clone()];
        match &mut diagonal {
            Some(diagonal) => diagonal.solve(&grid.col, &share[own], xk)?,
            None => {
                xk.copy_from_slice(&share[own]);
                work::begins(Work::Read { entries: xk.len() * xk.len() });
                solve_upper(own_rows, xk);
            }
        }
        let near = local((k + 1).saturating_sub(grid.q) * nb)..local(range.start);
        let far = 0..near.start;
        subtract(team, a.block(near.clone(), columns.clone()), xk, &mut share[near.clone()]);
        if k > 0 && grid.q > 1 {
            let left = (grid.mycol + grid.q - 1) % grid.q;
            grid.row.send(&share[near.clone()], left, TAG_SHARE)?;
            share[near].fill(0.0);
        }
        subtract(team, a.block(far.clone(), columns), xk, &mut share[far]);
        work::piece_done();
    }
    Ok(x)
}

/// To these rows of `share`, adds the share that the process column on the right has sent.
fn add_handed_over<C: Comm>(grid: &Grid<C>, incoming: &mut [f64], share: &mut [f64]) -> Result<()> {
    grid.row.recv(incoming, (grid.mycol + 1) % grid.q, TAG_SHARE)?;
    share.iter_mut().zip(incoming).for_each(|(mine, theirs)| *mine += *theirs);
    Ok(())
}

/// `s := s - U x`, on all threads: they read U from memory faster than one.
fn subtract(team: &Team, u: MatRef, x: &[f64], s: &mut [f64]) {
    let rows = u.rows();
    work::begins(Work::Read { entries: rows * x.len() });
    let s = SharedMat::row_major(s, 1, rows);
    team.split(rows, TUNING.back_grain_rows, |part| {
        // SAFETY: the parts do not overlap.
        let mut s = unsafe { s.block(0..1, part.clone()) };
        gemv(-1.0, u.block(part, 0..x.len()), x, 1.0, s.row_mut(0));
    });
}

/// Brings y from the process column that holds column n to that of the last block.
fn take_right_hand_side<C: Comm>(
    grid: &Grid<C>,
    n: usize,
    nb: usize,
    a: MatRef,
    share: &mut [f64],
) -> Result<()> {
    let cols = grid.cols(nb);
    let (holder, taker) = (cols.owner(n), cols.owner(n - 1));
    if grid.mycol == holder {
        let column = cols.local(n);
        for (i, value) in share.iter_mut().enumerate() {
            *value = a.at(i, column);
        }
        if holder != taker {
            grid.row.send(share, taker, TAG_FIRST)?;
            share.fill(0.0);
        }
    } else if grid.mycol == taker {
        grid.row.recv(share, holder, TAG_FIRST)?;
    }
    Ok(())
}

/// A diagonal block, gathered on one rank of its process column.
struct Diagonal {
    map: Cyclic,
    me: usize,
    /// The rank that gathers.
    root: usize,
    /// The global rows of the block.
    rows: Range<usize>,
    /// On the rank that gathers: the block, row by row.
    block: Vec<f64>,
    /// This rank's rows to be sent; on the rank that gathers: the rows of all ranks, rank by rank.
    packed: Vec<f64>,
}

impl Diagonal {
    fn new(nb: usize, map: Cyclic, me: usize) -> Self {
        let room = || vec![0.0; nb * nb];
        Self { map, me, root: 0, rows: 0..0, block: room(), packed: room() }
    }

    /// Begins the `count`-th block of a process column, of these global rows.
    fn begin_block(&mut self, count: usize, rows: Range<usize>) {
        self.root = count % self.map.procs;
        self.rows = rows;
    }

    /// Gathers the block of which this rank has the rows `own`.
    fn gather<C: Comm>(&mut self, col: &C, own: MatRef) -> Result<()> {
        let jb = self.rows.len();
        for (i, row) in self.packed.chunks_exact_mut(jb).take(own.rows()).enumerate() {
            row.copy_from_slice(own.row(i));
        }
        if !self.send_to_root(col, own.rows(), jb)? {
            return Ok(());
        }
        let Self { block, packed, .. } = self;
        let mut block = MatMut::row_major(&mut block[..jb * jb], jb, jb, jb);
        for (i, row) in arrival_order(self.map, &self.rows, self.me).zip(packed.chunks_exact(jb)) {
            block.row_mut(i).copy_from_slice(row);
        }
        Ok(())
    }

    /// Solves for `x` with the right-hand side of which this rank has `own`; `x` is
    /// then on all ranks of the process column.
    fn solve<C: Comm>(&mut self, col: &C, own: &[f64], x: &mut [f64]) -> Result<()> {
        self.packed[..own.len()].copy_from_slice(own);
        if self.send_to_root(col, own.len(), 1)? {
            let jb = x.len();
            for (i, value) in arrival_order(self.map, &self.rows, self.me).zip(&self.packed) {
                x[i] = *value;
            }
            work::begins(Work::Read { entries: jb * jb });
            solve_upper(MatRef::row_major(&self.block[..jb * jb], jb, jb, jb), x);
        }
        collect::broadcast(col, x, self.root)
    }

    /// Sends what is packed, `width` doubles for each of `count` own rows, to the rank that
    /// gathers. Returns true on that rank, where the other ranks' rows then follow its own.
    fn send_to_root<C: Comm>(&mut self, col: &C, count: usize, width: usize) -> Result<bool> {
        if self.me != self.root {
            if count > 0 {
                col.send(&self.packed[..count * width], self.root, TAG_DIAGONAL)?;
            }
            return Ok(false);
        }
        let mut recvs = Vec::new();
        let mut rest = &mut self.packed[count * width..];
        for rank in others(self.map.procs, self.me) {
            let before = |row| self.map.count_before(row, rank);
            let count = before(self.rows.end) - before(self.rows.start);
            if count > 0 {
                let (message, after) = rest.split_at_mut(count * width);
                recvs.push((bytemuck::cast_slice_mut(message), rank, TAG_DIAGONAL));
                rest = after;
            }
        }
        col.exchange_bytes(&[], &mut recvs)?;
        Ok(true)
    }
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
