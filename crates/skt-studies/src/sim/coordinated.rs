//! All nodes checkpoint at once: to stable storage, or in memory with groups and parities.
//!
//! Rules: work runs at full speed for `interval_seconds`, then a checkpoint takes C seconds in
//! which work continues at alpha. A completed checkpoint holds the state at its start. A failure,
//! at any time, costs the downtime and the recovery, which start over when another failure strikes;
//! then work continues from the last completed checkpoint. (Bosilca et al., RR-7950, section 3.2.)

use super::failure::FailureSource;
use super::trace::Failure;
use super::{Job, RunEnd, RunOutcome};
use crate::bosilca::WasteModel;
use skt_model::error::{fraction, non_negative, positive};
use skt_model::inmemory::InMemoryJob;
use skt_model::tang::memory::Protocol;
use skt_model::{Group, ModelError};

/// The losses that the checkpoint survives.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Protection {
    /// Stable storage: no loss of nodes loses data.
    Stable,
    /// Nothing: every failure sends the job back to its start.
    Nothing,
    /// The memory of groups of nodes; node i belongs to group i / n.
    Memory {
        group: Group,
        /// Whether a failure during a checkpoint loses the data (single, Tang et al., fig. 6).
        update_is_fatal: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CoordinatedJob {
    /// Work to do, in seconds of full speed.
    pub work_seconds: f64,
    /// Work at full speed between two checkpoints (W = T - C).
    pub interval_seconds: f64,
    /// C: seconds of a checkpoint.
    pub checkpoint_seconds: f64,
    /// alpha: the share of full speed at which work continues during a checkpoint.
    pub overlap_fraction: f64,
    /// D: seconds for detection and relaunch.
    pub downtime_seconds: f64,
    /// R: seconds for the recovery.
    pub recovery_seconds: f64,
    pub protection: Protection,
    /// Number of spare nodes; `None` for as many as needed.
    pub spares: Option<usize>,
    /// Whether to stop when data are lost, instead of starting the work over.
    pub stop_at_loss: bool,
    /// After the last interval, too (for formulas of infinitely long jobs).
    pub checkpoint_at_end: bool,
    /// Seconds after which the run is given up; `INFINITY` for never.
    pub limit_seconds: f64,
}

impl CoordinatedJob {
    /// A job of this many whole periods to stable storage.
    pub fn from_periods(model: &WasteModel, period_seconds: f64, periods: f64) -> Self {
        Self {
            // A little less than the last period's work: a sum of floats may end on either side.
            work_seconds: periods * model.work_seconds(period_seconds) - 1e-3,
            interval_seconds: period_seconds - model.checkpoint_seconds,
            checkpoint_seconds: model.checkpoint_seconds,
            overlap_fraction: model.overlap_fraction,
            downtime_seconds: model.downtime_seconds,
            recovery_seconds: model.recovery_seconds,
            protection: Protection::Stable,
            spares: None,
            stop_at_loss: false,
            checkpoint_at_end: true,
            limit_seconds: f64::INFINITY,
        }
    }

    /// The job that formulas describe with `job`: it ends where data are lost.
    pub fn in_memory(job: &InMemoryJob, interval_seconds: f64) -> Self {
        let update_is_fatal = job.protocol == Protocol::Single;
        Self {
            work_seconds: job.work_seconds,
            interval_seconds,
            checkpoint_seconds: job.checkpoint_seconds,
            overlap_fraction: job.overlap_fraction,
            downtime_seconds: job.downtime_seconds,
            recovery_seconds: job.recovery_seconds,
            protection: match job.protocol {
                Protocol::None => Protection::Nothing,
                _ => Protection::Memory { group: job.group, update_is_fatal },
            },
            spares: job.spares,
            stop_at_loss: true,
            checkpoint_at_end: false,
            limit_seconds: f64::INFINITY,
        }
    }

    pub(crate) fn validate(&self) -> Result<(), ModelError> {
        positive("work_seconds", self.work_seconds)?;
        if self.interval_seconds != f64::INFINITY {
            positive("interval_seconds", self.interval_seconds)?;
        }
        non_negative("checkpoint_seconds", self.checkpoint_seconds)?;
        fraction("overlap_fraction", self.overlap_fraction)?;
        non_negative("downtime_seconds", self.downtime_seconds)?;
        non_negative("recovery_seconds", self.recovery_seconds)?;
        if self.limit_seconds != f64::INFINITY {
            positive("limit_seconds", self.limit_seconds)?;
        }
        Ok(())
    }
}

impl Job for CoordinatedJob {
    fn run(&self, failures: &mut FailureSource) -> RunOutcome {
        CoordinatedRun::new(self, failures).run()
    }
}

struct CoordinatedRun<'a> {
    job: &'a CoordinatedJob,
    failures: &'a mut FailureSource,
    now: f64,
    /// Work done by the present state, in seconds.
    work: f64,
    /// Work held by the last completed checkpoint, in seconds.
    saved: f64,
    /// Work at which the next checkpoint starts, in seconds.
    next_checkpoint: f64,
    spares: Option<usize>,
    outcome: RunOutcome,
}

struct Over(RunEnd);

impl<'a> CoordinatedRun<'a> {
    fn new(job: &'a CoordinatedJob, failures: &'a mut FailureSource) -> Self {
        let outcome = RunOutcome::begun();
        Self {
            job,
            failures,
            now: 0.0,
            work: 0.0,
            saved: 0.0,
            next_checkpoint: job.interval_seconds,
            spares: job.spares,
            outcome,
        }
    }

    fn run(mut self) -> RunOutcome {
        let end = loop {
            match self.step() {
                Ok(false) => {}
                Ok(true) => break RunEnd::Finished,
                Err(Over(end)) => break end,
            }
        };
        if end == RunEnd::OutOfSpares {
            // No process is left that could continue the work.
            self.work = 0.0;
        }
        self.outcome.end = end;
        self.outcome.time_seconds = self.now;
        self.outcome.work_seconds = self.work;
        self.outcome
    }

    /// One interval and one checkpoint, or less if a failure strikes; true when all work is done.
    fn step(&mut self) -> Result<bool, Over> {
        if self.now > self.job.limit_seconds {
            return Err(Over(RunEnd::TimedOut));
        }
        let target = self.next_checkpoint.min(self.job.work_seconds);
        if let Err(failure) = self.pass(target - self.work) {
            return self.roll_back(failure, false).map(|()| false);
        }
        self.work = target;
        if self.work >= self.job.work_seconds && !self.job.checkpoint_at_end {
            return Ok(true);
        }
        self.checkpoint()?;
        Ok(self.work >= self.job.work_seconds)
    }

    fn checkpoint(&mut self) -> Result<(), Over> {
        let state = self.work;
        if let Err(failure) = self.pass(self.job.checkpoint_seconds) {
            self.outcome.failures_in_checkpoint += 1;
            return self.roll_back(failure, true);
        }
        self.outcome.checkpoints += 1;
        self.saved = state;
        self.work = state + self.job.overlap_fraction * self.job.checkpoint_seconds;
        self.next_checkpoint = self.work + self.job.interval_seconds;
        Ok(())
    }

    /// Lets time pass until `duration` is over or a node fails.
    fn pass(&mut self, duration: f64) -> Result<(), Failure> {
        self.failures.pass(&mut self.now, duration)
    }

    /// Passes downtime and recovery after `failure`, with all failures that strike during them.
    fn roll_back(&mut self, failure: Failure, in_checkpoint: bool) -> Result<(), Over> {
        let began = self.now;
        let mut lost = in_checkpoint
            && matches!(self.job.protection, Protection::Memory { update_is_fatal: true, .. });
        let mut missing = vec![failure.node];
        loop {
            // If outages outlast the MTBF, the job would stay here almost for ever.
            if self.now > self.job.limit_seconds {
                return Err(Over(RunEnd::TimedOut));
            }
            self.outcome.failures += 1;
            self.take_spare()?;
            lost |= self.beyond_repair(&missing);
            match self.pass(self.job.downtime_seconds + self.job.recovery_seconds) {
                Ok(()) => break,
                Err(next) => {
                    self.outcome.failures_in_recovery += 1;
                    if !missing.contains(&next.node) {
                        missing.push(next.node);
                    }
                }
            }
        }
        self.outcome.outage_seconds += self.now - began;
        self.work = self.saved;
        if lost { self.lose() } else { Ok(()) }
    }

    fn take_spare(&mut self) -> Result<(), Over> {
        match &mut self.spares {
            None => Ok(()),
            Some(0) => Err(Over(RunEnd::OutOfSpares)),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
        }
    }

    fn beyond_repair(&self, missing: &[usize]) -> bool {
        match self.job.protection {
            Protection::Stable => false,
            Protection::Nothing => true,
            Protection::Memory { group, .. } => {
                let last = missing.last().expect("at least one node is missing");
                let peers = missing.iter().filter(|&n| n / group.size() == last / group.size());
                peers.count() > group.parities()
            }
        }
    }

    fn lose(&mut self) -> Result<(), Over> {
        self.outcome.data_losses += 1;
        (self.work, self.saved) = (0.0, 0.0);
        self.next_checkpoint = self.job.interval_seconds;
        if self.job.stop_at_loss { Err(Over(RunEnd::DataLost)) } else { Ok(()) }
    }
}
