//! The ring of a group: partial sums that go from member to member, moved on
//! whenever somebody looks.
//!
//! A tile makes one *round*: turn by turn each member adds its block and passes the
//! sums on, m of them at once; after the last turn they come to those who keep
//! them. Rounds follow each other `window` slots apart from turn to turn,
//!
//! ```text
//! slot          0  1  2  3  4  5         window = 2, three turns
//! round 0       a     b     c     (put)
//! round 1          a     b     c
//! round 2             a     b     c
//! ```
//!
//! so that `window` tiles are on their way between two neighbours. Within a slot
//! older rounds come first. All members go through the slots in this one order, and
//! so through the messages, however far apart in time.

use std::collections::VecDeque;
use std::ops::DerefMut;
use std::sync::Arc;

use super::tile::Tile;
use super::{Band, TAG_PARITY, TAG_RING, bytes_of, bytes_of_mut};
use crate::checkpoint::code::Code;
use crate::checkpoint::hook::Step;
use crate::checkpoint::layout::Stripes;
use crate::checkpoint::memory::Peer;
use crate::comm::{Comm, PanelBuf, RecvRequest, Result, SendRequest, Tag};

/// A tile on its way: one partial sum a parity.
pub(in super::super) struct Round<C: Comm> {
    pub region: usize,
    pub band: usize,
    tile: Tile,
    /// The slot in which its next turn comes.
    pub due: usize,
    turn: usize,
    sums: Vec<PanelBuf>,
    sent: Vec<(C::Send, Arc<PanelBuf>)>,
    coming: Vec<C::Recv>,
}

/// All rounds of an encoding.
pub(in super::super) struct Rounds<C: Comm> {
    pub window: usize,
    /// Bytes of a message, about.
    pub message_bytes: usize,
    pub slot: usize,
    /// Under way, the oldest first.
    pub running: VecDeque<Round<C>>,
    /// Tiles of the band that rounds are started of.
    pub tiles: VecDeque<Tile>,
}

impl<C: Comm> Rounds<C> {
    pub fn new(window: usize, message_bytes: usize) -> Self {
        let (running, tiles) = (VecDeque::new(), VecDeque::new());
        Self { window, message_bytes, slot: 0, running, tiles }
    }

    /// The round whose turn it is in this slot, the oldest first.
    pub fn due(&self) -> Option<usize> {
        self.running.iter().position(|round| round.due == self.slot)
    }

    /// Whether all that is on its way is here. Never blocks. Asks in the order in
    /// which it was sent.
    pub fn are_here(&mut self) -> Result<bool> {
        let mut running: Vec<_> = self.running.iter_mut().collect();
        running.sort_by_key(|round| round.due);
        for round in running {
            if !round.is_here()? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl<C: Comm> Round<C> {
    /// Whether what it waits for is there. Never blocks.
    pub fn is_here(&mut self) -> Result<bool> {
        for recv in &mut self.coming {
            if !recv.test()? {
                return Ok(false);
            }
        }
        for (send, _) in &mut self.sent {
            if !send.test()? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl<C: Comm, K: Code, S: DerefMut<Target = [u8]>, P: Peer> Band<'_, C, K, S, P> {
    /// Starts the round of a tile, whose parities are to come into set `set`.
    pub(in super::super) fn start_round(
        &mut self,
        (region, band): (usize, usize),
        tile: Tile,
        set: usize,
        due: usize,
    ) -> Result<Round<C>> {
        let parities = 0..self.stripes().geometry.parities;
        let sums = parities.map(|_| self.scratch.take(tile.size())).collect::<Result<_>>()?;
        let (sent, coming) = (Vec::new(), Vec::new());
        let mut round = Round { region, band, tile, due, turn: 0, sums, sent, coming };
        self.add_and_pass(&mut round, set)?;
        Ok(round)
    }

    /// The next turn of a round, for whose sums it waits where they are not here
    /// yet. After the last one the parities are in set `set`, and there is no round
    /// any more.
    pub(in super::super) fn turn(
        &mut self,
        mut round: Round<C>,
        set: usize,
        step: Step,
    ) -> Result<Option<Round<C>>> {
        for recv in round.coming.drain(..) {
            round.sums.push(recv.wait()?);
        }
        for sent in round.sent.drain(..) {
            self.sent(Some(sent))?;
        }
        round.turn += 1;
        if round.turn < self.turns(round.band) {
            self.add_and_pass(&mut round, set)?;
            return Ok(Some(round));
        }
        let (into, stripes) = (self.parts.parities(set), self.stripes());
        for (p, parity) in round.sums.into_iter().enumerate() {
            let bytes = bytes_of(&parity, round.tile.size());
            self.put(into, stripes.parity(round.band, p), &round.tile, bytes, step)?;
            self.scratch.give(parity);
        }
        Ok(None)
    }

    /// Blocks of a band: those that a last band lacks, it lacks on all members.
    fn turns(&self, band: usize) -> usize {
        let stripes = self.stripes();
        (0..stripes.geometry.data()).filter(|&i| !stripes.block(band, i).is_empty()).count()
    }

    /// Turn t: this member adds block i = k-1-t to the partial sums of stripe
    /// me + 1 + i, which it has from the member before, and passes them on.
    fn add_and_pass(&mut self, round: &mut Round<C>, set: usize) -> Result<()> {
        let (stripes, me) = (self.stripes(), self.comm.rank());
        let Stripes { geometry, .. } = stripes;
        let (n, i) = (geometry.members, self.turns(round.band) - 1 - round.turn);
        let block = stripes.block(round.band, i);
        for (p, sum) in round.sums.iter_mut().enumerate() {
            let coef = self.code.encode_coef(p, i);
            let sum = bytes_of_mut(sum, round.tile.size());
            let (held, own) = ((self.parts.a, block.clone()), self.own_sums(set, p));
            match round.turn {
                0 => self.start(coef, held, own, &round.tile, sum),
                _ => self.add(coef, held, own, &round.tile, sum),
            }
        }
        if i > 0 {
            return self.pass(round, |_| (me + 1) % n, |_| (me + n - 1) % n, TAG_RING);
        }
        // Block 0 is the last of stripe me + 1; parity p here is of stripe me - p.
        let keeper = |p: usize| geometry.parity_member(me + 1, p);
        let last_of = |p: usize| geometry.data_member(geometry.parity_stripe(me, p), 0);
        self.pass(round, keeper, last_of, TAG_PARITY)
    }

    /// Starts to send each partial sum to a member, and to receive another one.
    fn pass(
        &mut self,
        round: &mut Round<C>,
        to: impl Fn(usize) -> usize,
        from: impl Fn(usize) -> usize,
        tag: Tag,
    ) -> Result<()> {
        let doubles = 0..round.tile.size().div_ceil(size_of::<f64>());
        for p in 0..round.sums.len() {
            let into = self.scratch.take(round.tile.size())?;
            round.coming.push(self.comm.irecv(into, doubles.clone(), from(p), tag)?);
        }
        for (p, sum) in round.sums.drain(..).enumerate() {
            let sum = Arc::new(sum);
            let send = self.comm.isend(sum.clone(), doubles.clone(), to(p), tag)?;
            round.sent.push((send, sum));
        }
        Ok(())
    }
}
