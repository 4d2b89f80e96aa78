//! What a run reports while it is in progress. The run knows no report: its caller passes an
//! implementation of [`RunEvents`].

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use crate::record::cores::CoreShares;
use crate::record::energy::RankEnergy;
use crate::record::{Restart, RunFacts, Sample, TestRecord};
use skt_config::RunSpec;
use skt_health::slow::{Named, SlowReport};
use skt_host::core_use::CoreUse;
pub use skt_solver::pgesv::events::Silent;

/// The parts of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Generating the matrix.
    Generate {
        /// Bytes of all local matrices.
        total_bytes: u64,
    },
    /// LU factorization.
    Factor,
    /// Back substitution.
    BackSubstitute,
    /// Iterative refinement.
    Refine,
    /// Norms and residual.
    Check,
    /// The test is over.
    Done,
}

impl Phase {
    /// The name of the part, for a supervisor.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Generate { .. } => "generate",
            // Columns advance only once the first panel is done.
            Phase::Factor => "begin",
            Phase::BackSubstitute => "back",
            Phase::Refine => "refine",
            Phase::Check => "check",
            Phase::Done => "tested",
        }
    }
}

/// Data from which a later start can continue, and which is complete.
#[derive(Debug, Clone, PartialEq)]
pub enum Saved {
    /// A checkpoint in memory.
    Checkpoint {
        /// The number of the checkpoint.
        epoch: u64,
        /// Number of columns that were eliminated.
        column: usize,
        /// Seconds from its beginning to its end.
        seconds: f64,
        /// The part of `seconds` in which the solver waited.
        stall_seconds: f64,
    },
    /// The images of a checkpoint on a level.
    Images {
        /// The name of the level.
        level: String,
        /// The number of the checkpoint.
        epoch: u64,
        /// Seconds that this rank has written.
        seconds: f64,
    },
}

impl fmt::Display for Saved {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Checkpoint { epoch, column, seconds, stall_seconds } => {
                write!(out, "checkpoint {epoch}, {seconds:.2} s")?;
                // Without overlap the solver waits for all of it.
                if *stall_seconds < 0.99 * seconds {
                    write!(out, ", {stall_seconds:.2} s of it waited")?;
                }
                write!(out, ", column {column}")
            }
            Self::Images { level, epoch, seconds } => {
                write!(out, "images of checkpoint {epoch} on {level} complete, {seconds:.2} s")
            }
        }
    }
}

/// What has been saved and is not reported yet.
pub type SavedQueue = Rc<RefCell<Vec<Saved>>>;

/// Callbacks of a run. Those of a test are called on each of its ranks; those of a run, and what
/// [`super::job`] passes on of a test, on rank 0.
pub trait RunEvents {
    /// Called when something begins that may take a while, with a line about it.
    fn announce(&mut self, _line: &str) {}

    /// Called for work that is not counted in columns, `elapsed_seconds` after its begin, with a
    /// line about it.
    fn step(&mut self, _elapsed_seconds: f64, _line: &str) {}

    /// Called when a part of a test begins.
    fn phase(&mut self, _phase: Phase) {}

    /// Called when this rank begins to wait for the others, which may be in this part of the test
    /// for `seconds` more.
    fn waits(&mut self, _phase: Phase, _seconds: f64) {}

    /// Called when this start has resumed the test from the data of an earlier one.
    fn resumes(&mut self, _restart: &Restart) {}

    /// Called when this rank begins the timed part, or continues it in a later start, when
    /// `before_seconds` of it have passed.
    fn timed_part_begins(&mut self, _before_seconds: f64) {}

    /// Called when this rank has ended the timed part.
    fn timed_part_ends(&mut self) {}

    /// What this rank has measured of the energy of the timed part, which took `seconds` since the
    /// first start. Called after the timed part, unless that is too short to be measured.
    fn energy(&mut self, _seconds: f64) -> RankEnergy {
        RankEnergy::default()
    }

    /// What this rank got of its cores in the timed part, if it has watched them. Called after the
    /// timed part.
    fn core_use(&mut self) -> Option<CoreUse> {
        None
    }

    /// Called on rank 0 with what all ranks got of their cores in the timed part.
    fn cores(&mut self, _: CoreShares) {}

    /// Fault injection: whether a bit of this rank's matrix is to flip when `done` columns are
    /// eliminated.
    fn flips(&mut self, _done: usize) -> bool {
        false
    }

    /// Called when `done` of `n` columns are eliminated, `elapsed_seconds` after the first start
    /// began ([`Guard::seconds`](skt_solver::pgesv::guard::Guard::seconds)).
    fn columns(&mut self, _done: usize, _n: usize, _elapsed_seconds: f64) {}

    /// Called when data of the test has been saved.
    fn saved(&mut self, _: &Saved) {}

    /// Samples of the progress of this start, for the report.
    fn samples(&self) -> Vec<Sample> {
        Vec::new()
    }

    /// Called on rank 0 with the ranks that are slow by the windows so far, and the links that were
    /// slow before.
    fn slow(&mut self, _: &Named) {}

    /// Called on rank 0 with the rates of all ranks, when the factorization has ended.
    fn rates(&mut self, _: SlowReport) {}

    /// Called before a message is printed: removes a line that is rewritten in place.
    fn clear(&mut self) {}

    /// Called before the first test, with `notes` on the setup.
    fn run_begins(
        &mut self,
        _spec: &RunSpec,
        _facts: RunFacts,
        _notes: Vec<String>,
    ) -> Result<(), String> {
        Ok(())
    }

    /// Called with a note on the next tests.
    fn note(&mut self, _note: &str) -> Result<(), String> {
        Ok(())
    }

    /// Called with the record of each test.
    /// If the report cannot be written, the test does not count as reported.
    fn test_ends(&mut self, _record: &TestRecord) -> Result<(), String> {
        Ok(())
    }

    /// Called after the last test, if all of them have been reported. Returns whether the JSON
    /// report is complete, too; if not, the reason is printed.
    fn run_ends(&mut self) -> Result<bool, String> {
        Ok(true)
    }

    /// Number of lines that have been written to standard output.
    fn lines_on_stdout(&self) -> u64 {
        0
    }
}

impl RunEvents for Silent {}
