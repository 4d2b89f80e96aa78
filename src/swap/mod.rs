//! The row exchange of a panel on the columns right of it, and the spread of the
//! rows of U over the process column (HPL_dlaswp, HPL_pdlaswp00, HPL_pdlaswp01).
//!
//! A panel of `jb` pivots moves at most `2 jb` rows: rows come up to become the
//! `jb` rows of U, and rows of the diagonal block are displaced to the places
//! that those leave. [`Plan`] is that permutation. With P = 1 it is done in
//! place (`local`); else the rows of U go to all ranks of the process column,
//! by recursive doubling (`binary_exchange`) or by spread and roll
//! (`spread_roll`).

mod binary_exchange;
mod local;
pub mod node;
mod spread_roll;

pub use local::exchange as exchange_local;

use crate::blas::{MatMut, MatRef, Rows};
use crate::comm::{Comm, PanelBuf, Result};
use crate::config::Swap;
use crate::grid::Cyclic;
use crate::team::Team;
use node::NodeRoom;

/// Where the rows of one panel go, as seen from one rank of the process column.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// Rows of U in the order of the rank that has them: for rank r, rows
    /// `starts[r]..starts[r+1]` of `u_rows`.
    starts: Vec<usize>,
    /// Their places in U.
    u_rows: Vec<usize>,
    /// Local rows at which this rank has its own.
    mine: Vec<usize>,
    /// Displaced rows in the order of the rank that gets them, as above.
    displaced_starts: Vec<usize>,
    /// Local rows on the diagonal rank from which they come.
    displaced_from: Vec<usize>,
    /// Local rows on the rank that gets them.
    displaced_to: Vec<usize>,
    /// The rank that holds the diagonal block.
    diagonal: usize,
}

impl Plan {
    /// The plan of a panel that begins at global row `j`, with pivots `ipiv`
    /// (global rows, as doubles), for process row `myrow`.
    pub fn new(j: usize, ipiv: &[f64], rows: Cyclic, myrow: usize) -> Self {
        let (diagonal, procs) = (rows.owner(j), rows.procs);
        let moves = Moves::of(j, ipiv);
        let mut plan = Self { diagonal, ..Self::default() };
        for rank in 0..procs {
            plan.starts.push(plan.u_rows.len());
            plan.displaced_starts.push(plan.displaced_to.len());
            for (i, &source) in moves.u_source.iter().enumerate() {
                if rows.owner(source) == rank {
                    plan.u_rows.push(i);
                    if rank == myrow {
                        plan.mine.push(rows.local(source));
                    }
                }
            }
            for &(from, to) in &moves.displaced {
                if rows.owner(to) == rank {
                    plan.displaced_from.push(rows.local(from));
                    plan.displaced_to.push(rows.local(to));
                }
            }
        }
        plan.starts.push(plan.u_rows.len());
        plan.displaced_starts.push(plan.displaced_to.len());
        plan
    }

    fn segment(&self, rank: usize) -> std::ops::Range<usize> {
        self.starts[rank]..self.starts[rank + 1]
    }

    fn displaced_segment(&self, rank: usize) -> std::ops::Range<usize> {
        self.displaced_starts[rank]..self.displaced_starts[rank + 1]
    }

    /// Displaced rows that leave the diagonal rank, in the order of the ranks that
    /// get them.
    fn leaving(&self) -> impl Iterator<Item = usize> {
        let staying = self.displaced_segment(self.diagonal);
        (0..staying.start).chain(staying.end..self.displaced_to.len())
    }

    /// Where those for `rank` begin among the rows that the diagonal rank offers: its
    /// rows of U, then the displaced ones that leave it.
    fn first_for(&self, rank: usize) -> usize {
        let start = self.displaced_segment(rank).start;
        let before = self.leaving().position(|i| i == start).unwrap_or(0);
        self.segment(self.diagonal).len() + before
    }

    /// On the diagonal rank: puts the displaced rows that stay there in their places.
    fn move_staying(&self, a: &mut MatMut) {
        for i in self.displaced_segment(self.diagonal) {
            let (from, to) = a.two_rows_mut(self.displaced_from[i], self.displaced_to[i]);
            to.copy_from_slice(from);
        }
    }
}

/// A panel's permutation in global rows.
struct Moves {
    /// For each row of U: the row it comes from.
    u_source: Vec<usize>,
    /// Rows of the diagonal block that leave it, and where to.
    displaced: Vec<(usize, usize)>,
}

impl Moves {
    fn of(j: usize, ipiv: &[f64]) -> Self {
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

/// Work space of an exchange.
pub enum Room {
    /// For messages.
    Own(PanelBuf),
    /// Where all ranks of the process column share a node.
    Node(NodeRoom),
}

impl Room {
    /// Room to exchange the rows of panels of up to `nb` columns on up to
    /// `cols` columns at a time, by messages.
    ///
    /// # Errors
    /// When there is no such memory.
    pub fn new(nb: usize, cols: usize) -> std::io::Result<Self> {
        Ok(Self::Own(PanelBuf::new(Self::doubles(nb, cols))?))
    }

    /// Doubles that it takes: the rows of U and the displaced rows.
    pub fn doubles(nb: usize, cols: usize) -> usize {
        2 * nb * cols
    }

    /// To be called when the rows that arrived are not needed any more.
    pub fn release(&self) {
        if let Self::Node(room) = self {
            room.release();
        }
    }
}

/// How rows are exchanged.
#[derive(Debug, Clone, Copy)]
pub struct Way {
    /// By which messages, where it is by messages.
    pub swap: Swap,
    /// Columns above which [`Swap::Mix`] takes spread-roll.
    pub threshold: usize,
}

/// Exchanges rows of the columns `a` along the process column. All rows of U
/// arrive on every rank. The rows of the diagonal block in `a` are left stale: U
/// goes there once it is solved. Collective over the process column.
///
/// # Errors
/// When a rank cannot be reached.
pub fn exchange<'r, C: Comm>(
    col: &C,
    plan: &Plan,
    way: Way,
    team: &Team,
    a: MatMut,
    room: &'r mut Room,
) -> Result<Arrived<'r>> {
    let width = a.cols();
    if width == 0 {
        return Ok(Arrived { rows: vec![&[]; plan.u_rows.len()] });
    }
    let buffer = match room {
        Room::Own(buffer) => buffer,
        Room::Node(room) => return Ok(Arrived { rows: room.exchange(col, plan, team, a)? }),
    };
    let long = match way.swap {
        Swap::BinaryExchange => false,
        Swap::SpreadRoll => true,
        // Of two ranks, each sends the other what it needs in one message.
        Swap::Mix => col.size() > 2 && width > way.threshold,
    };
    let exchange = if long { spread_roll::exchange } else { binary_exchange::exchange };
    let order = exchange(col, plan, a, buffer)?;
    let rows = order.iter().map(|&row| &buffer[row * width..(row + 1) * width]).collect();
    Ok(Arrived { rows })
}

/// The rows of U where an exchange has left them.
pub struct Arrived<'r> {
    rows: Vec<&'r [f64]>,
}

impl Arrived<'_> {
    /// Their columns `cols`.
    pub fn columns(&self, cols: std::ops::Range<usize>) -> Rows<'_> {
        Rows { rows: &self.rows, cols }
    }
}

/// Copies rows `from` of `a` to consecutive rows of `to`.
fn gather(a: MatRef, from: &[usize], to: &mut [f64]) {
    for (&row, to) in from.iter().zip(to.chunks_exact_mut(a.cols())) {
        to.copy_from_slice(a.row(row));
    }
}

/// Copies consecutive rows of `from` to rows `to` of `a`.
fn scatter(from: &[f64], to: &[usize], mut a: MatMut) {
    let width = a.cols();
    for (&row, from) in to.iter().zip(from.chunks_exact(width)) {
        a.row_mut(row).copy_from_slice(from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::CommError;
    use crate::comm::node::NodeMemory;
    use crate::comm::threads::run;
    use std::sync::Arc;

    use proptest::prelude::*;

    /// What the sequence of exchanges `i <-> ipiv[i]` does to whole rows.
    fn swapped(rows: usize, j: usize, ipiv: &[usize]) -> Vec<usize> {
        let mut content: Vec<usize> = (0..rows).collect();
        for (i, &pivot) in ipiv.iter().enumerate() {
            content.swap(j + i, pivot);
        }
        content
    }

    /// `swap`: by these messages; none: in shared memory.
    fn check(
        p: usize,
        nb: usize,
        rows: usize,
        j: usize,
        ipiv: &[usize],
        swap: Option<Swap>,
        width: usize,
    ) {
        let map = Cyclic { nb, procs: p };
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
            let plan = Plan::new(j, &ipiv, map, me);
            let mut room = Room::new(nb, width).expect("memory");
            if swap.is_none() {
                let node = NodeMemory::new(&comm, 3 + NodeRoom::doubles(nb, width, p))?;
                let node = Arc::new(node.expect("one process"));
                room = Room::Node(NodeRoom::new(node, 3, nb, width, 5));
            }
            let view = MatMut::row_major(&mut a, mine, width, width);
            let way = Way { swap: swap.unwrap_or(Swap::Mix), threshold: 4 };
            let arrived = exchange(&comm, &plan, way, &Team::solo(), view, &mut room)?;
            for i in 0..jb {
                for c in 0..width {
                    let got = arrived.rows[i][c];
                    assert_eq!(got, value(want[j + i], c), "row {i} of U");
                }
            }
            for l in 0..mine {
                let global = map.global(l, me);
                if !(j..j + jb).contains(&global) {
                    assert_eq!(a[l * width], value(want[global], 0), "row {global}");
                }
            }
            Ok::<_, CommError>(())
        })
        .into_iter()
        .for_each(|rank| rank.unwrap());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn rows_end_where_the_pivots_say(
            p in 1usize..7, nb in 1usize..5, block in 0usize..4, blocks_below in 0usize..6,
            rest in 0usize..4, width in 1usize..8, picks in prop::collection::vec(0.0..1.0f64, 4),
            swap in prop::sample::select(
                vec![Some(Swap::BinaryExchange), Some(Swap::SpreadRoll), Some(Swap::Mix), None],
            ),
        ) {
            let j = block * nb;
            let rows = j + nb + blocks_below * nb + rest % nb;
            let ipiv: Vec<usize> = (0..nb)
                .map(|i| j + i + ((rows - j - i) as f64 * picks[i]) as usize)
                .collect();
            check(p, nb, rows, j, &ipiv, swap, width);
        }
    }
}
