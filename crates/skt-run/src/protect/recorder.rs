//! One recorder of a run for both ways to protect it: its clock over all starts, its restarts, its
//! time limit and the time of its images.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::clock::{Clock, ClockReading, Origin};
use super::deadline::{self, Ahead, Deadline};
use super::history::{History, RESTARTS_KEPT, Taken, remember};
use super::result;
use super::segments::NodeCheckpointer;
use crate::record::{LevelFacts, Protection, Restart, Sample, TestRecord};
use skt_checkpoint::checkpoint::protocol::CheckpointError;
use skt_config::protection::Settings;
use skt_solver::comm::{Comm, CommError};
use skt_solver::pgesv::SolveError;

/// What checkpoints keep of a run's clock; the same on all ranks.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct KeptClock {
    /// Seconds of the timed part, over all starts, when this was kept.
    pub elapsed_seconds: f64,
    /// The clocks when the timed part began.
    pub origin: Origin,
    pub restarts: Vec<Restart>,
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
    deadline: Deadline,
    /// Seconds of the images of a cut, the most of any rank, when they were last measured.
    pub image_seconds: f64,
}

/// How far a run had come, at least, when a start resumes it.
pub(super) struct Known {
    /// Seconds of the run when the data was saved from which the start resumes.
    pub saved_seconds: f64,
    /// Seconds of the run that have passed in any case.
    pub seconds_min: f64,
}

impl Recorder {
    /// The recorder of a start that began at `opened` and has now opened the test. `end_unix` is
    /// the end of the job's time, in seconds since 1970.
    pub fn new(opened: Instant, clock: Clock, end_unix: Option<f64>) -> Self {
        Self {
            kept: KeptClock::default(),
            opened,
            open_seconds: opened.elapsed().as_secs_f64(),
            start: opened,
            before_seconds: 0.0,
            clock,
            deadline: Deadline { end_unix },
            image_seconds: 0.0,
        }
    }

    /// Begins the clock of this start on all ranks together, and reads the clocks of their nodes.
    /// Collective.
    pub fn begin_clock<C: Comm>(&mut self, comm: &C) -> Result<ClockReading, CommError> {
        let (at, reading) = ClockReading::together(comm, &self.clock)?;
        self.start = at;
        Ok(reading)
    }

    /// Resumes the run, and adds `restart` with its times, which this computes. Collective, when
    /// all ranks take their `reading`.
    pub fn resume<C: Comm>(
        &mut self,
        comm: &C,
        reading: &ClockReading,
        known: Known,
        restart: Restart,
    ) -> Result<(), CommError> {
        let Known { saved_seconds, seconds_min } = known;
        let here_seconds = self.start.duration_since(self.opened).as_secs_f64();
        let resumed = self.kept.origin.resume(comm, reading, seconds_min + here_seconds)?;
        self.before_seconds = resumed.elapsed_seconds;
        let start_seconds = (resumed.elapsed_seconds - here_seconds).max(seconds_min);
        let restart = Restart {
            start_seconds,
            lost_seconds: start_seconds - saved_seconds,
            recover_seconds: here_seconds,
            is_by_wall_clock: resumed.is_by_wall_clock,
            wall_clock_step_seconds: resumed.wall_clock_step_seconds,
            ..restart
        };
        remember(&mut self.kept.restarts, restart, RESTARTS_KEPT);
        Ok(())
    }

    /// Begins the timed part, or continues it: in a first start the time since its clock began does
    /// not count.
    pub fn begin_timed_part(&mut self) {
        let waited_seconds = self.start.elapsed().as_secs_f64();
        if self.kept.restarts.is_empty() {
            self.kept.origin.put_off(waited_seconds);
        } else {
            self.before_seconds += waited_seconds;
        }
        self.start = Instant::now();
    }

    /// Seconds of the run.
    pub fn seconds(&self) -> f64 {
        self.before_seconds + self.start.elapsed().as_secs_f64()
    }

    /// The restart that this start is, if it is one.
    pub fn restart(&self) -> Option<&Restart> {
        self.kept.restarts.last()
    }

    /// Seconds of the run when the matrix of order `n` was factored, if this start found it so:
    /// those of the checkpoint from which it continued, and restarts before it, if they came no
    /// further.
    pub fn factored_seconds(&self, n: usize) -> Option<f64> {
        let since = self.kept.restarts.iter().rev().take_while(|restart| restart.column == n);
        since.last().map(|restart| restart.start_seconds - restart.lost_seconds)
    }

    fn now_unix(&self) -> f64 {
        (self.clock)().unix_seconds
    }

    /// Whether the time of the job is limited.
    pub fn is_limited(&self) -> bool {
        self.deadline.end_unix.is_some()
    }

    /// Whether the time of the job is over, by the clock of this node: see [`Deadline::is_over`].
    pub fn is_over(&self, ahead: &Ahead) -> bool {
        self.deadline.is_over(self.now_unix(), ahead)
    }

    /// Seconds after which to check the time again: see [`Deadline::look_after`].
    pub fn look_after(&self, ahead: &Ahead, learns: bool) -> f64 {
        self.deadline.look_after(self.now_unix(), ahead, learns)
    }

    /// Waits until the images of all levels are complete. Returns the error that stops the run
    /// before column `column`. Collective.
    pub fn stop<C: Comm>(
        &self,
        checkpointer: &mut NodeCheckpointer<C>,
        settings: &Settings,
        column: usize,
    ) -> Result<SolveError, CheckpointError> {
        let whole = checkpointer.finish_images()?;
        let left = self.deadline.seconds_left(self.now_unix());
        Ok(deadline::time_up(column, &settings.levels, &whole, left))
    }

    /// The facts that every protection reports; all others are as without checkpoints.
    pub fn protection<C: Comm>(
        &self,
        checkpointer: &NodeCheckpointer<C>,
        settings: &Settings,
    ) -> Protection {
        Protection {
            method: settings.method.to_string(),
            run_id: settings.run_id.clone(),
            segment_bytes: checkpointer.segment_bytes() as u64,
            open_seconds: self.open_seconds,
            restarts: self.kept.restarts.clone(),
            levels: checkpointer.level_reports().into_iter().map(LevelFacts::from).collect(),
            ..Protection::default()
        }
    }

    /// The bytes of the result of a test, at most `capacity_bytes`: its record, with the samples of
    /// this start and the events since the first one.
    pub fn result(
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
