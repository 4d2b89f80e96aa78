//! One recorder of a run for both ways to protect it: its clock over all starts, its restarts, its
//! time limit and the time of its images.

use std::time::Instant;

use serde::{Deserialize, Serialize};
use skt_host::phases::Interruptions;

use super::chosen::Chosen;
use super::clock::{Clock, ClockReading, Origin};
use super::deadline::TimeLeft;
use super::history::{History, RESTARTS_KEPT, Taken, remember};
use super::result;
use crate::record::{Protection, RefinementStep, Restart, Sample, TestRecord};
use skt_checkpoint::checkpoint::level::LevelReport;
use skt_checkpoint::checkpoint::protocol::{CheckpointError, Checkpointer};
use skt_comm::{Comm, CommError};
use skt_config::protection::Settings;
use skt_solver::pgesv::SolveError;

/// What checkpoints keep of a run's clock; the same on all ranks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct KeptClock {
    /// Columns that are eliminated; `skt-hpl store list` prints them.
    pub column: usize,
    /// Seconds of the timed part, over all starts, when this was kept.
    pub elapsed_seconds: f64,
    /// The clocks when the timed part began.
    pub origin: Origin,
    pub restarts: Vec<Restart>,
    /// What losses have cost so far. [`super::guard`] and [`super::abft`] keep it in their ways.
    #[serde(skip)]
    pub interruptions: Interruptions,
    /// What this start has chosen.
    pub chosen: Chosen,
}

/// Records a run, on one rank in one start.
pub(super) struct Recorder {
    pub kept: KeptClock,
    /// When this start began to open the test.
    opened: Instant,
    /// Seconds it took to open the test.
    open_seconds: f64,
    /// When the clock of this start began.
    pub start: Instant,
    /// Seconds of the run when the clock of this start began.
    pub before_seconds: f64,
    clock: Clock,
    /// The end of the job's time, in seconds since 1970, if it is limited.
    end_unix: Option<f64>,
    /// Seconds of the images of a cut, the most of any rank, when they were last measured.
    pub image_seconds: f64,
}

/// How far a run had come, at least, when a start resumes it.
pub(super) struct Known {
    /// Seconds of the run when the data was saved from which the start resumes.
    pub saved_seconds: f64,
    /// Seconds of the run at the last sign of life of the start before this one, if one is known.
    pub last_seconds: f64,
    /// Seconds of the run that have passed in any case.
    pub seconds_min: f64,
}

impl Recorder {
    /// The recorder of a start that began at `opened` and has now opened the test. `end_unix` is
    /// the end of the job's time, in seconds since 1970.
    pub(crate) fn new(
        opened: Instant,
        clock: Clock,
        end_unix: Option<f64>,
        chosen: Chosen,
    ) -> Self {
        Self {
            kept: KeptClock { chosen, ..KeptClock::default() },
            opened,
            open_seconds: opened.elapsed().as_secs_f64(),
            start: opened,
            before_seconds: 0.0,
            clock,
            end_unix,
            image_seconds: 0.0,
        }
    }

    /// Begins the clock of this start on all ranks together, and reads the clocks of their nodes.
    /// Collective.
    pub(crate) fn begin_clock(&mut self, comm: &Comm) -> Result<ClockReading, CommError> {
        let (at, reading) = ClockReading::together(comm, &self.clock)?;
        self.start = at;
        Ok(reading)
    }

    /// Resumes the run, and adds `restart` with its times, which this computes. Collective, when
    /// all ranks take their `reading`.
    pub(crate) fn resume(
        &mut self,
        comm: &Comm,
        reading: &ClockReading,
        known: Known,
        restart: Restart,
    ) -> Result<(), CommError> {
        let Known { saved_seconds, last_seconds, seconds_min } = known;
        let here_seconds = self.start.duration_since(self.opened).as_secs_f64();
        let resumed = self.kept.origin.resume(comm, reading, seconds_min + here_seconds)?;
        self.before_seconds = resumed.elapsed_seconds;
        let start_seconds = (resumed.elapsed_seconds - here_seconds).max(seconds_min);
        let down_seconds = start_seconds - last_seconds.min(start_seconds).max(saved_seconds);
        let interruptions = &mut self.kept.interruptions;
        let before_seconds = interruptions.seconds();
        // Restarts since the data was saved, which have saved nothing.
        for vain in self.kept.restarts.iter().filter(|it| it.start_seconds >= saved_seconds) {
            interruptions.down_seconds += vain.down_seconds;
            interruptions.recovery_seconds += vain.recover_seconds;
        }
        interruptions.down_seconds += down_seconds;
        let known_seconds = interruptions.seconds() - before_seconds;
        interruptions.lost_seconds += (start_seconds - saved_seconds - known_seconds).max(0.0);
        interruptions.recovery_seconds += resumed.elapsed_seconds - start_seconds;
        let restart = Restart {
            start_seconds,
            lost_seconds: start_seconds - saved_seconds,
            down_seconds,
            recover_seconds: here_seconds,
            is_by_wall_clock: resumed.is_by_wall_clock,
            wall_clock_step_seconds: resumed.wall_clock_step_seconds,
            ..restart
        };
        remember(&mut self.kept.restarts, restart, RESTARTS_KEPT);
        Ok(())
    }

    /// Notes a sign of life, by which a later start knows how long this one has worked.
    pub(crate) fn note_alive(&self, checkpointer: &mut Checkpointer) {
        // Bits of positive numbers are in their order.
        checkpointer.note_progress(self.seconds().to_bits());
    }

    /// Seconds of the run at the last sign of life of earlier starts, as far as a rank knows; 0 if
    /// none does. Collective.
    pub(crate) fn last_alive_seconds(checkpointer: &Checkpointer) -> Result<f64, CheckpointError> {
        Ok(f64::from_bits(checkpointer.earlier_progress()?))
    }

    /// Begins the timed part, or continues it: in a first start the time since its clock began does
    /// not count.
    pub(crate) fn begin_timed_part(&mut self) {
        let waited_seconds = self.start.elapsed().as_secs_f64();
        if self.kept.restarts.is_empty() {
            self.kept.origin.put_off(waited_seconds);
        } else {
            self.before_seconds += waited_seconds;
            self.kept.interruptions.recovery_seconds += waited_seconds;
        }
        self.start = Instant::now();
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.before_seconds + self.start.elapsed().as_secs_f64()
    }

    /// The restart that this start is, if it is one.
    pub(crate) fn restart(&self) -> Option<&Restart> {
        self.kept.restarts.last()
    }

    /// Seconds of the run when the matrix of order `n` was factored, if this start found it so:
    /// those of the checkpoint from which it continued, and restarts before it, if they came no
    /// further.
    pub(crate) fn factored_seconds(&self, n: usize) -> Option<f64> {
        let since = self.kept.restarts.iter().rev().take_while(|restart| restart.column == n);
        since.last().map(|restart| restart.start_seconds - restart.lost_seconds)
    }

    /// Seconds that this start has worked since its last checkpoint, if it has taken one.
    pub(crate) fn unsaved_seconds(&self) -> f64 {
        self.seconds() - self.kept.elapsed_seconds.max(self.before_seconds)
    }

    /// Seconds of a correction in the last of these steps of a refinement, without the time between
    /// two starts; `factor_seconds` of the run had passed when the refinement began.
    pub(crate) fn correction_seconds(
        &self,
        factor_seconds: f64,
        steps: &[RefinementStep],
    ) -> Option<f64> {
        let (last, before) = steps.split_last()?;
        let begun_seconds = before.last().map_or(factor_seconds, |step| step.end_seconds);
        let starts = self.kept.restarts.iter().map(|restart| restart.start_seconds);
        let begun_seconds =
            starts.filter(|&start| start < last.end_seconds).fold(begun_seconds, f64::max);
        Some((last.end_seconds - begun_seconds) / last.corrections as f64)
    }

    /// Whether the time of the job is limited.
    pub(crate) fn is_limited(&self) -> bool {
        self.end_unix.is_some()
    }

    /// The time that the job has left, by the clock of this node.
    pub(crate) fn time_left(&self) -> TimeLeft {
        let left_seconds = |end_unix| end_unix - (self.clock)().unix_seconds;
        TimeLeft(self.end_unix.map_or(f64::INFINITY, left_seconds))
    }

    /// Waits until the images of all levels are complete. Returns the error that stops the run
    /// before column `column`. Collective.
    pub(crate) fn stop(
        &self,
        checkpointer: &mut Checkpointer,
        settings: &Settings,
        column: usize,
    ) -> Result<SolveError, CheckpointError> {
        let whole = checkpointer.finish_images()?;
        Ok(self.time_left().time_up(column, &settings.levels, &whole))
    }

    /// The facts that every protection reports; all others are those of `known`.
    pub(crate) fn protection(
        &self,
        checkpointer: &Checkpointer,
        settings: &Settings,
        known: Protection,
    ) -> Protection {
        Protection {
            method: settings.method.to_string(),
            run_id: settings.run_id.clone(),
            segment_bytes: checkpointer.segment_bytes() as u64,
            open_seconds: self.open_seconds,
            restarts: self.kept.restarts.clone(),
            levels: checkpointer.level_reports().into_iter().map(reported).collect(),
            ..known
        }
    }

    /// The bytes of the result of a test, at most `capacity_bytes`: its record, with the samples of
    /// this start and the events since the first one.
    pub(crate) fn result(
        &self,
        mut record: TestRecord,
        taken: Vec<Taken>,
        samples: &[Sample],
        capacity_bytes: usize,
    ) -> Vec<u8> {
        record.rank_bytes = record.memory.total();
        if !self.kept.restarts.is_empty() {
            // The record is of this start; the timed part began in the first one.
            record.start_unix_seconds = self.kept.origin.start_unix_seconds();
        }
        let (restarts, before_seconds) = (self.kept.restarts.clone(), self.before_seconds);
        let history = History { taken, restarts, before_seconds };
        result::write(record, samples, history, capacity_bytes)
    }
}

/// The report of a level, with a reason of bounded size if no more images are written.
fn reported(report: LevelReport) -> LevelReport {
    const CHARS_MAX: usize = 200;
    let elsewhere = || report.is_over.then(|| "a write has failed on another rank".to_owned());
    let failure = report.failure.clone().or_else(elsewhere);
    let failure = failure.map(|why| why.chars().take(CHARS_MAX).collect());
    LevelReport { failure, ..report }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skt_config::Refinement;
    use std::sync::Arc;

    #[test]
    fn correction_is_measured_without_the_time_between_starts() {
        let mut recorder =
            Recorder::new(Instant::now(), Arc::new(ClockReading::now), None, Chosen::default());
        let step = |corrections, end_seconds| {
            let refinement = Refinement::Gmres;
            RefinementStep { refinement, corrections, end_seconds, scaled_residual: 1.0 }
        };
        let steps = [step(1, 102.0), step(4, 110.0), step(2, 1009.0)];
        let seconds =
            |recorder: &Recorder, count| recorder.correction_seconds(100.0, &steps[..count]);
        let of_steps = |recorder: &Recorder| [0, 1, 2, 3].map(|count| seconds(recorder, count));
        assert_eq!(of_steps(&recorder), [None, Some(2.0), Some(2.0), Some(449.5)]);
        recorder.kept.restarts = [50.0, 1003.0, 2000.0]
            .map(|start_seconds| Restart { start_seconds, ..Restart::default() })
            .to_vec();
        assert_eq!(of_steps(&recorder), [None, Some(2.0), Some(2.0), Some(3.0)]);
    }
}
