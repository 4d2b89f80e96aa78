use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::failure::{Ages, Law};
use super::random::Stream;
use super::stats::{Estimate, Proportion};
use super::{Job, RunEnd, RunOutcome};
use crate::StudyError;
use skt_model::error::at_least;

#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    pub runs: usize,
    /// The seed; the same seed gives the same outcomes on any number of threads.
    pub seed: u64,
    /// Number of threads; 0 for one per core.
    pub threads: usize,
    /// Number of nodes that can fail.
    pub nodes: usize,
    pub law: Law,
    pub ages: Ages,
}

impl Batch {
    /// `progress` is called with the number of finished runs from time to time, from any thread.
    pub fn run(
        &self,
        job: &impl Job,
        progress: &(dyn Fn(usize) + Sync),
    ) -> Result<Summary, StudyError> {
        Ok(Summary::from_outcomes(&self.outcomes(job, progress)?))
    }

    /// Runs `job` as [`Batch::run`] does, and returns every outcome in the order of the runs.
    pub fn outcomes(
        &self,
        job: &impl Job,
        progress: &(dyn Fn(usize) + Sync),
    ) -> Result<Vec<RunOutcome>, StudyError> {
        at_least("runs", self.runs, 1, "1 or more")?;
        at_least("nodes", self.nodes, 1, "1 or more")?;
        let streams = Stream::streams(self.seed, self.runs);
        let next = AtomicUsize::new(0);
        let done = AtomicUsize::new(0);
        let work = || -> Result<Vec<(usize, RunOutcome)>, StudyError> {
            let mut outcomes = Vec::new();
            loop {
                // Relaxed suffices: the counter only decides which thread takes which run; results
                // are passed by join.
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(stream) = streams.get(index) else { return Ok(outcomes) };
                let mut source = self.law.source(self.nodes, self.ages, stream.clone())?;
                outcomes.push((index, job.run(&mut source)));
                progress(done.fetch_add(1, Ordering::Relaxed) + 1);
            }
        };
        let mut outcomes = thread::scope(|scope| {
            let workers: Vec<_> = (0..self.thread_count()).map(|_| scope.spawn(work)).collect();
            let mut all = Vec::with_capacity(self.runs);
            for worker in workers {
                all.extend(worker.join().expect("a simulation thread panicked")?);
            }
            Ok::<_, StudyError>(all)
        })?;
        outcomes.sort_by_key(|(index, _)| *index);
        Ok(outcomes.into_iter().map(|(_, outcome)| outcome).collect())
    }

    fn thread_count(&self) -> usize {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let wanted = if self.threads == 0 { cores } else { self.threads };
        wanted.min(self.runs)
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// 1 - useful work / time, over all runs. A run that lost its data wasted all of its time;
    /// formulas of the waste do not cover such runs.
    pub waste: Estimate,
    /// Seconds of the runs that finished.
    pub finished_time_seconds: Estimate,
    pub finished: Proportion,
    /// The share of runs that lost their data at least once.
    pub lost_data: Proportion,
    pub(crate) out_of_spares: Proportion,
    pub timed_out: Proportion,
    pub failures: Estimate,
    /// The share of time in downtime and recovery.
    pub(crate) outage_fraction: Estimate,
}

impl Summary {
    /// Summarizes `outcomes`, of which there must be at least one.
    pub fn from_outcomes(outcomes: &[RunOutcome]) -> Self {
        let share = |test: &dyn Fn(&RunOutcome) -> bool| Proportion {
            hits: outcomes.iter().filter(|o| test(o)).count(),
            count: outcomes.len(),
        };
        Self {
            waste: Estimate::from_samples(outcomes.iter().map(RunOutcome::waste)),
            finished_time_seconds: Estimate::from_samples(
                outcomes.iter().filter(|o| o.end == RunEnd::Finished).map(|o| o.time_seconds),
            ),
            finished: share(&|o| o.end == RunEnd::Finished),
            lost_data: share(&|o| o.data_losses > 0),
            out_of_spares: share(&|o| o.end == RunEnd::OutOfSpares),
            timed_out: share(&|o| o.end == RunEnd::TimedOut),
            failures: Estimate::from_samples(outcomes.iter().map(|o| o.failures as f64)),
            outage_fraction: Estimate::from_samples(
                outcomes.iter().map(|o| o.outage_seconds / o.time_seconds.max(f64::MIN_POSITIVE)),
            ),
        }
    }
}
