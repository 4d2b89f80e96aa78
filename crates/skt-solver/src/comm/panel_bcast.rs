//! The broadcast of a panel along its process row (HPL_bcast and its six topologies).
//!
//! Ranks are counted from the root: relative rank 1 owns the next panel, and the "modified"
//! topologies spare it from forwarding so that it can factor that panel.
//!
//! A message is cut into pieces. Each rank receives each piece once, and forwards it as soon as it
//! has arrived, whatever is still missing. So a topology is a list of edges, each with the pieces
//! that it carries:
//!
//! ```text
//! rings      every edge has all pieces
//! long       one piece for each member:  down a binary tree, to each member its own piece and
//!            those of the members below it;  around the ring, to each member all others
//! ```

use std::cell::RefCell;
use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use skt_terms::choice::Bcast;
use skt_terms::rings::{self, long_members, ring_heads};
use skt_terms::tree;

use super::{Comm, PageBuf, RecvRequest, Result, SendRequest, Tag};

const TAG_PANEL: Tag = 0x100;
const TAG_SPREAD: Tag = 0x101;
const TAG_ROLL: Tag = 0x102;

/// The pieces that one rank sends to another, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Edge {
    /// The sender and the receiver, as relative ranks.
    from: usize,
    to: usize,
    tag: Tag,
    pieces: Pieces,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pieces {
    All,
    /// The piece of a member and those of the members below it.
    Subtree(usize),
    /// All pieces that [`Self::Subtree`] of the member does not have, from the piece of the member
    /// before it backwards.
    Others(usize),
}

impl Pieces {
    /// The numbers of the pieces, in order, of `count` in all.
    fn numbers(self, count: usize) -> VecDeque<usize> {
        match self {
            Self::All => (0..count).collect(),
            Self::Subtree(member) => tree::subtree(count, member).collect(),
            Self::Others(member) => {
                let below = tree::subtree(count, member);
                let back = (1..count).map(|step| (member + count - step) % count);
                back.filter(|piece| !below.contains(piece)).collect()
            }
        }
    }
}

/// The edges of a topology; those of one sender in the order in which it sends.
fn edges(topology: Bcast, size: usize) -> Vec<Edge> {
    let heads = ring_heads(topology, size);
    let whole = |from, to| Edge { from, to, tag: TAG_PANEL, pieces: Pieces::All };
    let to_heads = heads.iter().map(|&head| whole(0, head));
    let Some(members) = long_members(topology, size) else {
        let in_rings = (1..size).filter(|rank| !heads.contains(rank));
        return to_heads.chain(in_rings.map(|rank| whole(rank - 1, rank))).collect();
    };
    let edge = |from: usize, to: usize, tag, pieces| Edge {
        from: members[from],
        to: members[to],
        tag,
        pieces,
    };
    // The members with the largest subtrees first.
    let spread = (1..members.len()).rev().map(|member| {
        let parent = tree::parent(member).expect("not the root");
        edge(parent, member, TAG_SPREAD, Pieces::Subtree(member))
    });
    let roll =
        (1..members.len()).map(|member| edge(member - 1, member, TAG_ROLL, Pieces::Others(member)));
    to_heads.chain(spread).chain(roll).collect()
}

enum Piece<C: Comm> {
    Coming(C::Recv),
    Here(Arc<PageBuf>),
    /// An error has ended the transfer.
    Lost,
}

impl<C: Comm> Piece<C> {
    /// Whether the piece has arrived, or [`Self::wait`] would return without waiting.
    fn has_arrived(&mut self) -> Result<bool> {
        match self {
            Self::Coming(recv) => recv.test(),
            Self::Here(_) | Self::Lost => Ok(true),
        }
    }

    /// Waits until the piece has arrived.
    fn wait(&mut self) -> Result<()> {
        *self = match mem::replace(self, Self::Lost) {
            Self::Coming(recv) => Self::Here(Arc::new(recv.wait()?)),
            other => other,
        };
        Ok(())
    }
}

/// The pieces still to be sent to one rank.
struct Outgoing {
    rank: usize,
    tag: Tag,
    pieces: VecDeque<usize>,
}

/// A broadcast in progress.
pub struct PanelBcast<C: Comm> {
    pieces: Vec<Piece<C>>,
    /// The pieces that have not arrived, by sender, in the order in which it sends them.
    incoming: Vec<VecDeque<usize>>,
    outgoing: Vec<Outgoing>,
    /// In a cell, as sends are progressed while the message is read.
    sends: RefCell<Vec<C::Send>>,
    /// The unused end of the buffer.
    rest: Vec<PageBuf>,
}

impl<C: Comm> PanelBcast<C> {
    /// Starts the broadcast of the first `len` doubles of `buf` from `root`, on all ranks of `row`.
    /// Returns at once; call [`Self::progress`] now and then, and [`Self::finish`] before the data
    /// is used.
    pub(crate) fn start(
        row: &C,
        topology: Bcast,
        root: usize,
        buf: PageBuf,
        len: usize,
    ) -> Result<Self> {
        let size = row.size();
        let me = (row.rank() + size - root) % size;
        let count = rings::pieces(topology, size, len * size_of::<f64>());
        let absolute = |relative: usize| (relative + root) % size;
        let bounds = |piece: usize| len * piece / count..len * (piece + 1) / count;
        let unused = buf.len() - len;
        let mut parts = buf.cut((0..count).map(|piece| bounds(piece).len()).chain([unused]));
        let rest = parts.split_off(count);
        let edges = edges(topology, size);
        let mut bcast = Self {
            pieces: Vec::with_capacity(count),
            incoming: Vec::new(),
            outgoing: Vec::new(),
            sends: RefCell::default(),
            rest,
        };
        for Edge { to, tag, pieces, .. } in edges.iter().filter(|edge| edge.from == me) {
            let (rank, pieces) = (absolute(*to), pieces.numbers(count));
            bcast.outgoing.push(Outgoing { rank, tag: *tag, pieces });
        }
        if me == 0 {
            bcast.pieces.extend(parts.into_iter().map(|part| Piece::Here(Arc::new(part))));
        } else {
            let mut parts: Vec<_> = parts.into_iter().map(Some).collect();
            bcast.pieces.extend((0..count).map(|_| Piece::Lost));
            for Edge { from, tag, pieces, .. } in edges.iter().filter(|edge| edge.to == me) {
                let expected = pieces.numbers(count);
                for &piece in &expected {
                    let part = parts[piece].take().expect("a piece comes from one rank");
                    let doubles = 0..part.len();
                    let recv = row.irecv(part, doubles, absolute(*from), *tag)?;
                    bcast.pieces[piece] = Piece::Coming(recv);
                }
                bcast.incoming.push(expected);
            }
        }
        bcast.forward(row)?;
        Ok(bcast)
    }

    /// Sends the pieces that have arrived, to each rank in the order in which it expects them.
    fn forward(&mut self, row: &C) -> Result<()> {
        for Outgoing { rank, tag, pieces } in &mut self.outgoing {
            while let Some(&piece) = pieces.front() {
                let Piece::Here(buf) = &self.pieces[piece] else { break };
                let send = row.isend(buf.clone(), 0..buf.len(), *rank, *tag)?;
                self.sends.get_mut().push(send);
                pieces.pop_front();
            }
        }
        Ok(())
    }

    /// Forwards what has arrived; never waits.
    pub(crate) fn progress(&mut self, row: &C) -> Result<()> {
        let Self { pieces, incoming, .. } = self;
        for expected in incoming {
            while let Some(&piece) = expected.front() {
                if !pieces[piece].has_arrived()? {
                    break;
                }
                pieces[piece].wait()?;
                expected.pop_front();
            }
        }
        self.forward(row)?;
        self.progress_sends()
    }

    /// Progresses the sends to other ranks; never waits. A transport may move nothing unless it is
    /// called.
    pub(crate) fn progress_sends(&self) -> Result<()> {
        self.sends.borrow_mut().iter_mut().try_for_each(|send| send.test().map(drop))
    }

    /// Whether this rank still has pieces to send to others.
    pub fn must_forward(&self) -> bool {
        self.outgoing.iter().any(|to| !to.pieces.is_empty())
    }

    /// Whether the whole message has arrived.
    pub fn is_here(&self) -> bool {
        self.incoming.iter().all(VecDeque::is_empty)
    }

    /// Waits until the whole message has arrived, and forwards it during the wait.
    pub(crate) fn finish(&mut self, row: &C) -> Result<()> {
        for source in 0..self.incoming.len() {
            while let Some(piece) = self.incoming[source].pop_front() {
                self.pieces[piece].wait()?;
                self.forward(row)?;
            }
        }
        Ok(())
    }

    /// The message as one slice.
    ///
    /// # Panics
    /// Before `Self::finish`.
    pub fn data(&self) -> &[f64] {
        PageBuf::whole(self.pieces.iter().map(|piece| match piece {
            Piece::Here(buf) => &**buf,
            _ => panic!("a panel used before it has arrived"),
        }))
    }

    /// Waits until this rank's sends are complete, and returns the buffer.
    ///
    /// # Panics
    /// Before [`Self::finish`].
    pub(crate) fn reclaim(self) -> Result<PageBuf> {
        self.sends.into_inner().into_iter().try_for_each(|send| send.wait())?;
        let pieces = self.pieces.into_iter().map(|piece| match piece {
            Piece::Here(buf) => Arc::into_inner(buf).expect("all its sends are complete"),
            _ => panic!("a panel released before it has arrived"),
        });
        Ok(PageBuf::join(pieces.chain(self.rest)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::CommError;
    use crate::comm::threads::run;

    #[test]
    fn every_topology_reaches_every_rank_from_every_root() {
        // The longest messages have several pieces in rings, too.
        let long = (1 << 18) + 3;
        assert!(rings::pieces(Bcast::OneRing, 3, long * size_of::<f64>()) > 2);
        for (topology, size) in Bcast::ALL.iter().flat_map(|&it| (1..9).map(move |size| (it, size)))
        {
            run(size, |comm| {
                let mut buf = PageBuf::new(long + 40).expect("memory");
                for (root, len) in
                    (0..size).flat_map(|root| [1, 3, 37, long].map(|len| (root, len)))
                {
                    let want = |i: usize| root as f64 + i as f64;
                    if comm.rank() == root {
                        buf.iter_mut().enumerate().for_each(|(i, x)| *x = want(i))
                    } else {
                        buf.fill(-1.0)
                    }
                    let mut bcast = PanelBcast::start(&comm, topology, root, buf, len)?;
                    bcast.progress(&comm)?;
                    bcast.finish(&comm)?;
                    assert_eq!(bcast.data().len(), len);
                    assert!(bcast.data().iter().enumerate().all(|(i, &x)| x == want(i)));
                    buf = bcast.reclaim()?;
                }
                assert_eq!(buf.len(), long + 40);
                Ok::<_, CommError>(())
            })
            .into_iter()
            .for_each(|rank| rank.unwrap_or_else(|e| panic!("{topology:?} on {size}: {e}")));
        }
    }

    /// Other ranks get the message although no rank calls `finish`.
    #[test]
    fn progress_alone_completes_the_broadcast() {
        for &topology in Bcast::ALL {
            run(6, |comm| {
                // The pieces have different lengths.
                let mut buf = PageBuf::new(605).expect("memory");
                if comm.rank() == 2 {
                    buf.iter_mut().enumerate().for_each(|(i, x)| *x = i as f64);
                }
                let mut bcast = PanelBcast::start(&comm, topology, 2, buf, 605)?;
                while !bcast.is_here() {
                    bcast.progress(&comm)?;
                    std::thread::yield_now();
                }
                assert!(bcast.data().iter().enumerate().all(|(i, &x)| x == i as f64));
                bcast.reclaim().map(drop)
            })
            .into_iter()
            .for_each(|rank| rank.unwrap_or_else(|e| panic!("{topology:?}: {e}")));
        }
    }

    #[test]
    fn each_rank_gets_each_piece_once_from_a_rank_that_gets_it() {
        for (topology, size) in
            Bcast::ALL.iter().flat_map(|&it| (1..40).map(move |size| (it, size)))
        {
            let count = rings::pieces(topology, size, 3 << 20);
            let edges = edges(topology, size);
            for piece in 0..count {
                let with = |edge: &&Edge| edge.pieces.numbers(count).contains(&piece);
                let mut sources = vec![None; size];
                for edge in edges.iter().filter(with) {
                    assert!(sources[edge.to].replace(edge.from).is_none(), "{edge:?}");
                }
                assert!(sources[0].is_none());
                // Each piece comes from a lower rank, and so in the end from the root.
                let is_lower = |rank: usize| sources[rank].is_some_and(|from| from < rank);
                assert!((1..size).all(is_lower), "{topology:?} on {size}: {sources:?}");
            }
        }
    }

    #[test]
    fn edges_are_the_topologies_of_their_names() {
        let edges = |topology| {
            let edges = edges(topology, 6).into_iter();
            edges.map(|edge| (edge.from, edge.to)).collect::<Vec<_>>()
        };
        assert_eq!(edges(Bcast::OneRing), [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]);
        assert_eq!(edges(Bcast::OneRingM), [(0, 1), (0, 2), (2, 3), (3, 4), (4, 5)]);
        assert_eq!(edges(Bcast::TwoRing), [(0, 1), (0, 3), (1, 2), (3, 4), (4, 5)]);
        assert_eq!(edges(Bcast::TwoRingM), [(0, 1), (0, 2), (0, 4), (2, 3), (4, 5)]);
        let tree = [(4, 5), (0, 4), (2, 3), (0, 2), (0, 1)];
        let ring = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)];
        assert_eq!(edges(Bcast::Long), [tree, ring].concat());
    }
}
