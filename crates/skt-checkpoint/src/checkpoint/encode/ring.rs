//! The ring of a group: partial sums that go from member to member, and advance whenever a member
//! polls.
//!
//! A tile makes one *round*: turn by turn each member adds its block and passes the sums on, m of
//! them at once; after the last turn they reach the members that keep them. The turns of a round
//! are `window` slots apart:
//!
//! ```text
//! slot          0  1  2  3  4  5         window = 2, three turns
//! round 0       a     b     c     (put)
//! round 1          a     b     c
//! round 2             a     b     c
//! ```
//!
//! so that `window` tiles are in transit between two neighbours. Within a slot older rounds come
//! first. All members go through the slots, and so through the messages, in this one order, however
//! far apart in time they are.

use std::collections::VecDeque;
use std::sync::Arc;

use super::tile::Tile;
use super::{RegionView, TAG_PARITY, TAG_RING, bytes_of, bytes_of_mut};
use crate::checkpoint::hook::Step;

use skt_comm::{PageBuf, RecvRequest, Result, SendRequest, Tag};
use skt_store::layout::Stripes;

/// A tile on its way round the ring, with one partial sum per parity.
pub(in super::super) struct Round {
    pub region: usize,
    pub band: usize,
    tile: Tile,
    pub due: usize,
    turn: usize,
    sums: Vec<PageBuf>,
    sent: Vec<(Box<dyn SendRequest>, Arc<PageBuf>)>,
    coming: Vec<Box<dyn RecvRequest>>,
}

pub(in super::super) struct Rounds {
    pub window: usize,
    pub message_bytes: usize,
    pub slot: usize,
    /// Rounds in progress, oldest first.
    pub running: VecDeque<Round>,
    /// Tiles of the present band whose rounds have not started.
    pub tiles: VecDeque<Tile>,
}

impl Rounds {
    pub(crate) fn new(window: usize, message_bytes: usize) -> Self {
        let (running, tiles) = (VecDeque::new(), VecDeque::new());
        Self { window, message_bytes, slot: 0, running, tiles }
    }

    pub(crate) fn due(&self) -> Option<usize> {
        self.running.iter().position(|round| round.due == self.slot)
    }

    /// Whether all messages of running rounds have arrived. Never blocks. Tests them in the order
    /// in which they were sent.
    pub(crate) fn are_here(&mut self) -> Result<bool> {
        let mut running: Vec<_> = self.running.iter_mut().collect();
        running.sort_by_key(|round| round.due);
        running.into_iter().try_fold(true, |here, round| Ok(here && round.is_here()?))
    }
}

impl Round {
    pub(crate) fn is_here(&mut self) -> Result<bool> {
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

impl RegionView<'_> {
    /// Starts the round of a tile, whose parities will be stored in set `set`.
    pub(in super::super) fn start_round(
        &mut self,
        region: usize,
        band: usize,
        tile: Tile,
        set: usize,
        due: usize,
    ) -> Result<Round> {
        let parities = 0..self.stripes().geometry.parities;
        let sums = parities.map(|_| self.scratch.take(tile.size())).collect::<Result<_>>()?;
        let (sent, coming) = (Vec::new(), Vec::new());
        let mut round = Round { region, band, tile, due, turn: 0, sums, sent, coming };
        self.add_and_pass(&mut round, set)?;
        Ok(round)
    }

    /// Does the next turn of a round; waits for its sums if they have not arrived. Returns the
    /// round, or `None` after the last turn, when the parities are in set `set`.
    pub(in super::super) fn turn(
        &mut self,
        mut round: Round,
        set: usize,
        step: Step,
    ) -> Result<Option<Round>> {
        for recv in round.coming.drain(..) {
            round.sums.push(recv.wait()?);
        }
        for sent in round.sent.drain(..) {
            self.sent(sent)?;
        }
        round.turn += 1;
        if round.turn < self.turns(round.band) {
            self.add_and_pass(&mut round, set)?;
            return Ok(Some(round));
        }
        let (into, stripes) = (self.areas.parities(set), self.stripes());
        for (p, parity) in round.sums.into_iter().enumerate() {
            let bytes = bytes_of(&parity, round.tile.size());
            self.put(into, stripes.parity(round.band, p), &round.tile, bytes, step)?;
            self.scratch.buffers.push(parity);
        }
        Ok(None)
    }

    /// The blocks of a band. A last band lacks the same blocks on all members.
    fn turns(&self, band: usize) -> usize {
        let stripes = self.stripes();
        (0..stripes.geometry.data()).filter(|&i| !stripes.block(band, i).is_empty()).count()
    }

    /// Does turn t: adds this member's block i = k-1-t to the partial sums of stripe me + 1 + i,
    /// which the member before has sent, and passes them on.
    fn add_and_pass(&mut self, round: &mut Round, set: usize) -> Result<()> {
        let (stripes, me) = (self.stripes(), self.comm.rank());
        let Stripes { geometry, .. } = stripes;
        let (n, i) = (geometry.members, self.turns(round.band) - 1 - round.turn);
        let block = stripes.block(round.band, i);
        for (p, sum) in round.sums.iter_mut().enumerate() {
            let coef = self.code.encode_coef(p, i);
            let sum = bytes_of_mut(sum, round.tile.size());
            // The checksums of this member's blocks are computed once, with the first parity.
            let own = (p == 0).then(|| self.areas.data(self.areas.a, set));
            let held = (self.areas.a, block.clone());
            match round.turn {
                0 => self.start(coef, held, own, &round.tile, sum),
                _ => self.add(coef, held, own, &round.tile, sum),
            }
        }
        if i > 0 {
            return self.pass(round, |_| (me + 1) % n, |_| (me + n - 1) % n, TAG_RING);
        }
        // Block 0 is the last of stripe me + 1; parity p on this member is of stripe me - p.
        let keeper = |p: usize| geometry.parity_member(me + 1, p);
        let last_of = |p: usize| geometry.data_member(geometry.parity_stripe(me, p), 0);
        self.pass(round, keeper, last_of, TAG_PARITY)
    }

    /// Starts sending each partial sum to a member, and receiving another one.
    fn pass(
        &mut self,
        round: &mut Round,
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
