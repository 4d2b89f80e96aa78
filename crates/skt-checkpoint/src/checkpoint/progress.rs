//! The encoding of an epoch as it goes: which bands are final, which are done,
//! and what is on its way between the members.
//!
//! What is encoded comes in *units*, bytes of the rows of a band, in one order on
//! all members: that in which they become final, stage by stage.
//!
//! ```text
//! +-------------------+    the active part, two stages: first the bands 1 and
//! | 1                 |    the bytes 2 of all others become final, then 3 and 4,
//! +----+--------------+    then the rest, band by band from the first on
//! | 2  | 3            |
//! |    +----+---------+
//! |    | 4  | the     |
//! |    |    | rest    |
//! +----+----+---------+
//! ```
//!
//! Where members read each other's memory, each tells the others how many of its
//! units are ready (*tokens*), and sums up those that are ready everywhere. In the
//! ring a member takes part in the laps of a unit once its own is ready. The other
//! encoders need all at once.

use std::mem;
use std::ops::Range;
use std::sync::Arc;

use super::code::Code;
use super::encode::{Encoder, IN_FLIGHT, TAG_READY, TAG_SUMS};
use super::gathered::shared_block;
use super::hook::{Step, StepName};
use super::layout::{Active, Stripes};
use super::protocol::{Checkpointer, Memory, Result};
use super::ring::Laps;
use crate::comm::{Comm, PanelBuf, RecvRequest, SendRequest, Tag};

/// Bytes `bytes` of the rows of a band, to be encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Unit {
    region: usize,
    band: usize,
    bytes: Range<usize>,
}

/// The units of what is active in a region, in the order in which they become
/// final: outside of each of the corners `stages` in turn, then inside the last.
fn units_of(region: usize, stripes: &Stripes, active: Active, stages: &[Active]) -> Vec<Unit> {
    let pitch = stripes.shape.pitch_bytes;
    let unit = |bytes: Range<usize>| move |band| Unit { region, band, bytes: bytes.clone() };
    let (mut units, mut before) = (Vec::new(), active);
    for stage in stages {
        let now = Active { row: stage.row.max(before.row), byte: stage.byte.max(before.byte) };
        let (all, left) = (stripes.bands_from(before.row), stripes.bands_from(now.row));
        let width = before.byte.min(pitch)..now.byte.min(pitch);
        units.extend((all.start..left.start).map(unit(before.byte.min(pitch)..pitch)));
        if !width.is_empty() {
            units.extend(left.map(unit(width)));
        }
        before = now;
    }
    units.extend(stripes.bands_from(before.row).map(unit(before.byte.min(pitch)..pitch)));
    units
}

/// What is left to do of an encoding before more of A is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Polled {
    /// All is encoded.
    Done,
    /// Nothing, and nothing is on its way.
    Idle,
    /// To look after what is on its way.
    Waiting,
    /// More, at once.
    More,
}

/// Tiles that one poll adds to and passes on, at most: it is not to take long.
const TURNS_OF_A_POLL: usize = 2;

/// How far the encoding of an epoch is on this member.
pub(super) struct Progress<C: Comm> {
    epoch: u64,
    units: Vec<Unit>,
    /// Units from the first on that are encoded, or whose laps have begun.
    begun: usize,
    /// Units from the first on whose rows are final here.
    ready: usize,
    way: Way<C>,
}

enum Way<C: Comm> {
    Tokens(Tokens<C>),
    Laps(Laps<C>),
    /// All at once.
    Whole,
}

/// What members tell each other of their bands.
struct Tokens<C: Comm> {
    /// Units that the others know to be ready here.
    told: usize,
    sent: Vec<C::Send>,
    /// By member: units that are ready there (of oneself: all, since nobody keeps
    /// parities of its own blocks), and the next word of it.
    theirs: Vec<(usize, Option<C::Recv>)>,
}

/// Room for what members say.
fn word() -> crate::comm::Result<PanelBuf> {
    PanelBuf::for_messages(1)
}

impl<C: Comm> Progress<C> {
    /// Units that lie outside of these corners of each region are final here. What
    /// was ready once stays so.
    pub fn set_ready<M: Memory, K>(
        &mut self,
        checkpointer: &Checkpointer<C, M, K>,
        outside: &[Active],
    ) {
        let is_ready = |unit: &Unit| {
            let stripes = checkpointer.layout.regions[unit.region].stripes;
            let Active { row, byte } = outside[unit.region];
            stripes.band(unit.band).end <= row || unit.bytes.end <= byte
        };
        while self.units.get(self.ready).is_some_and(is_ready) {
            self.ready += 1;
        }
    }
}

impl<C: Comm, M: Memory, K: Code + Clone> Checkpointer<C, M, K> {
    /// The encoding of the active part of an epoch, which becomes final in
    /// `stages`; `None`: all is final, here and now.
    pub(super) fn start_encoding(
        &mut self,
        epoch: u64,
        active: &[Active],
        stages: Option<&[Vec<Active>]>,
    ) -> Result<Progress<C>> {
        self.vault.step(Step::new(StepName::Encode, epoch))?;
        let mut units = Vec::new();
        let mut mirrors = true;
        for (region, active) in active.iter().enumerate() {
            mirrors &= self.band(region).can_mirror(active.byte);
            let stages = stages.map_or(&[][..], |stages| &stages[region]);
            let stripes = &self.layout.regions[region].stripes;
            units.extend(units_of(region, stripes, *active, stages));
        }
        self.gathered.clear(self.group.size());
        let at_once = stages.is_none();
        let way = match self.encoder {
            Encoder::Direct => Way::Tokens(self.start_tokens(units.len())?),
            Encoder::Ring if at_once && !mirrors => {
                Way::Laps(Laps::new(IN_FLIGHT, self.message_bytes))
            }
            Encoder::Ring if !at_once => {
                // The more is on its way, the longer nobody need look after it; the
                // shorter a message, the sooner a poll is over.
                let in_flight_bytes = self.config.in_flight_bytes;
                let message_bytes = self.message_bytes.min(in_flight_bytes / 16).max(1);
                let window = (in_flight_bytes / message_bytes).max(IN_FLIGHT);
                Way::Laps(Laps::new(window, message_bytes))
            }
            _ => Way::Whole,
        };
        let ready = if at_once { units.len() } else { 0 };
        Ok(Progress { epoch, units, begun: 0, ready, way })
    }

    /// Does what can be done now; with `all_ready`, when this member's rows are
    /// all final, waits for the rest.
    pub(super) fn advance(
        &mut self,
        progress: &mut Progress<C>,
        all_ready: bool,
    ) -> Result<Polled> {
        if all_ready {
            progress.ready = progress.units.len();
        }
        let mut way = mem::replace(&mut progress.way, Way::Whole);
        let done = match &mut way {
            Way::Tokens(tokens) => self.advance_tokens(progress, tokens, all_ready)?,
            Way::Laps(laps) => self.advance_laps(progress, laps, all_ready)?,
            Way::Whole => {
                if all_ready {
                    self.encode_units(progress, progress.units.len())?;
                    Polled::Done
                } else {
                    Polled::Idle
                }
            }
        };
        progress.way = way;
        Ok(done)
    }

    /// Bytes of A that an encoding takes here.
    pub(super) fn encoded_bytes(&self, progress: &Progress<C>) -> usize {
        let bytes = |unit: &Unit| {
            let stripes = self.layout.regions[unit.region].stripes;
            stripes.band(unit.band).len() * unit.bytes.len()
        };
        progress.units.iter().map(bytes).sum()
    }

    fn encode_units(&mut self, progress: &mut Progress<C>, end: usize) -> Result<()> {
        let (encoder, epoch) = (self.encoder, progress.epoch);
        let set = self.config.method.encoded(epoch);
        while progress.begun < end {
            let Unit { region, band, bytes } = progress.units[progress.begun].clone();
            let step = Step::new(StepName::Encode, epoch).band(region, band);
            let parts = &self.layout.regions[region];
            let cells = parts.parities(set).cells(&bytes);
            self.gathered.open(&parts.stripes, self.group.rank(), band, cells);
            self.band(region).encode(encoder, set, band, bytes, step)?;
            progress.begun += 1;
        }
        Ok(())
    }

    /// Members that have read the data of others, or were sent it as it is, tell them
    /// its checksums; the others have found their own.
    pub(super) fn exchange_sums(&mut self, progress: &Progress<C>) -> Result<()> {
        let is_read_by_others = match (&progress.way, self.encoder) {
            (Way::Tokens(_), _) | (Way::Whole, Encoder::Ring) => true,
            (Way::Laps(_), _) | (Way::Whole, _) => false,
        };
        if !is_read_by_others {
            return Ok(());
        }
        self.vault.step(Step::new(StepName::Sums, progress.epoch))?;
        let (me, size) = (self.group.rank(), self.group.size());
        let others: Vec<usize> = (0..size).filter(|&member| member != me).collect();
        let length = |keeper: &usize| {
            let sums = |unit: &Unit| {
                let (rows, cells) = self.rows_and_cells(unit, *keeper, progress.epoch);
                rows.len() * cells.len()
            };
            progress.units.iter().map(sums).sum::<usize>()
        };
        let mut theirs: Vec<Vec<u64>> = others.iter().map(|m| vec![0; length(m)]).collect();
        let sends: Vec<(&[u8], usize, Tag)> = (others.iter())
            .map(|&member| (bytemuck::cast_slice(self.gathered.of(member)), member, TAG_SUMS))
            .collect();
        let mut recvs: Vec<(&mut [u8], usize, Tag)> = (others.iter().zip(&mut theirs))
            .map(|(&member, sums)| (bytemuck::cast_slice_mut(sums), member, TAG_SUMS))
            .collect();
        self.group.exchange_bytes(&sends, &mut recvs)?;
        for (keeper, sums) in others.into_iter().zip(theirs) {
            let mut rest = &sums[..];
            for unit in &progress.units {
                let (rows, cells) = self.rows_and_cells(unit, keeper, progress.epoch);
                let parts = &self.layout.regions[unit.region];
                let data = parts.data(parts.a, self.config.method.encoded(progress.epoch));
                for row in rows {
                    let (of_row, tail) = rest.split_at(cells.len());
                    self.vault.set_sums(&data, row, cells.start, of_row);
                    rest = tail;
                }
            }
        }
        Ok(())
    }

    /// Rows and cells of this member's data of a unit that `keeper` finds checksums of.
    fn rows_and_cells(
        &self,
        unit: &Unit,
        keeper: usize,
        epoch: u64,
    ) -> (Range<usize>, Range<usize>) {
        let parts = &self.layout.regions[unit.region];
        let block = shared_block(parts.stripes.geometry, self.group.rank(), keeper);
        let rows = block.map_or(0..0, |block| parts.stripes.block(unit.band, block));
        let cells = parts.parities(self.config.method.encoded(epoch)).cells(&unit.bytes);
        (rows, cells)
    }

    fn start_tokens(&mut self, units: usize) -> Result<Tokens<C>> {
        let (me, size) = (self.group.rank(), self.group.size());
        let mut theirs = Vec::with_capacity(size);
        for member in 0..size {
            let listens = member != me && units > 0;
            let coming = if listens { Some(self.listen(None, member)?) } else { None };
            theirs.push((if listens { 0 } else { units }, coming));
        }
        Ok(Tokens { told: 0, sent: Vec::new(), theirs })
    }

    fn listen(&self, buffer: Option<PanelBuf>, member: usize) -> Result<C::Recv> {
        let buffer = buffer.map_or_else(word, Ok)?;
        Ok(self.group.irecv(buffer, 0..1, member, TAG_READY)?)
    }

    fn advance_tokens(
        &mut self,
        progress: &mut Progress<C>,
        tokens: &mut Tokens<C>,
        wait: bool,
    ) -> Result<Polled> {
        let units = progress.units.len();
        self.tell(progress.ready, tokens)?;
        for member in 0..tokens.theirs.len() {
            self.hear(member, tokens, units, false)?;
        }
        loop {
            let least = tokens.theirs.iter().map(|(ready, _)| *ready).min().unwrap_or(units);
            // What they have written before they said so is there.
            self.vault.order();
            let end = if wait { least } else { least.min(progress.begun + 1) };
            self.encode_units(progress, end)?;
            if end < least {
                return Ok(Polled::More);
            }
            if least == units || !wait {
                break;
            }
            let late = tokens.theirs.iter().position(|(ready, _)| *ready == least);
            self.hear(late.expect("the least of them"), tokens, units, true)?;
        }
        if progress.begun < units || progress.ready < units {
            return Ok(Polled::Idle);
        }
        while let Some(mut send) = tokens.sent.pop() {
            if wait {
                send.wait()?;
            } else if !send.test()? {
                tokens.sent.push(send);
                return Ok(Polled::Waiting);
            }
        }
        Ok(Polled::Done)
    }

    /// Tells the others how many units are ready here.
    fn tell(&mut self, ready: usize, tokens: &mut Tokens<C>) -> Result<()> {
        if ready == tokens.told {
            return Ok(());
        }
        tokens.told = ready;
        self.vault.order();
        let mut word = word()?;
        word[0] = f64::from_bits(ready as u64);
        let word = Arc::new(word);
        let me = self.group.rank();
        for member in (0..self.group.size()).filter(|&member| member != me) {
            tokens.sent.push(self.group.isend(word.clone(), 0..1, member, TAG_READY)?);
        }
        Ok(())
    }

    /// Takes in what a member has said; with `wait`, one word at least.
    fn hear(
        &mut self,
        member: usize,
        tokens: &mut Tokens<C>,
        units: usize,
        mut wait: bool,
    ) -> Result<()> {
        while let (ready, Some(mut word)) = mem::take(&mut tokens.theirs[member]) {
            if !wait && !word.test()? {
                tokens.theirs[member] = (ready, Some(word));
                return Ok(());
            }
            let word = word.wait()?;
            wait = false;
            let ready = word[0].to_bits() as usize;
            // After the last of them there is nothing more to say.
            let next = if ready < units { Some(self.listen(Some(word), member)?) } else { None };
            let is_last = next.is_none();
            tokens.theirs[member] = (ready, next);
            if is_last {
                return Ok(());
            }
        }
        // Nothing was to come any more.
        tokens.theirs[member] = (units, None);
        Ok(())
    }

    fn advance_laps(
        &mut self,
        progress: &mut Progress<C>,
        laps: &mut Laps<C>,
        wait: bool,
    ) -> Result<Polled> {
        let set = self.config.method.encoded(progress.epoch);
        let mut turns = 0;
        loop {
            while let Some(at) = laps.due() {
                let lap = &mut laps.running[at];
                if !wait && !lap.is_here()? {
                    return Ok(Polled::Waiting);
                }
                if !wait && turns == TURNS_OF_A_POLL {
                    return Ok(Polled::More);
                }
                turns += 1;
                let lap = laps.running.remove(at).expect("it is due");
                let step = Step::new(StepName::Encode, progress.epoch).band(lap.region, lap.band);
                if let Some(mut lap) = self.band(lap.region).turn(lap, set, step)? {
                    lap.due += laps.window;
                    laps.running.insert(at, lap);
                }
            }
            if laps.tiles.is_empty() && progress.begun < progress.units.len() {
                if progress.begun == progress.ready {
                    return Ok(if laps.are_here()? { Polled::Idle } else { Polled::Waiting });
                }
                let Unit { region, band, bytes } = progress.units[progress.begun].clone();
                self.vault.step(Step::new(StepName::Encode, progress.epoch).band(region, band))?;
                laps.tiles = self.band(region).ring_tiles(band, bytes, laps.message_bytes).into();
                progress.begun += 1;
            }
            if !wait && turns == TURNS_OF_A_POLL {
                return Ok(Polled::More);
            }
            turns += 1;
            let Some(tile) = laps.tiles.pop_front() else {
                match laps.running.iter().map(|lap| lap.due).min() {
                    Some(due) => laps.slot = due,
                    // A band may have nothing to encode.
                    None if progress.begun < progress.units.len() => {}
                    None => return Ok(Polled::Done),
                }
                continue;
            };
            let Unit { region, band, .. } = progress.units[progress.begun - 1];
            let due = laps.slot + laps.window;
            let lap = self.band(region).start_lap((region, band), tile, set, due)?;
            laps.running.push_back(lap);
            laps.slot += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::checkpoint::layout::{Geometry, RegionShape};

    fn corner() -> impl Strategy<Value = Active> {
        (0usize..50, 0usize..12).prop_map(|(row, words)| Active { row, byte: 8 * words })
    }

    proptest! {
        #[test]
        fn units_cover_what_is_active_once_and_are_ready_in_their_order(
            rows in 0usize..40, words in 0usize..10, bands in 1usize..7,
            active in corner(), stages in prop::collection::vec(corner(), 0..4),
        ) {
            let geometry = Geometry { members: 3, parities: 1 };
            let shape = RegionShape { rows, pitch_bytes: 8 * words };
            let stripes = Stripes::with_bands(geometry, shape, bands);
            let units = units_of(0, &stripes, active, &stages);
            let mut seen = vec![0; rows * words];
            for unit in &units {
                for row in stripes.band(unit.band) {
                    for word in unit.bytes.start / 8..unit.bytes.end / 8 {
                        seen[row * words + word] += 1;
                    }
                }
            }
            let from = stripes.bands_from(active.row).start * stripes.band_rows();
            for (at, count) in seen.into_iter().enumerate() {
                let (row, word) = (at / words, at % words);
                prop_assert_eq!(count, usize::from(row >= from && 8 * word >= active.byte));
            }
            // When a stage is reached, all units before some place are ready, and the
            // first behind it are not, unless nothing of them is inside.
            let mut reached = active;
            for stage in &stages {
                reached = Active {
                    row: reached.row.max(stage.row),
                    byte: reached.byte.max(stage.byte),
                };
                let ready = units.iter().take_while(|unit| {
                    stripes.band(unit.band).end <= reached.row || unit.bytes.end <= reached.byte
                });
                let inside = |unit: &&Unit| {
                    stripes.band(unit.band).end > reached.row && unit.bytes.end > reached.byte
                };
                prop_assert_eq!(ready.count(), units.iter().take_while(|u| !inside(u)).count());
                let first = units.iter().position(|unit| inside(&unit)).unwrap_or(units.len());
                prop_assert!(units[first..].iter().all(|unit| inside(&unit)
                    || unit.bytes.is_empty()));
            }
        }
    }
}
