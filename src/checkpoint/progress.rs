//! The encoding of an epoch as it goes: which bands are final, which are done,
//! and what is on its way between the members.
//!
//! Bands are encoded in one order, from the first on. Where members read each
//! other's memory, each tells the others how many of its bands are ready
//! (*tokens*), and sums up the bands that are ready everywhere. In the ring a
//! member takes part in the laps of a band once its own is ready. The other
//! encoders need all at once.

use std::mem;
use std::sync::Arc;

use super::code::Code;
use super::encode::{Encoder, IN_FLIGHT, TAG_READY};
use super::hook::Step;
use super::layout::Active;
use super::protocol::{Checkpointer, Memory, Result};
use super::ring::Laps;
use crate::comm::{Comm, PanelBuf, RecvRequest, SendRequest};

/// A band to encode, bytes `from_byte..` of its rows.
struct Unit {
    region: usize,
    band: usize,
    from_byte: usize,
}

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
fn word() -> PanelBuf {
    PanelBuf::new(1).expect("memory for a message")
}

impl<C: Comm> Progress<C> {
    /// Units whose rows lie before these rows of each region are final here. What
    /// was ready once stays so.
    pub fn set_ready<M: Memory, K>(
        &mut self,
        checkpointer: &Checkpointer<C, M, K>,
        rows: &[usize],
    ) {
        while let Some(unit) = self.units.get(self.ready)
            && checkpointer.layout.regions[unit.region].stripes.band(unit.band).end
                <= rows[unit.region]
        {
            self.ready += 1;
        }
    }
}

impl<C: Comm, M: Memory, K: Code + Clone> Checkpointer<C, M, K> {
    /// The encoding of the active part of an epoch. `at_once`: all rows are
    /// final, here and now.
    pub(super) fn start_encoding(
        &mut self,
        epoch: u64,
        active: &[Active],
        at_once: bool,
    ) -> Result<Progress<C>> {
        self.vault.step(Step::new("encode", epoch))?;
        let mut units = Vec::new();
        let mut mirrors = true;
        for (region, active) in active.iter().enumerate() {
            mirrors &= self.band(region).can_mirror(active.byte);
            let bands = self.layout.regions[region].stripes.bands_from(active.row);
            units.extend(bands.map(|band| Unit { region, band, from_byte: active.byte }));
        }
        let way = match self.encoder {
            Encoder::Direct => Way::Tokens(self.start_tokens(units.len())?),
            Encoder::Ring if !(at_once && mirrors) => Way::Laps(Laps::new(match at_once {
                true => IN_FLIGHT,
                // The more is on its way, the longer nobody need look after it.
                false => (self.config.in_flight_bytes / self.message_bytes.max(1)).max(IN_FLIGHT),
            })),
            _ => Way::Whole,
        };
        let ready = if at_once { units.len() } else { 0 };
        Ok(Progress { epoch, units, begun: 0, ready, way })
    }

    /// Does what can be done now; with `all_ready`, when this member's rows are
    /// all final, waits for the rest and returns true. True: all is encoded.
    pub(super) fn advance(&mut self, progress: &mut Progress<C>, all_ready: bool) -> Result<bool> {
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
                }
                all_ready
            }
        };
        progress.way = way;
        Ok(done)
    }

    /// Bytes of A that an encoding takes here.
    pub(super) fn encoded_bytes(&self, progress: &Progress<C>) -> usize {
        let bytes = |unit: &Unit| {
            let stripes = self.layout.regions[unit.region].stripes;
            let width = stripes.shape.pitch_bytes.saturating_sub(unit.from_byte);
            stripes.band(unit.band).len() * width
        };
        progress.units.iter().map(bytes).sum()
    }

    fn encode_units(&mut self, progress: &mut Progress<C>, end: usize) -> Result<()> {
        let (encoder, epoch) = (self.encoder, progress.epoch);
        let set = self.config.method.encoded(epoch);
        while progress.begun < end {
            let Unit { region, band, from_byte } = progress.units[progress.begun];
            let step = Step::new("encode", epoch).band(region, band);
            self.band(region).encode(encoder, set, band, from_byte, step)?;
            progress.begun += 1;
        }
        Ok(())
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
        let buffer = buffer.unwrap_or_else(word);
        Ok(self.group.irecv(buffer, 0..1, member, TAG_READY)?)
    }

    fn advance_tokens(
        &mut self,
        progress: &mut Progress<C>,
        tokens: &mut Tokens<C>,
        wait: bool,
    ) -> Result<bool> {
        let units = progress.units.len();
        self.tell(progress.ready, tokens)?;
        for member in 0..tokens.theirs.len() {
            self.hear(member, tokens, units, false)?;
        }
        loop {
            let least = tokens.theirs.iter().map(|(ready, _)| *ready).min().unwrap_or(units);
            // What they have written before they said so is there.
            self.vault.order();
            self.encode_units(progress, least)?;
            if least == units || !wait {
                break;
            }
            let late = tokens.theirs.iter().position(|(ready, _)| *ready == least);
            self.hear(late.expect("the least of them"), tokens, units, true)?;
        }
        if progress.begun < units || progress.ready < units {
            return Ok(false);
        }
        while let Some(mut send) = tokens.sent.pop() {
            if wait {
                send.wait()?;
            } else if !send.test()? {
                tokens.sent.push(send);
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Tells the others how many units are ready here.
    fn tell(&mut self, ready: usize, tokens: &mut Tokens<C>) -> Result<()> {
        if ready == tokens.told {
            return Ok(());
        }
        tokens.told = ready;
        self.vault.order();
        let mut word = word();
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
    ) -> Result<bool> {
        let set = self.config.method.encoded(progress.epoch);
        loop {
            while let Some(at) = laps.due() {
                let lap = &mut laps.running[at];
                if !wait && !lap.is_here()? {
                    return Ok(false);
                }
                let lap = laps.running.remove(at).expect("it is due");
                let step = Step::new("encode", progress.epoch).band(lap.region, lap.band);
                if let Some(mut lap) = self.band(lap.region).turn(lap, set, step)? {
                    lap.due += laps.window;
                    laps.running.insert(at, lap);
                }
            }
            if laps.tiles.is_empty() && progress.begun < progress.units.len() {
                if progress.begun == progress.ready {
                    return Ok(false);
                }
                let Unit { region, band, from_byte } = progress.units[progress.begun];
                self.vault.step(Step::new("encode", progress.epoch).band(region, band))?;
                laps.tiles = self.band(region).ring_tiles(band, from_byte).into();
                progress.begun += 1;
            }
            let Some(tile) = laps.tiles.pop_front() else {
                match laps.running.iter().map(|lap| lap.due).min() {
                    Some(due) => laps.slot = due,
                    // A band may have nothing to encode.
                    None if progress.begun < progress.units.len() => {}
                    None => return Ok(true),
                }
                continue;
            };
            let Unit { region, band, .. } = progress.units[progress.begun - 1];
            let due = laps.slot + laps.window;
            let lap = self.band(region).start_lap((region, band), tile, due)?;
            laps.running.push_back(lap);
            laps.slot += 1;
        }
    }
}
