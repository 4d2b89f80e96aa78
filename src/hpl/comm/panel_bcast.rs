//! How a panel travels along its process row (HPL_bcast and its six topologies).
//!
//! Ranks are counted from the root: relative rank 1 owns the next panel, and the
//! "modified" topologies spare it from forwarding so that it can factor that panel.
//!
//! The ring topologies pass whole messages and differ in a table of which rank sends to
//! which. The long ones cut the message into a piece for each rank, spread the pieces
//! along a binary tree, and roll them around a ring.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use skt_terms::choice::Bcast;
use skt_terms::rings::ring_heads;
use skt_terms::tree;

use super::{Comm, PanelBuf, RecvRequest, Result, SendRequest, Tag, disjoint_ranges};

const TAG_PANEL: Tag = 0x100;
const TAG_SPREAD: Tag = 0x101;
const TAG_ROLL: Tag = 0x102;

/// The relative ranks that a whole message comes from and goes on to.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Route {
    from: Option<usize>,
    to: Vec<usize>,
}

fn ring_route(topology: Bcast, size: usize, me: usize) -> Route {
    let heads = ring_heads(topology, size);
    if me == 0 {
        return Route { from: None, to: heads };
    }
    let from = if heads.contains(&me) { 0 } else { me - 1 };
    let next = me + 1;
    let ends = next >= size || heads.contains(&next) || topology == Bcast::LongM;
    Route { from: Some(from), to: if ends { vec![] } else { vec![next] } }
}

/// A rank's part in a long broadcast over the members of a ring.
#[derive(Debug, Clone)]
struct Long {
    /// Relative ranks of the members; the root is member 0.
    members: Vec<usize>,
    /// Which of them this rank is.
    me: usize,
}

impl Long {
    fn new(topology: Bcast, size: usize, me: usize) -> Option<Self> {
        let skip_next = match topology {
            Bcast::Long => false,
            Bcast::LongM => true,
            _ => return None,
        };
        let members: Vec<usize> = (0..size).filter(|&r| !(skip_next && r == 1)).collect();
        let me = members.iter().position(|&r| r == me)?;
        Some(Self { members, me })
    }

    fn count(&self) -> usize {
        self.members.len()
    }

    /// Doubles of the message that are pieces `pieces`.
    fn range(&self, len: usize, pieces: Range<usize>) -> Range<usize> {
        len * pieces.start / self.count()..len * pieces.end / self.count()
    }
}

enum State<C: Comm> {
    /// Waits for the message, or for its part in a long broadcast.
    Receiving(C::Recv),
    /// Has its part of a long broadcast; the roll is to come.
    Spread(PanelBuf),
    /// Has the whole message and may still be passing it on.
    Complete {
        buf: Arc<PanelBuf>,
        /// In a cell: they are moved on while the message is read.
        sends: RefCell<Vec<C::Send>>,
    },
    Moving,
}

/// A broadcast in progress.
pub struct PanelBcast<C: Comm> {
    root: usize,
    len: usize,
    route: Route,
    long: Option<Long>,
    state: State<C>,
}

impl<C: Comm> PanelBcast<C> {
    /// Starts the broadcast of the first `len` doubles of `buf` from `root`, on
    /// all ranks of `row`. Returns at once; call [`Self::progress`] now and
    /// then, and [`Self::finish`] before the data is used.
    pub fn start(row: &C, topology: Bcast, root: usize, buf: PanelBuf, len: usize) -> Result<Self> {
        let size = row.size();
        let me = (row.rank() + size - root) % size;
        let long = Long::new(topology, size, me);
        let route = ring_route(topology, size, me);
        let mut bcast = Self { root, len, route, long, state: State::Moving };
        if me == 0 {
            bcast.start_at_root(row, buf)?;
        } else {
            let (from, range, tag) = match &bcast.long {
                Some(long) => {
                    let parent = long.members[tree::parent(long.me).expect("not the root")];
                    let pieces = tree::subtree(long.count(), long.me);
                    (parent, long.range(len, pieces), TAG_SPREAD)
                }
                None => (bcast.route.from.expect("not the root"), 0..len, TAG_PANEL),
            };
            let recv = row.irecv(buf, range, bcast.absolute(row, from), tag)?;
            bcast.state = State::Receiving(recv);
        }
        Ok(bcast)
    }

    fn start_at_root(&mut self, row: &C, buf: PanelBuf) -> Result<()> {
        let buf = Arc::new(buf);
        let mut sends = self.pass_on(row, &buf)?;
        if let Some(long) = &self.long {
            for child in tree::children(long.count(), long.me) {
                let range = long.range(self.len, tree::subtree(long.count(), child));
                let to = self.absolute(row, long.members[child]);
                sends.push(row.isend(buf.clone(), range, to, TAG_SPREAD)?);
            }
        }
        self.state = State::Complete { buf, sends: sends.into() };
        Ok(())
    }

    fn absolute(&self, row: &C, relative: usize) -> usize {
        (relative + self.root) % row.size()
    }

    fn pass_on(&self, row: &C, buf: &Arc<PanelBuf>) -> Result<Vec<C::Send>> {
        let to = self.route.to.iter();
        to.map(|&r| row.isend(buf.clone(), 0..self.len, self.absolute(row, r), TAG_PANEL)).collect()
    }

    /// Passes on what has arrived, without waiting for what has not.
    pub fn progress(&mut self, row: &C) -> Result<()> {
        match &mut self.state {
            State::Receiving(recv) => {
                if recv.test()? {
                    self.accept(row)?;
                }
            }
            State::Complete { .. } => self.progress_sends()?,
            State::Spread(_) | State::Moving => {}
        }
        Ok(())
    }

    /// Progresses the sends to other ranks; never waits. A transport may move nothing
    /// unless it is called.
    pub fn progress_sends(&self) -> Result<()> {
        if let State::Complete { sends, .. } = &self.state {
            for send in sends.borrow_mut().iter_mut() {
                send.test()?;
            }
        }
        Ok(())
    }

    /// Whether the message, or this rank's part of a long broadcast, is still to
    /// come.
    pub fn is_receiving(&self) -> bool {
        matches!(self.state, State::Receiving(_))
    }

    /// Whether the whole message is here.
    pub fn is_here(&self) -> bool {
        matches!(self.state, State::Complete { .. })
    }

    /// Takes what was received and passes it on.
    fn accept(&mut self, row: &C) -> Result<()> {
        let recv = match std::mem::replace(&mut self.state, State::Moving) {
            State::Receiving(recv) => recv,
            other => {
                self.state = other;
                return Ok(());
            }
        };
        let buf = recv.wait()?;
        self.state = match &self.long {
            None => {
                let buf = Arc::new(buf);
                let sends = self.pass_on(row, &buf)?.into();
                State::Complete { buf, sends }
            }
            Some(long) => {
                for child in tree::children(long.count(), long.me) {
                    let range = long.range(self.len, tree::subtree(long.count(), child));
                    row.send(&buf[range], self.absolute(row, long.members[child]), TAG_SPREAD)?;
                }
                State::Spread(buf)
            }
        };
        Ok(())
    }

    /// Waits until the whole message is here.
    pub fn finish(&mut self, row: &C) -> Result<()> {
        self.accept(row)?;
        let Some(long) = self.long.clone() else { return Ok(()) };
        match std::mem::replace(&mut self.state, State::Moving) {
            State::Spread(mut buf) => {
                self.roll(row, &long, &mut buf)?;
                self.state = State::Complete { buf: Arc::new(buf), sends: RefCell::default() };
            }
            State::Complete { buf, mut sends } => {
                if long.me == 0 {
                    sends.get_mut().extend(self.roll_from_root(row, &long, &buf)?);
                }
                self.state = State::Complete { buf, sends };
            }
            other => self.state = other,
        }
        self.long = None;
        Ok(())
    }

    /// The root has all pieces: it feeds them to its neighbour one by one.
    fn roll_from_root(&self, row: &C, long: &Long, buf: &Arc<PanelBuf>) -> Result<Vec<C::Send>> {
        let count = long.count();
        let mut sends = Vec::new();
        if count > 1 {
            let right = self.absolute(row, long.members[1]);
            for step in 0..count - 1 {
                let piece = (count - step) % count;
                // Piece 1 is the neighbour's own.
                let range = long.range(self.len, piece..piece + 1);
                sends.push(row.isend(buf.clone(), range, right, TAG_ROLL)?);
            }
        }
        Ok(sends)
    }

    /// In step s member t sends piece t - s to its right and gets piece t - 1 - s
    /// from its left; the root needs none.
    fn roll(&self, row: &C, long: &Long, buf: &mut [f64]) -> Result<()> {
        let (count, me) = (long.count(), long.me);
        let left = self.absolute(row, long.members[me - 1]);
        let right = (me + 1 < count).then(|| self.absolute(row, long.members[me + 1]));
        for step in 0..count - 1 {
            let out = (me + count - step) % count;
            let into = (me + count - 1 - step) % count;
            let out_range = long.range(self.len, out..out + 1);
            let into_range = long.range(self.len, into..into + 1);
            let (out_data, into_data) = disjoint_ranges(buf, out_range, into_range);
            let into_data = bytemuck::cast_slice_mut(into_data);
            match right {
                Some(right) => row.exchange_bytes(
                    &[(bytemuck::cast_slice(out_data), right, TAG_ROLL)],
                    &mut [(into_data, left, TAG_ROLL)],
                )?,
                None => row.recv_bytes(into_data, left, TAG_ROLL)?,
            }
        }
        Ok(())
    }

    /// The message.
    ///
    /// # Panics
    /// Before [`Self::finish`].
    pub fn data(&self) -> &[f64] {
        match &self.state {
            State::Complete { buf, .. } => buf,
            _ => panic!("a panel used before it has arrived"),
        }
    }

    /// Waits until the message has been passed on, and gives the buffer back.
    ///
    /// # Panics
    /// Before [`Self::finish`].
    pub fn reclaim(self) -> Result<PanelBuf> {
        let State::Complete { buf, sends } = self.state else {
            panic!("a panel released before it has arrived")
        };
        for send in sends.into_inner() {
            send.wait()?;
        }
        Ok(Arc::into_inner(buf).expect("all sends that shared the buffer are complete"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hpl::comm::CommError;
    use crate::hpl::comm::threads::run;

    const ALL: [Bcast; 6] = [
        Bcast::OneRing,
        Bcast::OneRingM,
        Bcast::TwoRing,
        Bcast::TwoRingM,
        Bcast::Long,
        Bcast::LongM,
    ];

    #[test]
    fn every_topology_reaches_every_rank_from_every_root() {
        for topology in ALL {
            for size in 1..9 {
                run(size, |comm| {
                    let mut buf = PanelBuf::new(40).expect("memory");
                    for root in 0..size {
                        for len in [1, 3, 37] {
                            buf.fill(if comm.rank() == root { root as f64 + 0.5 } else { -1.0 });
                            let mut bcast = PanelBcast::start(&comm, topology, root, buf, len)?;
                            bcast.progress(&comm)?;
                            bcast.finish(&comm)?;
                            let want = root as f64 + 0.5;
                            assert!(bcast.data()[..len].iter().all(|&x| x == want));
                            buf = bcast.reclaim()?;
                        }
                    }
                    Ok::<_, CommError>(())
                })
                .into_iter()
                .for_each(|rank| rank.unwrap_or_else(|e| panic!("{topology:?} on {size}: {e}")));
            }
        }
    }

    #[test]
    fn routes_are_the_topologies_of_their_names() {
        let edges = |topology| (0..6).map(|me| ring_route(topology, 6, me).to).collect::<Vec<_>>();
        assert_eq!(edges(Bcast::OneRing), [vec![1], vec![2], vec![3], vec![4], vec![5], vec![]]);
        assert_eq!(edges(Bcast::OneRingM), [vec![1, 2], vec![], vec![3], vec![4], vec![5], vec![]]);
        assert_eq!(edges(Bcast::TwoRing), [vec![1, 3], vec![2], vec![], vec![4], vec![5], vec![]]);
        assert_eq!(
            edges(Bcast::TwoRingM),
            [vec![1, 2, 4], vec![], vec![3], vec![], vec![5], vec![]]
        );
    }
}
