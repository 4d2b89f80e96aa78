//! Groups that checkpoint one after the other and roll back alone, with message logging.
//!
//! Rules (Bosilca et al., RR-7950, section 3.3): a period is T - G C of work at full speed, then G
//! checkpoints of C seconds, during which work continues at alpha. When a node of group g fails:
//! - in the work phase: the group goes back to its own last checkpoint and re-executes up to the
//!   failure, while all others wait;
//! - while group g checkpoints: it goes back to its previous checkpoint, catches up to the start of
//!   this one, and the checkpoint is taken again;
//! - while another group checkpoints: that checkpoint is completed first, during which no work
//!   progresses; then the group catches up, and the work that the rest of the checkpoint would have
//!   overlapped is done at full speed.
//!
//! Re-execution runs at rho times the speed, all work at lambda. A group that is struck again while
//! it recovers starts over; another group that is struck then recovers at the same time, and
//! all wait for the last.

use super::failure::FailureSource;
use super::trace::Failure;
use super::{Job, RunEnd, RunOutcome};
use crate::bosilca::WasteModel;
use skt_model::ModelError;
use skt_model::error::{at_least, check, positive};

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HierarchicalJob {
    pub model: WasteModel,
    /// T: seconds of a period.
    pub period_seconds: f64,
    pub periods: u64,
    /// Number of nodes; group g has the nodes i with i G / nodes = g.
    pub nodes: usize,
    /// Seconds after which the run is given up; `INFINITY` for never.
    pub limit_seconds: f64,
}

impl HierarchicalJob {
    pub fn validate(&self) -> Result<(), ModelError> {
        self.model.validate()?;
        positive("period_seconds", self.period_seconds)?;
        at_least("nodes", self.nodes, self.model.groups, "at least one node a group")?;
        let checkpoints_seconds =
            self.model.groups as f64 * self.model.grown_checkpoint_seconds(self.period_seconds);
        let has_room = checkpoints_seconds <= self.period_seconds;
        let expected = "room for the checkpoints of all groups";
        check("period_seconds", self.period_seconds, has_room, expected)?;
        Ok(())
    }
}

impl Job for HierarchicalJob {
    fn run(&self, failures: &mut FailureSource) -> RunOutcome {
        HierarchicalRun::new(self, failures).run()
    }
}

struct HierarchicalRun<'a> {
    job: &'a HierarchicalJob,
    failures: &'a mut FailureSource,
    checkpoint_seconds: f64,
    recovery_seconds: f64,
    now: f64,
    /// Progress in seconds of full speed, before the factor lambda.
    progress: f64,
    /// The progress at which the work phase of this period ends.
    work_end: f64,
    /// Work that a struck checkpoint still owes, in seconds at full speed.
    owed: f64,
    /// Number of checkpoints done in this period.
    done: usize,
    /// `work_end` of the previous period; `None` in the first period.
    previous_work_end: Option<f64>,
    outcome: RunOutcome,
}

struct TimedOut;

impl<'a> HierarchicalRun<'a> {
    fn new(job: &'a HierarchicalJob, failures: &'a mut FailureSource) -> Self {
        let outcome = RunOutcome::begun();
        let checkpoint_seconds = job.model.grown_checkpoint_seconds(job.period_seconds);
        Self {
            job,
            failures,
            checkpoint_seconds,
            recovery_seconds: job.model.grown_recovery_seconds(job.period_seconds),
            now: 0.0,
            progress: 0.0,
            work_end: job.period_seconds - job.model.groups as f64 * checkpoint_seconds,
            owed: 0.0,
            done: 0,
            previous_work_end: None,
            outcome,
        }
    }

    fn run(mut self) -> RunOutcome {
        for _ in 0..self.job.periods {
            if self.work_phase().and_then(|()| self.checkpoint_phase()).is_err() {
                self.outcome.end = RunEnd::TimedOut;
                break;
            }
        }
        self.outcome.time_seconds = self.now;
        self.outcome.work_seconds = self.job.model.logging_speed * self.progress;
        self.outcome
    }

    fn work_phase(&mut self) -> Result<(), TimedOut> {
        while self.progress < self.work_end {
            let started = self.now;
            let struck = self.pass(self.work_end - self.progress);
            match struck {
                Ok(()) => self.progress = self.work_end,
                Err(failure) => {
                    self.progress += self.now - started;
                    self.recover(failure, 0.0)?;
                }
            }
        }
        Ok(())
    }

    fn checkpoint_phase(&mut self) -> Result<(), TimedOut> {
        let groups = self.job.model.groups;
        let alpha = self.job.model.overlap_fraction;
        while self.done < groups {
            self.pay_owed()?;
            self.skip_to_next_failure();
            if self.done == groups {
                break;
            }
            let started = self.now;
            match self.pass(self.checkpoint_seconds) {
                Ok(()) => {
                    self.progress += alpha * self.checkpoint_seconds;
                    self.done += 1;
                }
                Err(failure) => {
                    self.outcome.failures_in_checkpoint += 1;
                    let elapsed = self.now - started;
                    self.strike_checkpoint(failure, elapsed)?;
                }
            }
        }
        self.pay_owed()?;
        self.outcome.checkpoints += groups as u64;
        self.previous_work_end = Some(self.work_end);
        self.work_end =
            self.progress + self.job.period_seconds - groups as f64 * self.checkpoint_seconds;
        self.done = 0;
        Ok(())
    }

    /// All checkpoints that end before it pass in one step: G may be hundreds of thousands.
    fn skip_to_next_failure(&mut self) {
        if self.checkpoint_seconds == 0.0 {
            self.done = self.job.model.groups;
            return;
        }
        let room = (self.failures.peek().at_seconds - self.now) / self.checkpoint_seconds;
        let count = (room.max(0.0) as usize).min(self.job.model.groups - self.done);
        let seconds = count as f64 * self.checkpoint_seconds;
        self.now += seconds;
        self.progress += self.job.model.overlap_fraction * seconds;
        self.done += count;
    }

    /// `elapsed` seconds into the checkpoint of the node's group or of another one.
    fn strike_checkpoint(&mut self, failure: Failure, elapsed: f64) -> Result<(), TimedOut> {
        let alpha = self.job.model.overlap_fraction;
        if self.group_of(failure.node) == self.done {
            // The checkpoint and the work that overlapped it are done again.
            self.recover(failure, 0.0)?;
        } else {
            let rest = self.checkpoint_seconds - elapsed;
            self.progress += alpha * elapsed;
            self.done += 1;
            self.recover(failure, rest)?;
            self.owed += alpha * rest;
        }
        Ok(())
    }

    fn pay_owed(&mut self) -> Result<(), TimedOut> {
        while self.owed > 0.0 {
            let started = self.now;
            let struck = self.pass(self.owed);
            let worked = self.now - started;
            self.progress += worked;
            match struck {
                Ok(()) => self.owed = 0.0,
                Err(failure) => {
                    self.owed -= worked;
                    self.recover(failure, 0.0)?;
                }
            }
        }
        Ok(())
    }

    /// Passes downtime, recovery and re-execution of the group of `failure`, after `wait` seconds
    /// in which a running checkpoint ends; and of all groups that are struck during that time.
    fn recover(&mut self, failure: Failure, wait: f64) -> Result<(), TimedOut> {
        let began = self.now;
        self.outcome.failures += 1;
        let mut busy = vec![(self.group_of(failure.node), self.caught_up(failure, wait))];
        loop {
            if self.now > self.job.limit_seconds {
                return Err(TimedOut);
            }
            let all_up = busy.iter().fold(self.now, |latest, &(_, at)| latest.max(at));
            match self.pass(all_up - self.now) {
                Ok(()) => break,
                Err(next) => {
                    self.outcome.failures += 1;
                    self.outcome.failures_in_recovery += 1;
                    let group = self.group_of(next.node);
                    let at = self.caught_up(next, 0.0);
                    match busy.iter_mut().find(|(g, _)| *g == group) {
                        Some(entry) => entry.1 = at,
                        None => busy.push((group, at)),
                    }
                }
            }
        }
        self.outcome.outage_seconds += self.now - began;
        Ok(())
    }

    /// When the group of a failure that strikes now has caught up with the others.
    fn caught_up(&self, failure: Failure, wait: f64) -> f64 {
        let lost = self.progress - self.saved(self.group_of(failure.node));
        self.now
            + wait
            + self.job.model.downtime_seconds
            + self.recovery_seconds
            + lost / self.job.model.replay_speed
    }

    /// By the last completed checkpoint: that of group g starts g alpha C after the work phase.
    fn saved(&self, group: usize) -> f64 {
        let offset = group as f64 * self.job.model.overlap_fraction * self.checkpoint_seconds;
        if group < self.done {
            self.work_end + offset
        } else {
            self.previous_work_end.map_or(0.0, |end| end + offset)
        }
    }

    fn group_of(&self, node: usize) -> usize {
        (node as u128 * self.job.model.groups as u128 / self.job.nodes as u128) as usize
    }

    fn pass(&mut self, duration: f64) -> Result<(), Failure> {
        self.failures.pass(&mut self.now, duration)
    }
}
