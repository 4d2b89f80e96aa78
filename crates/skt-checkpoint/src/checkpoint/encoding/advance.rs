//! The encoding of an epoch, advanced step by step in the order of the schedule.

use std::mem;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use super::Encoding;
use crate::checkpoint::encode::ring::Rounds;
use crate::checkpoint::encode::{Encoder, TAG_READY, TAG_SUMS};
use crate::checkpoint::error::Result;
use crate::checkpoint::gathered::shared_block;
use crate::checkpoint::hook::{Step, StepName};

use crate::checkpoint::schedule::{
    EncodeMode, EncodingSchedule, Polled, ReadyCounts, Stats, Unit, units_of,
};
use crate::checkpoint::segment::OwnSegment;
use crate::tuning::TUNING;
use skt_comm::{PageBuf, RecvRequest, Tag};
use skt_store::layout::Active;

/// A buffer for a count, one number.
fn word() -> skt_comm::Result<PageBuf> {
    PageBuf::for_messages(1)
}

impl Encoding {
    /// Encodes the active part of A, all of which is final, without a pause.
    pub(crate) fn encode_all(
        &mut self,
        segment: &mut OwnSegment,
        epoch: u64,
        active: &[Active],
        stats: &mut Stats,
    ) -> Result<()> {
        let start = Instant::now();
        let schedule = self.start(segment, epoch, active, None)?;
        stats.encode_seconds += start.elapsed().as_secs_f64();
        self.finish(segment, schedule, stats)
    }

    /// Starts the encoding of an epoch's active part, which becomes final in `stages`; `None` if
    /// everything is final now.
    pub(crate) fn start(
        &mut self,
        segment: &mut OwnSegment,
        epoch: u64,
        active: &[Active],
        stages: Option<&[Vec<Active>]>,
    ) -> Result<EncodingSchedule> {
        segment.step(Step::new(StepName::Encode, epoch))?;
        let mut units = Vec::new();
        let mut mirrors = true;
        for (region, active) in active.iter().enumerate() {
            mirrors &= self.view(segment, region).can_mirror(active.byte);
            let stages = stages.map_or(&[][..], |stages| &stages[region]);
            let stripes = &segment.layout().regions[region].stripes;
            units.extend(units_of(region, stripes, *active, stages));
        }
        self.gathered.clear(self.group.size());
        let at_once = stages.is_none();
        let way = match self.encoder {
            Encoder::Direct => EncodeMode::ReadyCounts(self.start_ready_counts(units.len())?),
            Encoder::Ring if at_once && !mirrors => {
                EncodeMode::Rounds(Rounds::new(TUNING.tiles_in_flight, self.message_bytes))
            }
            Encoder::Ring if !at_once => {
                // More messages in transit need progressing less often; shorter messages make a
                // poll shorter.
                let in_flight_bytes = self.in_flight_bytes;
                let message_bytes = self.message_bytes.min(in_flight_bytes / 16).max(1);
                let window = (in_flight_bytes / message_bytes).max(TUNING.tiles_in_flight);
                EncodeMode::Rounds(Rounds::new(window, message_bytes))
            }
            _ => EncodeMode::Whole,
        };
        let ready = if at_once { units.len() } else { 0 };
        Ok(EncodingSchedule { epoch, units, begun: 0, ready, way })
    }

    /// Completes an encoding whose rows are all final here.
    pub(crate) fn finish(
        &mut self,
        segment: &mut OwnSegment,
        mut schedule: EncodingSchedule,
        stats: &mut Stats,
    ) -> Result<()> {
        let start = Instant::now();
        let left = self.advance(segment, &mut schedule, true)?;
        assert_eq!(left, Polled::Done, "all rows are ready, and it has waited");
        self.exchange_sums(segment, &schedule)?;
        stats.encoded_bytes += self.encoded_bytes(segment, &schedule);
        stats.encode_seconds += start.elapsed().as_secs_f64();
        Ok(())
    }

    /// Does what can be done now. With `all_ready` (this member's rows are all final) waits for the
    /// rest.
    pub(crate) fn advance(
        &mut self,
        segment: &mut OwnSegment,
        schedule: &mut EncodingSchedule,
        all_ready: bool,
    ) -> Result<Polled> {
        if all_ready {
            schedule.ready = schedule.units.len();
        }
        let mut way = mem::replace(&mut schedule.way, EncodeMode::Whole);
        let done = match &mut way {
            EncodeMode::ReadyCounts(counts) => {
                self.advance_ready_counts(segment, schedule, counts, all_ready)?
            }
            EncodeMode::Rounds(rounds) => {
                self.advance_rounds(segment, schedule, rounds, all_ready)?
            }
            EncodeMode::Whole => {
                if all_ready {
                    self.encode_units(segment, schedule, schedule.units.len())?;
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
    fn encoded_bytes(&self, segment: &OwnSegment, schedule: &EncodingSchedule) -> usize {
        let bytes = |unit: &Unit| {
            let stripes = segment.layout().regions[unit.region].stripes;
            stripes.band(unit.band).len() * unit.bytes.len()
        };
        schedule.units.iter().map(bytes).sum()
    }

    fn encode_units(
        &mut self,
        segment: &mut OwnSegment,
        schedule: &mut EncodingSchedule,
        end: usize,
    ) -> Result<()> {
        let (encoder, epoch) = (self.encoder, schedule.epoch);
        let set = self.method.encoded(epoch);
        while schedule.begun < end {
            let Unit { region, band, bytes } = schedule.units[schedule.begun].clone();
            let step = Step::new(StepName::Encode, epoch).band(region, band);
            let areas = &segment.layout().regions[region];
            let cells = areas.parities(set).cells(&bytes);
            self.gathered.open(&areas.stripes, self.group.rank(), band, cells);
            self.view(segment, region).encode(encoder, set, band, bytes, step)?;
            schedule.begun += 1;
        }
        Ok(())
    }

    /// Sends each member the checksums that others computed from its data, if they read it in place
    /// or received it unchanged; otherwise each member has computed its own. Collective over the
    /// group.
    fn exchange_sums(
        &mut self,
        segment: &mut OwnSegment,
        schedule: &EncodingSchedule,
    ) -> Result<()> {
        let is_read_by_others = match (&schedule.way, self.encoder) {
            (EncodeMode::ReadyCounts(_), _) | (EncodeMode::Whole, Encoder::Ring) => true,
            (EncodeMode::Rounds(_), _) | (EncodeMode::Whole, _) => false,
        };
        if !is_read_by_others {
            return Ok(());
        }
        segment.step(Step::new(StepName::Sums, schedule.epoch))?;
        let (me, size) = (self.group.rank(), self.group.size());
        let others: Vec<usize> = (0..size).filter(|&member| member != me).collect();
        let length = |keeper: &usize| {
            let sums = |unit: &Unit| {
                let (rows, cells) = self.rows_and_cells(segment, unit, *keeper, schedule.epoch);
                rows.len() * cells.len()
            };
            schedule.units.iter().map(sums).sum::<usize>()
        };
        let mut theirs: Vec<Vec<u64>> = others.iter().map(|m| vec![0; length(m)]).collect();
        let sends: Vec<(&[u8], usize, Tag)> = (others.iter())
            .map(|&member| (bytemuck::cast_slice(self.gathered.member(member)), member, TAG_SUMS))
            .collect();
        let mut recvs: Vec<(&mut [u8], usize, Tag)> = (others.iter().zip(&mut theirs))
            .map(|(&member, sums)| (bytemuck::cast_slice_mut(sums), member, TAG_SUMS))
            .collect();
        self.group.exchange_bytes(&sends, &mut recvs)?;
        for (keeper, sums) in others.into_iter().zip(theirs) {
            let mut rest = &sums[..];
            for unit in &schedule.units {
                let (rows, cells) = self.rows_and_cells(segment, unit, keeper, schedule.epoch);
                let areas = &segment.layout().regions[unit.region];
                let data = areas.data(areas.a, self.method.encoded(schedule.epoch));
                for row in rows {
                    let (of_row, tail) = rest.split_at(cells.len());
                    segment.vault.set_sums(&data, row, cells.start, of_row);
                    rest = tail;
                }
            }
        }
        Ok(())
    }

    /// The rows and cells of this member's data in a unit whose checksums `keeper` computes.
    fn rows_and_cells(
        &self,
        segment: &OwnSegment,
        unit: &Unit,
        keeper: usize,
        epoch: u64,
    ) -> (Range<usize>, Range<usize>) {
        let areas = &segment.layout().regions[unit.region];
        let block = shared_block(areas.stripes.geometry, self.group.rank(), keeper);
        let rows = block.map_or(0..0, |block| areas.stripes.block(unit.band, block));
        let cells = areas.parities(self.method.encoded(epoch)).cells(&unit.bytes);
        (rows, cells)
    }

    fn start_ready_counts(&mut self, units: usize) -> Result<ReadyCounts> {
        let (me, size) = (self.group.rank(), self.group.size());
        let mut theirs = Vec::with_capacity(size);
        for member in 0..size {
            let listens = member != me && units > 0;
            let coming = if listens { Some(self.listen(None, member)?) } else { None };
            theirs.push((if listens { 0 } else { units }, coming));
        }
        Ok(ReadyCounts { reported: 0, sent: Vec::new(), theirs })
    }

    fn listen(&self, buffer: Option<PageBuf>, member: usize) -> Result<Box<dyn RecvRequest>> {
        let buffer = buffer.map_or_else(word, Ok)?;
        Ok(self.group.irecv(buffer, 0..1, member, TAG_READY)?)
    }

    fn advance_ready_counts(
        &mut self,
        segment: &mut OwnSegment,
        schedule: &mut EncodingSchedule,
        counts: &mut ReadyCounts,
        wait: bool,
    ) -> Result<Polled> {
        let units = schedule.units.len();
        self.report_ready(segment, schedule.ready, counts)?;
        for member in 0..counts.theirs.len() {
            self.receive_ready(member, counts, units, false)?;
        }
        loop {
            let least = counts.theirs.iter().map(|(ready, _)| *ready).min().unwrap_or(units);
            // The data that members wrote before they called it ready is visible after this.
            segment.vault.order();
            let end = if wait { least } else { least.min(schedule.begun + 1) };
            self.encode_units(segment, schedule, end)?;
            if end < least {
                return Ok(Polled::More);
            }
            if least == units || !wait {
                break;
            }
            let late = counts.theirs.iter().position(|(ready, _)| *ready == least);
            self.receive_ready(late.expect("the least of them"), counts, units, true)?;
        }
        if schedule.begun < units || schedule.ready < units {
            return Ok(Polled::Idle);
        }
        while let Some(mut send) = counts.sent.pop() {
            if wait {
                send.wait()?;
            } else if !send.test()? {
                counts.sent.push(send);
                return Ok(Polled::Waiting);
            }
        }
        Ok(Polled::Done)
    }

    /// Sends the others the number of units that are ready here, if that has changed.
    fn report_ready(
        &mut self,
        segment: &OwnSegment,
        ready: usize,
        counts: &mut ReadyCounts,
    ) -> Result<()> {
        if ready == counts.reported {
            return Ok(());
        }
        counts.reported = ready;
        segment.vault.order();
        let mut word = word()?;
        // A number as a double: a transport of doubles need not preserve other bit patterns.
        word[0] = ready as f64;
        let word = Arc::new(word);
        let me = self.group.rank();
        for member in (0..self.group.size()).filter(|&member| member != me) {
            counts.sent.push(self.group.isend(word.clone(), 0..1, member, TAG_READY)?);
        }
        Ok(())
    }

    /// Reads a member's counts that have arrived; with `wait`, waits for at least one.
    fn receive_ready(
        &mut self,
        member: usize,
        counts: &mut ReadyCounts,
        units: usize,
        mut wait: bool,
    ) -> Result<()> {
        while let (ready, Some(mut word)) = mem::take(&mut counts.theirs[member]) {
            if !wait && !word.test()? {
                counts.theirs[member] = (ready, Some(word));
                return Ok(());
            }
            let word = word.wait()?;
            wait = false;
            let ready = word[0] as usize;
            // The last count is that of all units: no other follows.
            let next = if ready < units { Some(self.listen(Some(word), member)?) } else { None };
            let is_last = next.is_none();
            counts.theirs[member] = (ready, next);
            if is_last {
                return Ok(());
            }
        }
        // No count is pending.
        counts.theirs[member] = (units, None);
        Ok(())
    }

    fn advance_rounds(
        &mut self,
        segment: &mut OwnSegment,
        schedule: &mut EncodingSchedule,
        rounds: &mut Rounds,
        wait: bool,
    ) -> Result<Polled> {
        let set = self.method.encoded(schedule.epoch);
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
                if let Some(mut round) = self.view(segment, round.region).turn(round, set, step)? {
                    round.due += rounds.window;
                    rounds.running.insert(at, round);
                }
            }
            if rounds.tiles.is_empty() && schedule.begun < schedule.units.len() {
                if schedule.begun == schedule.ready {
                    return Ok(if rounds.are_here()? { Polled::Idle } else { Polled::Waiting });
                }
                let Unit { region, band, bytes } = schedule.units[schedule.begun].clone();
                segment.step(Step::new(StepName::Encode, schedule.epoch).band(region, band))?;
                rounds.tiles =
                    self.view(segment, region).ring_tiles(band, bytes, rounds.message_bytes).into();
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
            let round = self.view(segment, region).start_round(region, band, tile, set, due)?;
            rounds.running.push_back(round);
            rounds.slot += 1;
        }
    }
}
