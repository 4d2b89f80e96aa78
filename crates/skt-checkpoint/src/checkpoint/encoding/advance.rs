use std::time::Instant;

use super::Encoding;
use crate::checkpoint::encode::ring::Rounds;
use crate::checkpoint::error::Result;
use crate::checkpoint::hook::{Step, StepName};
use crate::checkpoint::schedule::{EncodingSchedule, Polled, Stats, Unit, units_of};
use crate::checkpoint::segment::OwnSegment;
use crate::tuning::TUNING;
use skt_store::layout::Active;

impl Encoding {
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

    /// The active part becomes final in `stages`; `None` if everything is final now.
    pub(crate) fn start(
        &self,
        segment: &OwnSegment,
        epoch: u64,
        active: &[Active],
        stages: Option<&[Vec<Active>]>,
    ) -> Result<EncodingSchedule> {
        segment.step(Step::new(StepName::Encode, epoch))?;
        let mut units = Vec::new();
        for (region, active) in active.iter().enumerate() {
            let stages = stages.map_or(&[][..], |stages| &stages[region]);
            let stripes = &segment.layout.regions[region].stripes;
            units.extend(units_of(region, stripes, *active, stages));
        }
        let (ready, rounds) = if stages.is_none() {
            (units.len(), Rounds::new(TUNING.tiles_in_flight, self.message_bytes))
        } else {
            // More messages in transit need progressing less often; shorter messages make a poll
            // shorter.
            let in_flight_bytes = self.in_flight_bytes;
            let message_bytes = self.message_bytes.min(in_flight_bytes / 16).max(1);
            let window = (in_flight_bytes / message_bytes).max(TUNING.tiles_in_flight);
            (0, Rounds::new(window, message_bytes))
        };
        Ok(EncodingSchedule { epoch, units, begun: 0, ready, rounds })
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
        let bytes = |unit: &Unit| {
            let stripes = segment.layout.regions[unit.region].stripes;
            stripes.band(unit.band).len() * unit.bytes.len()
        };
        stats.encoded_bytes += schedule.units.iter().map(bytes).sum::<usize>();
        stats.encode_seconds += start.elapsed().as_secs_f64();
        Ok(())
    }

    /// Does what can be done now; with `all_ready`, all rows being final here, waits for the rest.
    pub(crate) fn advance(
        &mut self,
        segment: &mut OwnSegment,
        schedule: &mut EncodingSchedule,
        all_ready: bool,
    ) -> Result<Polled> {
        let EncodingSchedule { epoch, units, begun, ready, rounds } = schedule;
        let (set, step) = (self.method.encoded(*epoch), Step::new(StepName::Encode, *epoch));
        if all_ready {
            *ready = units.len();
        }
        let mut turns = 0;
        loop {
            while let Some(at) = rounds.due() {
                let round = &mut rounds.running[at];
                if !all_ready && !round.is_here()? {
                    return Ok(Polled::Waiting);
                }
                if !all_ready && turns == TUNING.tiles_a_poll {
                    return Ok(Polled::More);
                }
                turns += 1;
                let round = rounds.running.remove(at).expect("it is due");
                let (region, step) = (round.region, step.band(round.region, round.band));
                if let Some(mut round) = self.view(segment, region).turn(round, set, step)? {
                    round.due += rounds.window;
                    rounds.running.insert(at, round);
                }
            }
            if rounds.tiles.is_empty() && *begun < units.len() {
                if begun == ready {
                    return Ok(if rounds.are_here()? { Polled::Idle } else { Polled::Waiting });
                }
                let Unit { region, band, bytes } = units[*begun].clone();
                segment.step(step.band(region, band))?;
                if self.code.parities() == 0 {
                    self.view(segment, region).sum_alone(set, band, &bytes);
                } else {
                    let view = self.view(segment, region);
                    rounds.tiles = view.tiles(band, bytes, rounds.message_bytes).into();
                }
                *begun += 1;
            }
            if !all_ready && turns == TUNING.tiles_a_poll {
                return Ok(Polled::More);
            }
            turns += 1;
            let Some(tile) = rounds.tiles.pop_front() else {
                match rounds.running.iter().map(|round| round.due).min() {
                    Some(due) => rounds.slot = due,
                    // A band may have nothing to encode.
                    None if *begun < units.len() => {}
                    None => return Ok(Polled::Done),
                }
                continue;
            };
            let Unit { region, band, .. } = units[*begun - 1];
            let due = rounds.slot + rounds.window;
            let round = self.view(segment, region).start_round(region, band, tile, set, due)?;
            rounds.running.push_back(round);
            rounds.slot += 1;
        }
    }
}
