//! The simulator does not use the formulas: nodes fail by a [`failure::Law`] or a trace, a job
//! computes, checkpoints, rolls back and recovers by the rules of its protocol, and [`batch`]
//! repeats that over independent streams of random numbers and computes means with confidence
//! intervals. A seed gives the same numbers on any number of threads.

pub mod batch;
pub mod coordinated;
pub mod failure;
pub mod hierarchical;
pub(crate) mod levelled;
pub mod random;
pub mod stats;
pub mod trace;

pub use batch::{Batch, Summary};
pub use coordinated::CoordinatedJob;
pub use failure::{Ages, FailureSource, Law};
pub use hierarchical::HierarchicalJob;
pub use levelled::{ImageLevel, LevelledJob};
pub use stats::{Estimate, Proportion};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEnd {
    Finished,
    /// Data were lost and the job was to stop then.
    DataLost,
    /// A node failed and no spare was left.
    OutOfSpares,
    TimedOut,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RunOutcome {
    pub end: RunEnd,
    pub time_seconds: f64,
    /// Useful work done, in seconds of full speed.
    pub work_seconds: f64,
    /// Number of failures of the job's nodes.
    pub failures: u64,
    pub(crate) failures_in_checkpoint: u64,
    /// Number of failures during a downtime or a recovery.
    pub(crate) failures_in_recovery: u64,
    /// Number of completed checkpoints (of all groups, if there are several).
    pub checkpoints: u64,
    /// How many times data were lost and the work began again.
    pub(crate) data_losses: u64,
    /// Seconds spent in downtime and recovery.
    pub outage_seconds: f64,
}

impl RunOutcome {
    fn begun() -> Self {
        Self {
            end: RunEnd::Finished,
            time_seconds: 0.0,
            work_seconds: 0.0,
            failures: 0,
            failures_in_checkpoint: 0,
            failures_in_recovery: 0,
            checkpoints: 0,
            data_losses: 0,
            outage_seconds: 0.0,
        }
    }
}

impl RunOutcome {
    /// The share of the time that was not useful work.
    pub fn waste(&self) -> f64 {
        if self.time_seconds == 0.0 { 0.0 } else { 1.0 - self.work_seconds / self.time_seconds }
    }
}

pub trait Job: Sync {
    /// Simulates one run with the failures of one source.
    fn run(&self, failures: &mut FailureSource) -> RunOutcome;
}
