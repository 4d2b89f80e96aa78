//! The broadcast of a panel along its process row (HPL_bcast and its topologies).
//!
//! Each rank forwards the pieces of the message along the edges of the topology
//! ([`skt_host::panel_edges`]) as they arrive.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use skt_host::choice::Bcast;
use skt_host::panel_edges::{Edge, Pieces, RowOrder, route};

use skt_comm::{Comm, PageBuf, RecvRequest, Result, SendRequest, Tag};

/// The tag of an edge that carries `pieces`; the messages of one edge stay in order.
fn tag(pieces: Pieces) -> Tag {
    match pieces {
        Pieces::All => 0x100,
        Pieces::Subtree(_) => 0x101,
        Pieces::Others(_) => 0x102,
    }
}

enum Piece {
    Coming(Box<dyn RecvRequest>),
    Here(Arc<PageBuf>),
    /// An error has ended the transfer.
    Lost,
}

impl Piece {
    /// Whether the piece has arrived, or [`Self::wait`] would return without waiting.
    fn has_arrived(&mut self) -> Result<bool> {
        match self {
            Self::Coming(recv) => recv.test(),
            Self::Here(_) | Self::Lost => Ok(true),
        }
    }

    fn wait(&mut self) -> Result<()> {
        *self = match mem::replace(self, Self::Lost) {
            Self::Coming(recv) => Self::Here(Arc::new(recv.wait()?)),
            other => other,
        };
        Ok(())
    }
}

struct Outgoing {
    rank: usize,
    tag: Tag,
    pieces: VecDeque<usize>,
}

pub(crate) struct PanelBcast {
    pieces: Vec<Piece>,
    /// The pieces that have not arrived, by sender, in the order in which it sends them.
    incoming: Vec<VecDeque<usize>>,
    outgoing: Vec<Outgoing>,
    /// In a cell, as sends are progressed while the message is read.
    sends: RefCell<Vec<Box<dyn SendRequest>>>,
    rest: Vec<PageBuf>,
}

impl PanelBcast {
    /// Starts the broadcast of the first `len` doubles of `buf` from `root`, on all ranks of `row`.
    /// `next` is the owner of the next panel, where that is not the rank after `root`. Returns at
    /// once; call [`Self::progress`] now and then, and [`Self::finish`] before the data is used.
    pub(crate) fn start(
        row: &Comm,
        topology: Bcast,
        root: usize,
        next: Option<usize>,
        buf: PageBuf,
        len: usize,
    ) -> Result<Self> {
        let size = row.size();
        let order = RowOrder::new(root, next, size);
        let me = order.relative(row.rank());
        let route = route(topology, size);
        let count = route.pieces(len * size_of::<f64>());
        let absolute = |relative: usize| order.rank(relative);
        let bounds = |piece: usize| len * piece / count..len * (piece + 1) / count;
        let unused = buf.len() - len;
        let mut parts = buf.cut((0..count).map(|piece| bounds(piece).len()).chain([unused]));
        let rest = parts.split_off(count);
        let mut bcast = Self {
            pieces: Vec::with_capacity(count),
            incoming: Vec::new(),
            outgoing: Vec::new(),
            sends: RefCell::default(),
            rest,
        };
        for &Edge { to, pieces, .. } in route.edges.iter().filter(|edge| edge.from == me) {
            let (rank, tag, pieces) = (absolute(to), tag(pieces), pieces.numbers(count));
            bcast.outgoing.push(Outgoing { rank, tag, pieces });
        }
        if me == 0 {
            bcast.pieces.extend(parts.into_iter().map(|part| Piece::Here(Arc::new(part))));
        } else {
            let mut parts: Vec<_> = parts.into_iter().map(Some).collect();
            bcast.pieces.extend((0..count).map(|_| Piece::Lost));
            for &Edge { from, pieces, .. } in route.edges.iter().filter(|edge| edge.to == me) {
                let expected = pieces.numbers(count);
                for &piece in &expected {
                    let part = parts[piece].take().expect("a piece comes from one rank");
                    let doubles = 0..part.len();
                    let recv = row.irecv(part, doubles, absolute(from), tag(pieces))?;
                    bcast.pieces[piece] = Piece::Coming(recv);
                }
                bcast.incoming.push(expected);
            }
        }
        bcast.forward(row)?;
        Ok(bcast)
    }

    /// Sends the pieces that have arrived, to each rank in the order in which it expects them.
    fn forward(&mut self, row: &Comm) -> Result<()> {
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

    pub(crate) fn progress(&mut self, row: &Comm) -> Result<()> {
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

    /// Progresses the sends; never waits. A transport may move nothing unless it is called.
    pub(crate) fn progress_sends(&self) -> Result<()> {
        self.sends.borrow_mut().iter_mut().try_for_each(|send| send.test().map(drop))
    }

    pub(crate) fn must_forward(&self) -> bool {
        self.outgoing.iter().any(|to| !to.pieces.is_empty())
    }

    pub(crate) fn is_here(&self) -> bool {
        self.incoming.iter().all(VecDeque::is_empty)
    }

    /// Waits until the whole message has arrived, and forwards it during the wait.
    pub(crate) fn finish(&mut self, row: &Comm) -> Result<()> {
        for source in 0..self.incoming.len() {
            while let Some(piece) = self.incoming[source].pop_front() {
                self.pieces[piece].wait()?;
                self.forward(row)?;
            }
        }
        Ok(())
    }

    /// The message; only after [`Self::finish`].
    pub(crate) fn data(&self) -> &[f64] {
        PageBuf::whole(self.pieces.iter().map(|piece| match piece {
            Piece::Here(buf) => &**buf,
            _ => panic!("a panel used before it has arrived"),
        }))
    }

    /// Waits for this rank's sends, and returns the buffer; only after [`Self::finish`].
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
    use crate::comm::threads::run;
    use skt_comm::CommError;

    #[test]
    fn every_topology_reaches_every_rank_from_every_root() {
        // The longest messages have several pieces in rings, too.
        let long = (1 << 18) + 3;
        assert!(route(Bcast::OneRing, 3).pieces(long * size_of::<f64>()) > 2);
        for (topology, size) in Bcast::ALL.into_iter().flat_map(|it| (1..9).map(move |n| (it, n))) {
            run(size, |comm| {
                let mut buf = PageBuf::new(long + 40).expect("memory");
                for (root, len) in
                    (0..size).flat_map(|root| [1, 3, 37, long].map(|len| (root, len)))
                {
                    let next = (0..size).rev().find(|next| *next != root && len > 1);
                    let want = |i: usize| root as f64 + i as f64;
                    if comm.rank() == root {
                        buf.iter_mut().enumerate().for_each(|(i, x)| *x = want(i))
                    } else {
                        buf.fill(-1.0)
                    }
                    let mut bcast = PanelBcast::start(&comm, topology, root, next, buf, len)?;
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
        for topology in Bcast::ALL {
            run(6, |comm| {
                // The pieces have different lengths.
                let mut buf = PageBuf::new(605).expect("memory");
                if comm.rank() == 2 {
                    buf.iter_mut().enumerate().for_each(|(i, x)| *x = i as f64);
                }
                let mut bcast = PanelBcast::start(&comm, topology, 2, None, buf, 605)?;
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
}
