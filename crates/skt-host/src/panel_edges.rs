//! The edges along which a panel is broadcast (HPL_bcast).
//!
//! Ranks are counted from the root: relative rank 1 owns the next panel, and the "modified"
//! topologies spare it from forwarding so that it can factor that panel ([`RowOrder`]).
//!
//! A message is cut into pieces. Each rank receives each piece once, and forwards it as soon as it
//! has arrived, whatever is still missing. So a topology is a list of edges, each with the pieces
//! that it carries:
//!
//! ```text
//! rings      every edge has all pieces
//! long       one piece for each member:  down a binomial tree, to each member its own piece and
//!            those of the members below it;  around the ring, to each member all others
//! ```

use std::collections::VecDeque;
use std::iter;

use crate::choice::Bcast;
use crate::tree::{self, Tree};

/// Bytes of a piece of a panel in a ring: large enough that its latency of some microseconds does
/// not count against its transfer over the fastest links, 25 GB/s and more, and a small part of a
/// panel.
const PIECE_BYTES: usize = 1 << 20;
/// The largest number of pieces: more would hardly bring a panel sooner to the last rank of a ring
/// of some hundreds.
const MAX_PIECES: usize = 64;

/// The pieces that one rank sends to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edge {
    /// The sender, as a relative rank.
    pub from: usize,
    /// The receiver, as a relative rank.
    pub to: usize,
    /// What it carries.
    pub pieces: Pieces,
}

/// Pieces of a message, in the order in which an edge carries them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pieces {
    /// All of them.
    All,
    /// The piece of a member and those of the members below it.
    Subtree(usize),
    /// All pieces that [`Self::Subtree`] of the member does not have, from the piece of the member
    /// before it backwards.
    Others(usize),
}

impl Pieces {
    /// The numbers of the pieces, in order, of `count` in all.
    pub fn numbers(self, count: usize) -> VecDeque<usize> {
        match self {
            Self::All => (0..count).collect(),
            Self::Subtree(member) => tree::binomial_subtree(member, count).collect(),
            Self::Others(member) => {
                let below = tree::binomial_subtree(member, count);
                let back = (1..count).map(|step| (member + count - step) % count);
                back.filter(|piece| !below.contains(piece)).collect()
            }
        }
    }

    /// How many pieces these are, of `count` in all.
    pub fn len(self, count: usize) -> usize {
        match self {
            Self::All => count,
            Self::Subtree(member) => tree::binomial_subtree(member, count).len(),
            Self::Others(member) => count - tree::binomial_subtree(member, count).len(),
        }
    }
}

/// The order in which a broadcast counts the ranks of a process row: the root, the owner of the
/// next panel, and the others as they follow the root.
#[derive(Debug, Clone, Copy)]
pub struct RowOrder {
    root: usize,
    /// How many ranks after the root the owner of the next panel is, at least 1.
    distance: usize,
    size: usize,
}

impl RowOrder {
    /// The order among `size` ranks. `next` is the owner of the next panel, where it is not the
    /// rank after `root`.
    pub fn new(root: usize, next: Option<usize>, size: usize) -> Self {
        let distance = next.map_or(1, |next| (next + size - root) % size);
        Self { root, distance, size }
    }

    /// The rank that is counted as `relative`.
    pub fn rank(self, relative: usize) -> usize {
        let after = match relative {
            0 => 0,
            1 => self.distance,
            later if later <= self.distance => later - 1,
            later => later,
        };
        (self.root + after) % self.size
    }

    /// What `rank` is counted as.
    pub fn relative(self, rank: usize) -> usize {
        match (rank + self.size - self.root) % self.size {
            0 => 0,
            after if after == self.distance => 1,
            after if after < self.distance => after + 1,
            after => after,
        }
    }
}

/// How a broadcast reaches all ranks.
#[derive(Debug, Clone)]
pub struct Route {
    /// The edges; those of one sender in the order in which it sends, and none before those that
    /// bring its sender the pieces.
    pub edges: Vec<Edge>,
    cut: Cut,
}

/// How a message is cut into pieces.
#[derive(Debug, Clone, Copy)]
enum Cut {
    /// Into this number of pieces, whatever its length.
    Count(usize),
    /// Into pieces of [`PIECE_BYTES`].
    Bytes,
}

impl Route {
    /// Number of pieces in which a message of `bytes` is sent.
    pub fn pieces(&self, bytes: usize) -> usize {
        match self.cut {
            Cut::Count(count) => count,
            Cut::Bytes => bytes.div_ceil(PIECE_BYTES).clamp(1, MAX_PIECES),
        }
    }
}

/// The route of a topology among `size` ranks.
pub fn route(topology: Bcast, size: usize) -> Route {
    match topology {
        Bcast::OneRing => rings(&[1], size),
        Bcast::OneRingM => rings(&[1, 2], size),
        Bcast::TwoRing => rings(&[1, size.div_ceil(2)], size),
        Bcast::TwoRingM => rings(&[1, 2, 2 + (size.max(2) - 2).div_ceil(2)], size),
        Bcast::Long => spread_and_roll(&(0..size).collect::<Vec<_>>()),
        // The next panel's owner gets the whole message; the others spread and roll.
        Bcast::LongM => {
            let owner = (1 < size).then_some(Edge { from: 0, to: 1, pieces: Pieces::All });
            let others: Vec<_> = (0..size).filter(|&rank| rank != 1).collect();
            let Route { edges, cut } = spread_and_roll(&others);
            Route { edges: owner.into_iter().chain(edges).collect(), cut }
        }
    }
}

/// The root sends to the `heads` in turn; from each of them the message goes from rank to rank, up
/// to the next head. It is cut by its length if a rank forwards it.
fn rings(heads: &[usize], size: usize) -> Route {
    let edge = |from, to| Edge { from, to, pieces: Pieces::All };
    let mut heads: Vec<_> = heads.iter().copied().filter(|&head| head < size).collect();
    heads.dedup();
    let in_rings = (1..size).filter(|rank| !heads.contains(rank));
    let forwards: Vec<_> = in_rings.map(|to| edge(to - 1, to)).collect();
    let cut = if forwards.is_empty() { Cut::Count(1) } else { Cut::Bytes };
    Route { edges: heads.iter().map(|&head| edge(0, head)).chain(forwards).collect(), cut }
}

/// Spreads the pieces, one for each of `members`, of which the first is the root, and rolls them
/// around.
fn spread_and_roll(members: &[usize]) -> Route {
    let count = members.len();
    let edge =
        |from: usize, to: usize, pieces| Edge { from: members[from], to: members[to], pieces };
    // The members with the largest subtrees first.
    let spread = (0..count)
        .flat_map(|member| iter::repeat(member).zip(Tree::Binomial.children(member, count).rev()));
    let spread = spread.map(|(from, to)| edge(from, to, Pieces::Subtree(to)));
    let roll = (1..count).map(|member| edge(member - 1, member, Pieces::Others(member)));
    Route { edges: spread.chain(roll).collect(), cut: Cut::Count(count) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_have_pieces_where_a_rank_passes_them_on() {
        let of_four = |topology, size| route(topology, size).pieces(4 * PIECE_BYTES);
        assert_eq!([1, 2, 3].map(|size| of_four(Bcast::OneRing, size)), [1, 1, 4]);
        assert_eq!([2, 3, 4].map(|size| of_four(Bcast::OneRingM, size)), [1, 1, 4]);
        assert_eq!([4, 5].map(|size| of_four(Bcast::TwoRingM, size)), [1, 4]);
        assert_eq!([1, 2, 5].map(|size| of_four(Bcast::Long, size)), [1, 2, 5]);
        assert_eq!([1, 2, 5].map(|size| of_four(Bcast::LongM, size)), [1, 1, 4]);
        let ring = route(Bcast::OneRing, 8);
        assert_eq!([1, 1000 * PIECE_BYTES].map(|bytes| ring.pieces(bytes)), [1, MAX_PIECES]);
    }

    #[test]
    fn ranks_are_counted_from_the_root_and_the_next_owner() {
        let order = |next| (0..5).map(|rank| RowOrder::new(3, next, 5).rank(rank)).collect();
        let [in_turn, same, far]: [Vec<_>; 3] = [None, Some(4), Some(1)].map(order);
        assert_eq!((in_turn, same), (vec![3, 4, 0, 1, 2], vec![3, 4, 0, 1, 2]));
        assert_eq!(far, [3, 1, 4, 0, 2]);
        for (size, root) in (1..9).flat_map(|size| (0..size).map(move |root| (size, root))) {
            for next in (0..size).filter(|next| *next != root).map(Some).chain([None]) {
                let order = RowOrder::new(root, next, size);
                assert_eq!(order.rank(0), root);
                assert!(next.is_none_or(|next| order.rank(1) == next));
                let there_and_back = (0..size).map(|it| order.relative(order.rank(it)));
                assert!(there_and_back.eq(0..size), "{order:?}");
            }
        }
    }

    #[test]
    fn each_rank_gets_each_piece_once_from_a_rank_that_has_it() {
        for (topology, size) in Bcast::ALL.into_iter().flat_map(|it| (1..40).map(move |n| (it, n)))
        {
            let route = route(topology, size);
            let (edges, count) = (&route.edges, route.pieces(3 << 20));
            let mut has = vec![vec![false; count]; size];
            has[0].fill(true);
            for edge in edges {
                let carried = edge.pieces.numbers(count);
                assert_eq!(carried.len(), edge.pieces.len(count));
                for piece in carried {
                    assert!(has[edge.from][piece] && !has[edge.to][piece], "{edge:?} of {edges:?}");
                    has[edge.to][piece] = true;
                }
            }
            assert!(has.into_iter().flatten().all(|has| has), "{topology:?} on {size}");
        }
    }

    #[test]
    fn edges_are_the_topologies_of_their_names() {
        let edges = |topology| {
            let edges = route(topology, 6).edges.into_iter();
            edges.map(|edge| (edge.from, edge.to)).collect::<Vec<_>>()
        };
        assert_eq!(edges(Bcast::OneRing), [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]);
        assert_eq!(edges(Bcast::OneRingM), [(0, 1), (0, 2), (2, 3), (3, 4), (4, 5)]);
        assert_eq!(edges(Bcast::TwoRing), [(0, 1), (0, 3), (1, 2), (3, 4), (4, 5)]);
        assert_eq!(edges(Bcast::TwoRingM), [(0, 1), (0, 2), (0, 4), (2, 3), (4, 5)]);
        let tree = [(0, 4), (0, 2), (0, 1), (2, 3), (4, 5)];
        let ring = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)];
        assert_eq!(edges(Bcast::Long), [tree, ring].concat());
    }
}
