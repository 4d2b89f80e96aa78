//! The row exchange of a panel on the columns right of it, and the spread of the rows of U over the
//! process column (HPL_dlaswp, HPL_pdlaswp00, HPL_pdlaswp01).
//!
//! A panel of `jb` pivots moves at most `2 jb` rows: rows come up to become the `jb` rows of U, and
//! rows of the diagonal block are displaced to the rows that those leave. [`Plan`] is that
//! permutation. With P = 1 it is done in place (`local`). Else the rows of U go to all ranks of the
//! process column in one of four ways:
//!
//! | module | how | where |
//! |---|---|---|
//! | `node` | each rank reads the others' rows in shared memory | all ranks on one node |
//! | `direct` | messages to all ranks during products | columns in halves (`pgesv::trailing`) |
//! | `binary_exchange` | recursive doubling | `SWAP` 0, and `mix` with few columns or P = 2 |
//! | `spread_roll` | spread, then a ring | `SWAP` 1, and `mix` with many columns |
//!
//! The cost of each is in the comment of its module.

mod binary_exchange;
pub(crate) mod direct;
mod local;
pub(crate) mod node;
mod spread_roll;

pub use local::exchange as exchange_local;

use std::ops::Range;

use crate::blas::view::SharedMat;
use crate::blas::{Element, MatMut, MatRef, Rows};
use crate::grid::Cyclic;
use crate::team::Team;
use crate::tuning::TUNING;
use node::NodeRows;
use skt_comm::{Comm, PageBuf, Result, pages};
use skt_host::choice::Swap;

/// Where the rows of one panel go, as seen from one rank of the process column. A rank's
/// contribution is its rows of U, in the order of `u_rows`, then its displaced rows that leave it,
/// in the order of the ranks that get them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    me: usize,
    /// Where the rows of U of each rank begin among `u_rows`, and the end of the last rank's.
    starts: Vec<usize>,
    /// The rows of U, numbered 0..jb, sorted by the rank that has them.
    u_rows: Vec<usize>,
    /// Local rows of this rank's own rows of U.
    mine: Vec<usize>,
    /// Displaced rows that go to another rank, in the order of their owner, then of their taker.
    leaving: Vec<Displaced>,
    /// Where the rows of each rank begin among `leaving`, and the end of the last rank's.
    leaving_starts: Vec<usize>,
    /// Displaced rows that stay on this rank, as pairs of local rows: from, to.
    staying: Vec<(usize, usize)>,
}

/// A row of the diagonal block that goes where a pivot row was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Displaced {
    owner: usize,
    taker: usize,
    from: usize,
    to: usize,
}

impl Plan {
    /// The plan of a panel that begins at global row `j`, with pivots `ipiv`
    /// (global rows, as doubles), for process row `me`.
    pub(crate) fn new(j: usize, ipiv: &[f64], rows: Cyclic, me: usize) -> Self {
        let moves = Moves::from_pivots(j, ipiv);
        let mut plan = Self { me, ..Self::default() };
        for &(from, to) in &moves.displaced {
            let (owner, taker) = (rows.owner(from), rows.owner(to));
            let (from, to) = (rows.local(from), rows.local(to));
            if owner != taker {
                plan.leaving.push(Displaced { owner, taker, from, to });
            } else if owner == me {
                plan.staying.push((from, to));
            }
        }
        plan.leaving.sort_unstable();
        let owner = |i: &usize| rows.owner(moves.u_source[*i]);
        plan.u_rows = (0..ipiv.len()).collect();
        plan.u_rows.sort_by_key(owner);
        for rank in 0..=rows.procs {
            plan.starts.push(plan.u_rows.partition_point(|i| owner(i) < rank));
            plan.leaving_starts.push(plan.leaving.partition_point(|row| row.owner < rank));
        }
        let mine = &plan.u_rows[plan.u_rows_from(me)];
        plan.mine = mine.iter().map(|&i| rows.local(moves.u_source[i])).collect();
        plan
    }

    fn u_rows_from(&self, rank: usize) -> Range<usize> {
        self.starts[rank]..self.starts[rank + 1]
    }

    fn leaving(&self, rank: usize) -> &[Displaced] {
        &self.leaving[self.leaving_starts[rank]..self.leaving_starts[rank + 1]]
    }

    /// Displaced rows that come here from `rank`, and where they begin among those that leave it.
    fn coming(&self, rank: usize) -> (usize, &[Displaced]) {
        let leaving = self.leaving(rank);
        let first = leaving.partition_point(|row| row.taker < self.me);
        let end = leaving.partition_point(|row| row.taker <= self.me);
        (first, &leaving[first..end])
    }

    fn contribution(&self) -> impl Iterator<Item = usize> {
        self.mine.iter().copied().chain(self.leaving(self.me).iter().map(|row| row.from))
    }

    fn contributed_rows(&self, rank: usize) -> usize {
        self.u_rows_from(rank).len() + self.leaving(rank).len()
    }

    fn move_staying<T: Element>(&self, a: &mut MatMut<T>) {
        for &(from, to) in &self.staying {
            let (from, to) = a.two_rows_mut(from, to);
            to.copy_from_slice(from);
        }
    }

    fn take_coming<T: Element>(&self, rank: usize, contribution: &[f64], mut a: MatMut<T>) {
        let (first, coming) = self.coming(rank);
        let first = (self.u_rows_from(rank).len() + first) * T::doubles(a.cols());
        for (row, content) in coming.iter().zip(rows_in(&contribution[first..], a.cols())) {
            a.row_mut(row.to).copy_from_slice(content);
        }
    }
}

/// The local rows of process row `me` that change when the rows of a panel are exchanged and U is
/// solved for, in order: those of the diagonal block and all pivot rows below it. The panel begins
/// at global row `j` and has pivots `ipiv`; at most `2 jb` rows change.
pub(crate) fn rows_written(j: usize, ipiv: &[f64], rows: Cyclic, me: usize) -> Vec<usize> {
    let end = j + ipiv.len();
    let is_mine = |&row: &usize| row >= end && rows.owner(row) == me;
    let below = ipiv.iter().map(|&row| row as usize).filter(is_mine).map(|row| rows.local(row));
    let mut written: Vec<usize> =
        (rows.count_before(j, me)..rows.count_before(end, me)).chain(below).collect();
    written.sort_unstable();
    written.dedup();
    written
}

/// The rows of `width` elements in a buffer, each of which begins on a double.
fn rows_in<T: Element>(buffer: &[f64], width: usize) -> impl Iterator<Item = &[T]> {
    buffer.chunks_exact(T::doubles(width)).map(move |row| &T::from_doubles(row)[..width])
}

struct Moves {
    /// For each row of U: the row it comes from.
    u_source: Vec<usize>,
    /// Rows of the diagonal block that leave it, and where to.
    displaced: Vec<(usize, usize)>,
}

impl Moves {
    fn from_pivots(j: usize, ipiv: &[f64]) -> Self {
        let jb = ipiv.len();
        // Content of the rows touched: those of the block, then pivots below it.
        let mut content: Vec<usize> = (j..j + jb).collect();
        let mut below: Vec<usize> =
            ipiv.iter().map(|&row| row as usize).filter(|&row| row >= j + jb).collect();
        below.sort_unstable();
        below.dedup();
        content.extend(&below);
        for (i, &pivot) in ipiv.iter().enumerate() {
            let pivot = pivot as usize;
            let place = if pivot < j + jb {
                pivot - j
            } else {
                jb + below.binary_search(&pivot).expect("listed above")
            };
            content.swap(i, place);
        }
        let displaced = below
            .iter()
            .enumerate()
            .map(|(i, &to)| (content[jb + i], to))
            .filter(|&(from, to)| from != to)
            .collect();
        content.truncate(jb);
        Self { u_source: content, displaced }
    }
}

pub struct RowBuffers {
    rows: PageBuf,
    u: PageBuf,
}

impl RowBuffers {
    /// Buffers to exchange the rows of panels of up to `nb` columns, with up to `cols` doubles of a
    /// row at a time. `u`, of `nb cols` doubles, receives U.
    pub(crate) fn new(nb: usize, cols: usize, u: PageBuf) -> std::io::Result<Self> {
        assert_eq!(u.len(), nb * cols, "the place for U");
        Ok(Self { rows: PageBuf::new(Self::rows_doubles(nb, cols))?, u })
    }

    /// Doubles of both buffers: the rows, and the solved U.
    pub(crate) fn doubles(nb: usize, cols: usize) -> usize {
        Self::rows_doubles(nb, cols).saturating_add(nb.saturating_mul(cols))
    }

    /// Doubles of the buffer of the rows of U and the displaced rows.
    pub(crate) fn rows_doubles(nb: usize, cols: usize) -> usize {
        nb.saturating_mul(2).saturating_mul(cols)
    }
}

/// Exchanges rows of the columns `a` along the process column, by messages. All rows of U arrive on
/// every rank, to be solved for there. The rows of the diagonal block in `a` stay stale: U is
/// written there once it is solved. Collective over the process column.
pub(crate) fn exchange<'r, T: Element>(
    col: &Comm,
    plan: &Plan,
    swap: Swap,
    threshold: usize,
    a: MatMut<T>,
    buffers: &'r mut RowBuffers,
) -> Result<Arrived<'r, T>> {
    let width = a.cols();
    if width == 0 {
        return Ok(Arrived::nothing(plan));
    }
    let long = match swap {
        Swap::BinaryExchange => false,
        Swap::SpreadRoll => true,
        // With two ranks, binary exchange is one message each way, with just the rows needed.
        Swap::Mix => col.size() > 2 && width > threshold,
    };
    let exchange = if long { spread_roll::exchange } else { binary_exchange::exchange };
    let RowBuffers { rows, u } = buffers;
    let order = exchange(col, plan, a, rows)?;
    let pitch = T::doubles(width);
    let row = |row: usize| &T::from_doubles(&rows[row * pitch..(row + 1) * pitch])[..width];
    Ok(Arrived::on_this_rank(order.into_iter().map(row).collect(), u, width))
}

/// The rows of U as an exchange delivers them, and the memory for the solved U.
pub(crate) struct Arrived<'r, T = f64> {
    rows: Vec<&'r [T]>,
    u: SharedMat<'r, T>,
    share: Range<usize>,
    shared: Option<&'r NodeRows>,
}

impl<'r, T: Element> Arrived<'r, T> {
    pub(crate) fn on_this_rank(rows: Vec<&'r [T]>, u: &'r mut [f64], width: usize) -> Self {
        let jb = rows.len();
        let u = SharedMat::row_major(&mut T::from_doubles_mut(u)[..jb * width], jb, width);
        Self { rows, u, share: 0..width, shared: None }
    }

    fn nothing(plan: &Plan) -> Self {
        Self::on_this_rank(vec![&[]; plan.u_rows.len()], &mut [], 0)
    }

    pub(crate) fn share(&self) -> Range<usize> {
        self.share.clone()
    }

    pub(crate) fn columns(&self, cols: Range<usize>) -> Rows<'_, T> {
        Rows { rows: &self.rows, cols }
    }

    pub(crate) fn u(&self) -> &SharedMat<'r, T> {
        &self.u
    }

    /// Once U is solved for this rank's share, waits for the other ranks' shares. Returns U.
    pub(crate) fn solved(self, col: &Comm) -> Result<SharedMat<'r, T>> {
        if let Some(node) = self.shared {
            node.wait_for_solved(col)?;
        }
        Ok(self.u)
    }
}

/// Copies rows `from` of `a` to the rows of `to`, with the team and past the caches: this core does
/// not read them again.
pub(crate) fn stream_rows<T: Element>(team: &Team, a: MatRef<T>, from: &[usize], to: MatMut<T>) {
    let (width, to) = (a.cols(), to.share());
    team.split(from.len(), TUNING.exchange_grain_rows, |part| {
        // SAFETY: the team's parts do not overlap.
        let mut to = unsafe { to.block(part.clone(), 0..width) };
        for (i, &row) in from[part].iter().enumerate() {
            let (row, place) = (a.row(row), to.row_mut(i));
            pages::stream(bytemuck::cast_slice(row), bytemuck::cast_slice_mut(place));
        }
    });
}

fn gather<T: Element>(a: MatRef<T>, from: impl Iterator<Item = usize>, to: &mut [f64]) {
    for (row, to) in from.zip(to.chunks_exact_mut(T::doubles(a.cols()))) {
        T::from_doubles_mut(to)[..a.cols()].copy_from_slice(a.row(row));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::OnceCell;
    use std::sync::Arc;

    use super::direct::DirectExchange;
    use super::*;
    use crate::comm::threads::run;
    use proptest::prelude::*;
    use skt_comm::CommError;
    use skt_comm::node::NodeMemory;

    /// The whole rows after the exchanges `i <-> ipiv[i]`, in order.
    fn swapped(rows: usize, j: usize, ipiv: &[usize]) -> Vec<usize> {
        let mut content: Vec<usize> = (0..rows).collect();
        for (i, &pivot) in ipiv.iter().enumerate() {
            content.swap(j + i, pivot);
        }
        content
    }

    #[derive(Debug, Clone, Copy, PartialEq)]
    enum How {
        Messages(Swap),
        Direct,
        Node,
    }

    fn check(
        (p, block): (usize, usize),
        nb: usize,
        rows: usize,
        j: usize,
        ipiv: &[usize],
        how: How,
        width: usize,
    ) {
        let map = Cyclic { nb: block, procs: p };
        let want = swapped(rows, j, ipiv);
        let jb = ipiv.len();
        let ipiv: Vec<f64> = ipiv.iter().map(|&row| row as f64).collect();
        run(p, |comm| {
            let me = comm.rank();
            let mine = map.count_before(rows, me);
            let value = |global: usize, c: usize| (global * 100 + c) as f64;
            let mut a: Vec<f64> = (0..mine)
                .flat_map(|l| (0..width).map(move |c| value(map.global(l, me), c)))
                .collect();
            let plan = Arc::new(Plan::new(j, &ipiv, map, me));
            let memory = |doubles| PageBuf::new(doubles).expect("memory");
            let mut buffers = RowBuffers::new(nb, width, memory(nb * width)).expect("memory");
            let (rows, u) = (RowBuffers::rows_doubles(nb, width), nb * width);
            let mut node = NodeMemory::new(&comm, 3 + rows + u)?.expect("one process");
            node.split_front(3, 5);
            let rows = node.split_front(rows, node::FLAGS);
            let mut node_rows = NodeRows::new(rows, node, (nb, width));
            let mut view = MatMut::row_major(&mut a, mine, width, width);
            let (mut u, received) = (vec![0.0; jb * width], OnceCell::new());
            let arrived = match how {
                How::Direct => {
                    let buffer = memory(RowBuffers::rows_doubles(nb, width));
                    let mut exchange =
                        DirectExchange::start(&comm, Arc::clone(&plan), view.as_ref(), buffer)?;
                    exchange.progress()?;
                    let received = received.get_or_init(|| exchange.finish(view.rb()));
                    let rows = received.as_ref().map_err(Clone::clone)?.rows();
                    Arrived::on_this_rank(rows, &mut u, width)
                }
                How::Messages(swap) => exchange(&comm, &plan, swap, 4, view, &mut buffers)?,
                How::Node => node_rows.exchange(&comm, &plan, &Team::solo(), view)?,
            };
            for i in 0..jb {
                for c in 0..width {
                    let got = arrived.rows[i][c];
                    assert_eq!(got, value(want[j + i], c), "row {i} of U");
                }
            }
            let (share, of) = (arrived.share(), if how == How::Node { 0 } else { width });
            assert!(share.len() >= of);
            for c in share {
                // SAFETY: these columns are this rank's share.
                let mut column = unsafe { arrived.u().block(0..jb, c..c + 1) };
                (0..jb).for_each(|i| column.set(i, 0, value(i, c)));
            }
            let u = arrived.solved(&comm)?;
            // SAFETY: all ranks have solved; U is only read.
            let u = unsafe { u.block(0..jb, 0..width) };
            for (i, c) in (0..jb).flat_map(|i| (0..width).map(move |c| (i, c))) {
                assert_eq!(u.as_ref().at(i, c), value(i, c), "U where all have solved");
            }
            let written = rows_written(j, &ipiv, map, me);
            assert!(written.len() <= 2 * jb && written.is_sorted());
            for l in 0..mine {
                let global = map.global(l, me);
                if !written.contains(&l) {
                    let own = &a[l * width..(l + 1) * width];
                    assert!((0..width).all(|c| own[c] == value(global, c)), "row {global}");
                }
                if !(j..j + jb).contains(&global) {
                    assert_eq!(a[l * width], value(want[global], 0), "row {global}");
                }
            }
            if let Some(received) = received.into_inner() {
                assert_eq!(received?.into_buffer()?.len(), RowBuffers::rows_doubles(nb, width));
            }
            Ok::<_, CommError>(())
        })
        .into_iter()
        .for_each(|rank| rank.unwrap());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn rows_end_where_the_pivots_place_them(
            p in 1usize..7, row_block in 1usize..5, nb in 1usize..5, block in 0usize..4,
            blocks_below in 0usize..6, rest in 0usize..4, width in 1usize..8, picks in prop::collection::vec(0.0..1.0f64, 4),
            how in prop::sample::select(vec![
                How::Messages(Swap::BinaryExchange),
                How::Messages(Swap::SpreadRoll),
                How::Messages(Swap::Mix),
                How::Direct,
                How::Node,
            ]),
        ) {
            let j = block * nb;
            let rows = j + nb + blocks_below * nb + rest % nb;
            let ipiv: Vec<usize> = (0..nb)
                .map(|i| j + i + ((rows - j - i) as f64 * picks[i]) as usize)
                .collect();
            check((p, row_block), nb, rows, j, &ipiv, how, width);
        }
    }
}
