//! The encoding of an epoch, advanced step by step in the order of the schedule.

use std::mem;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use super::checkpointer::Checkpointer;
use super::encode::ring::Rounds;
use super::encode::{Encoder, TAG_READY, TAG_SUMS};
use super::error::Result;
use super::gathered::shared_block;
use super::hook::{Step, StepName};
use super::layout::Active;
use super::memory::Memory;
use super::schedule::{Polled, Schedule, Stats, Tokens, Unit, Way, units_of};
use crate::comm::collect::all_reduce;
use crate::comm::{Comm, PanelBuf, RecvRequest, SendRequest, Tag};
use crate::tuning::TUNING;

/// The active part and the stages in which it becomes final, by region.
type Parts = (Vec<Active>, Option<Vec<Vec<Active>>>);

/// A buffer for a token, one number.
fn word() -> crate::comm::Result<PanelBuf> {
    PanelBuf::for_messages(1)
}

impl<C: Comm, M: Memory> Checkpointer<C, M> {
    /// Declares that A has its contents of the epoch that has begun outside of the corner `outside`
    /// of a region, that is, in the rows before `outside.row` and in the bytes before
    /// `outside.byte` of all rows. Encodes nothing: [`Checkpointer::poll`] does. Has no effect when
    /// no epoch has begun.
    ///
    /// # Safety
    /// From here until [`Checkpointer::complete`] has returned nobody writes there: this process
    /// reads it, and other members of the group may read it in place.
    pub unsafe fn ready(&mut self, region: usize, outside: Active) {
        let Some(mut under_way) = self.under_way.take() else { return };
        let Active { row, byte } = &mut under_way.ready[region];
        (*row, *byte) = ((*row).max(outside.row), (*byte).max(outside.byte));
        if let Some(schedule) = &mut under_way.schedule {
            schedule.set_ready(self.segment.layout(), &under_way.ready);
        }
        self.under_way = Some(under_way);
    }

    /// Encodes some of what is ready here (on all members, if they read each other's memory), or
    /// else progresses the messages. Never waits for other ranks, and does little per call. Returns
    /// what is left to do before [`Checkpointer::complete`].
    ///
    /// # Errors
    /// [`CheckpointError::Comm`](super::error::CheckpointError::Comm) when a rank died.
    pub fn poll(&mut self) -> Result<Polled> {
        self.helper.advance();
        let Some(mut under_way) = self.under_way.take() else { return Ok(Polled::Done) };
        let start = Instant::now();
        let left = match &mut under_way.schedule {
            Some(schedule) => self.advance(schedule, false)?,
            None => Polled::Idle,
        };
        under_way.stats.encode_seconds += start.elapsed().as_secs_f64();
        self.under_way = Some(under_way);
        Ok(left)
    }

    /// The least active corners and stages of all members, rounded down to whole cells. Everything
    /// is active if there is no copy yet. Collective over the group.
    pub(super) fn agree_on_parts(
        &self,
        active: &[Active],
        stages: Option<&[Vec<Active>]>,
    ) -> Result<Parts> {
        let all = self.segment.record().stamped() == 0;
        let corners =
            active.iter().filter(|_| !all).chain(stages.iter().copied().flatten().flatten());
        let mut least: Vec<[u64; 2]> = corners.map(|a| [a.row as u64, a.byte as u64]).collect();
        if !least.is_empty() {
            all_reduce(&self.group, &mut least, |a, b| [a[0].min(b[0]), a[1].min(b[1])])?;
        }
        let least = least.into_iter();
        let cell_bytes = self.config.cell_bytes;
        let mut least = least.map(|[row, byte]| Active {
            row: row as usize,
            byte: byte as usize / cell_bytes * cell_bytes,
        });
        let mut take = |count| least.by_ref().take(count).collect::<Vec<_>>();
        let active = if all { vec![Active::ALL; active.len()] } else { take(active.len()) };
        let of_regions = |stages: &[Vec<Active>]| stages.iter().map(|s| take(s.len())).collect();
        Ok((active, stages.map(of_regions)))
    }

    /// Encodes the active part of A, all of which is final, without a pause.
    pub(super) fn encode_all(
        &mut self,
        epoch: u64,
        active: &[Active],
        stats: &mut Stats,
    ) -> Result<()> {
        let start = Instant::now();
        let schedule = self.start_encoding(epoch, active, None)?;
        stats.encode_seconds += start.elapsed().as_secs_f64();
        self.finish_encoding(schedule, stats)
    }

    /// Starts the encoding of an epoch's active part, which becomes final in `stages`; `None` if
    /// everything is final now.
    pub(super) fn start_encoding(
        &mut self,
        epoch: u64,
        active: &[Active],
        stages: Option<&[Vec<Active>]>,
    ) -> Result<Schedule<C>> {
        self.segment.step(Step::new(StepName::Encode, epoch))?;
        let mut units = Vec::new();
        let mut mirrors = true;
        for (region, active) in active.iter().enumerate() {
            mirrors &= self.band(region).can_mirror(active.byte);
            let stages = stages.map_or(&[][..], |stages| &stages[region]);
            let stripes = &self.segment.layout().regions[region].stripes;
            units.extend(units_of(region, stripes, *active, stages));
        }
        self.gathered.clear(self.group.size());
        let at_once = stages.is_none();
        let way = match self.encoder {
            Encoder::Direct => Way::Tokens(self.start_tokens(units.len())?),
            Encoder::Ring if at_once && !mirrors => {
                Way::Rounds(Rounds::new(TUNING.tiles_in_flight, self.message_bytes))
            }
            Encoder::Ring if !at_once => {
                // More messages in transit need progressing less often; shorter messages make a
                // poll shorter.
                let in_flight_bytes = self.config.in_flight_bytes;
                let message_bytes = self.message_bytes.min(in_flight_bytes / 16).max(1);
                let window = (in_flight_bytes / message_bytes).max(TUNING.tiles_in_flight);
                Way::Rounds(Rounds::new(window, message_bytes))
            }
            _ => Way::Whole,
        };
        let ready = if at_once { units.len() } else { 0 };
        Ok(Schedule { epoch, units, begun: 0, ready, way })
    }

    /// Completes an encoding whose rows are all final here.
    pub(super) fn finish_encoding(
        &mut self,
        mut schedule: Schedule<C>,
        stats: &mut Stats,
    ) -> Result<()> {
        let start = Instant::now();
        let left = self.advance(&mut schedule, true)?;
        assert_eq!(left, Polled::Done, "all rows are ready, and it has waited");
        self.exchange_sums(&schedule)?;
        stats.encoded_bytes += self.encoded_bytes(&schedule);
        stats.encode_seconds += start.elapsed().as_secs_f64();
        Ok(())
    }

    /// Does what can be done now. With `all_ready` (this member's rows are all final) waits for the
    /// rest.
    fn advance(&mut self, schedule: &mut Schedule<C>, all_ready: bool) -> Result<Polled> {
        if all_ready {
            schedule.ready = schedule.units.len();
        }
        let mut way = mem::replace(&mut schedule.way, Way::Whole);
        let done = match &mut way {
            Way::Tokens(tokens) => self.advance_tokens(schedule, tokens, all_ready)?,
            Way::Rounds(rounds) => self.advance_rounds(schedule, rounds, all_ready)?,
            Way::Whole => {
                if all_ready {
                    self.encode_units(schedule, schedule.units.len())?;
                    Polled::Done
                } else {
                    Polled::Idle
                }
            }
        };
        schedule.way = way;
        Ok(done)
    }

    /// Bytes of A that an encoding covers on this member.
    fn encoded_bytes(&self, schedule: &Schedule<C>) -> usize {
        let bytes = |unit: &Unit| {
            let stripes = self.segment.layout().regions[unit.region].stripes;
            stripes.band(unit.band).len() * unit.bytes.len()
        };
        schedule.units.iter().map(bytes).sum()
    }

    fn encode_units(&mut self, schedule: &mut Schedule<C>, end: usize) -> Result<()> {
        let (encoder, epoch) = (self.encoder, schedule.epoch);
        let set = self.config.method.encoded(epoch);
        while schedule.begun < end {
            let Unit { region, band, bytes } = schedule.units[schedule.begun].clone();
            let step = Step::new(StepName::Encode, epoch).band(region, band);
            let parts = &self.segment.layout().regions[region];
            let cells = parts.parities(set).cells(&bytes);
            self.gathered.open(&parts.stripes, self.group.rank(), band, cells);
            self.band(region).encode(encoder, set, band, bytes, step)?;
            schedule.begun += 1;
        }
        Ok(())
    }

    /// Sends members the checksums that others computed from their data, where these read it in
    /// place or received it unchanged; otherwise each member has computed its own. Collective over
    /// the group.
    fn exchange_sums(&mut self, schedule: &Schedule<C>) -> Result<()> {
        let is_read_by_others = match (&schedule.way, self.encoder) {
            (Way::Tokens(_), _) | (Way::Whole, Encoder::Ring) => true,
            (Way::Rounds(_), _) | (Way::Whole, _) => false,
        };
        if !is_read_by_others {
            return Ok(());
        }
        self.segment.step(Step::new(StepName::Sums, schedule.epoch))?;
        let (me, size) = (self.group.rank(), self.group.size());
        let others: Vec<usize> = (0..size).filter(|&member| member != me).collect();
        let length = |keeper: &usize| {
            let sums = |unit: &Unit| {
                let (rows, cells) = self.rows_and_cells(unit, *keeper, schedule.epoch);
                rows.len() * cells.len()
            };
            schedule.units.iter().map(sums).sum::<usize>()
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
            for unit in &schedule.units {
                let (rows, cells) = self.rows_and_cells(unit, keeper, schedule.epoch);
                let parts = &self.segment.layout().regions[unit.region];
                let data = parts.data(parts.a, self.config.method.encoded(schedule.epoch));
                for row in rows {
                    let (of_row, tail) = rest.split_at(cells.len());
                    self.segment.set_sums(&data, row, cells.start, of_row);
                    rest = tail;
                }
            }
        }
        Ok(())
    }

    /// The rows and cells of this member's data in a unit whose checksums `keeper` computes.
    fn rows_and_cells(
        &self,
        unit: &Unit,
        keeper: usize,
        epoch: u64,
    ) -> (Range<usize>, Range<usize>) {
        let parts = &self.segment.layout().regions[unit.region];
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
        schedule: &mut Schedule<C>,
        tokens: &mut Tokens<C>,
        wait: bool,
    ) -> Result<Polled> {
        let units = schedule.units.len();
        self.tell(schedule.ready, tokens)?;
        for member in 0..tokens.theirs.len() {
            self.hear(member, tokens, units, false)?;
        }
        loop {
            let least = tokens.theirs.iter().map(|(ready, _)| *ready).min().unwrap_or(units);
            // What they wrote before they called it ready is visible after this.
            self.segment.order();
            let end = if wait { least } else { least.min(schedule.begun + 1) };
            self.encode_units(schedule, end)?;
            if end < least {
                return Ok(Polled::More);
            }
            if least == units || !wait {
                break;
            }
            let late = tokens.theirs.iter().position(|(ready, _)| *ready == least);
            self.hear(late.expect("the least of them"), tokens, units, true)?;
        }
        if schedule.begun < units || schedule.ready < units {
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

    /// Tells the others how many units are ready here, if that has changed.
    fn tell(&mut self, ready: usize, tokens: &mut Tokens<C>) -> Result<()> {
        if ready == tokens.told {
            return Ok(());
        }
        tokens.told = ready;
        self.segment.order();
        let mut word = word()?;
        // A number as a double: a transport of doubles need not preserve other bit patterns.
        word[0] = ready as f64;
        let word = Arc::new(word);
        let me = self.group.rank();
        for member in (0..self.group.size()).filter(|&member| member != me) {
            tokens.sent.push(self.group.isend(word.clone(), 0..1, member, TAG_READY)?);
        }
        Ok(())
    }

    /// Reads a member's tokens that have arrived; with `wait`, waits for at least one.
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
            let ready = word[0] as usize;
            // The last token says that all units are ready: no other follows.
            let next = if ready < units { Some(self.listen(Some(word), member)?) } else { None };
            let is_last = next.is_none();
            tokens.theirs[member] = (ready, next);
            if is_last {
                return Ok(());
            }
        }
        // No token is pending.
        tokens.theirs[member] = (units, None);
        Ok(())
    }

    fn advance_rounds(
        &mut self,
        schedule: &mut Schedule<C>,
        rounds: &mut Rounds<C>,
        wait: bool,
    ) -> Result<Polled> {
        let set = self.config.method.encoded(schedule.epoch);
        let mut turns = 0;
        loop {
            while let Some(at) = rounds.due() {
                let round = &mut rounds.running[at];
                if !wait && !round.is_here()? {
                    return Ok(Polled::Waiting);
                }
                if !wait && turns == TUNING.tiles_a_poll {
                    return Ok(Polled::More);
                }
                turns += 1;
                let round = rounds.running.remove(at).expect("it is due");
                let step =
                    Step::new(StepName::Encode, schedule.epoch).band(round.region, round.band);
                if let Some(mut round) = self.band(round.region).turn(round, set, step)? {
                    round.due += rounds.window;
                    rounds.running.insert(at, round);
                }
            }
            if rounds.tiles.is_empty() && schedule.begun < schedule.units.len() {
                if schedule.begun == schedule.ready {
                    return Ok(if rounds.are_here()? { Polled::Idle } else { Polled::Waiting });
                }
                let Unit { region, band, bytes } = schedule.units[schedule.begun].clone();
                self.segment
                    .step(Step::new(StepName::Encode, schedule.epoch).band(region, band))?;
                rounds.tiles =
                    self.band(region).ring_tiles(band, bytes, rounds.message_bytes).into();
                schedule.begun += 1;
            }
            if !wait && turns == TUNING.tiles_a_poll {
                return Ok(Polled::More);
            }
            turns += 1;
            let Some(tile) = rounds.tiles.pop_front() else {
                match rounds.running.iter().map(|round| round.due).min() {
                    Some(due) => rounds.slot = due,
                    // A band may have nothing to encode.
                    None if schedule.begun < schedule.units.len() => {}
                    None => return Ok(Polled::Done),
                }
                continue;
            };
            let Unit { region, band, .. } = schedule.units[schedule.begun - 1];
            let due = rounds.slot + rounds.window;
            let round = self.band(region).start_round((region, band), tile, set, due)?;
            rounds.running.push_back(round);
            rounds.slot += 1;
        }
    }
}
