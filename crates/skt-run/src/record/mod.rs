//! What is known about a test after it has run: plain data, which checkpoints keep, the run fills
//! in, and reports print.

pub mod cores;
pub mod energy;
mod outcome;
mod protection;

use serde::{Deserialize, Serialize};
use skt_host::phases::{Interruptions, PhaseTable, PhaseTotals};

use cores::CoreShares;
use energy::EnergyReading;
use skt_config::{ConfigText, TestSpec};
use skt_health::environment::{DgemmSelfTest, Environment};
use skt_health::slow::SlowReport;

pub(crate) use outcome::MAX_ROUNDING_RESIDUAL;
pub use outcome::{Counts, MxpRecord, Norms, Outcome, RefinementStep};
pub use protection::{
    CheckpointSeconds, Protection, RepairedRank, Replacement, Restart, Stall, Unverified,
};
pub use skt_model::path::ROWS_IN_HALVES;

/// Seconds of the reference's detailed timing that are no phase of ours, each the longest of any
/// rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct DetailedTiming {
    /// The factorization of up to NBMIN columns at once, without recursion.
    pub pfact_seconds: f64,
    /// The part of that for pivots: their choice among ranks, and the exchange of their rows.
    pub mxswp_seconds: f64,
    /// The trailing update with its row exchange: the phases `swap` and `update` together.
    pub update_seconds: f64,
}

impl DetailedTiming {
    /// The timing of a test whose phases took these `totals`.
    pub(crate) fn new(totals: &PhaseTotals) -> Self {
        let [.., pfact_seconds, mxswp_seconds, update_seconds] = totals.max;
        Self { pfact_seconds, mxswp_seconds, update_seconds }
    }
}

/// The memory of the largest rank by purpose, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemorySplit {
    /// The rank's part of the matrix.
    pub matrix: u64,
    /// Copies of the matrix in checkpoints.
    pub copies: u64,
    /// The parities of its group that the rank keeps.
    pub parities: u64,
    /// The header of the rank's segment, and alignment.
    pub header: u64,
    /// Panels, rows of U and buffers.
    pub work_space: u64,
}

impl MemorySplit {
    /// The sum of all parts; at most `u64::MAX`.
    pub fn total(&self) -> u64 {
        let Self { matrix, copies, parities, header, work_space } = *self;
        [copies, parities, header, work_space].into_iter().fold(matrix, u64::saturating_add)
    }
}

/// Something that happened in a test.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Event {
    /// `start`, `checkpoint`, `failure`, `recovery` or `end`.
    pub kind: String,
    /// Seconds from the first start of the timed part to the start of the event.
    pub start_seconds: f64,
    /// Duration of the event in seconds.
    pub seconds: f64,
    /// The number of the checkpoint that was taken, or that the test continued from.
    pub epoch: Option<u64>,
    /// Number of columns that were factored.
    pub column: Option<usize>,
    /// Bytes of the matrix that rank 0 saved.
    pub bytes: Option<u64>,
    /// A description of the event.
    pub detail: String,
}

/// One test, as known on rank 0 after it has run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TestRecord {
    /// The parameters of the test.
    pub spec: TestSpec,
    /// Seconds from the barrier before the factorization to the end of the back substitution, the
    /// maximum over ranks.
    pub time_seconds: f64,
    /// `N^2 (2N/3 + 3/2) / (time_seconds 1e9)`.
    pub gflops: f64,
    /// Start of the factorization, in seconds since 1970.
    pub start_unix_seconds: i64,
    /// End of the back substitution, in seconds since 1970.
    pub end_unix_seconds: i64,
    /// Seconds to generate the matrix, which are not part of the timed part.
    pub generate_seconds: f64,
    /// Seconds to check the result, which are not part of the timed part.
    pub check_seconds: f64,
    /// Seconds by phase: of this start, and of earlier ones as far as it continues them. With
    /// `interruptions`, the means sum to `time_seconds`.
    pub phases: PhaseTable,
    /// What losses have cost of `time_seconds`.
    pub interruptions: Interruptions,
    /// Seconds that only the reference's detailed timing has; `None` if there was no place for them
    /// where the result was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detailed: Option<DetailedTiming>,
    /// The seconds that each process column was in the phase `bcast` in the last start, as the mean
    /// over its ranks; none where process columns have equal rates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub column_waits: Vec<f64>,
    /// Bytes of the largest rank: matrix, panels, work space.
    pub rank_bytes: u64,
    /// The memory of the largest rank by purpose.
    pub memory: MemorySplit,
    /// Points of the progress, few enough to be drawn.
    pub progress: Vec<Sample>,
    /// The events, in the order of time.
    pub events: Vec<Event>,
    /// A fingerprint of x, which differs if any bit of x does; 0 if there is no x.
    pub x_fingerprint: u64,
    /// What was sent between ranks by messages: `panels`, `rows` or [`ROWS_IN_HALVES`]. Everything
    /// else was read in memory that ranks of a node share.
    pub by_messages: Vec<String>,
    /// How the test was protected, and what that cost; `None` without protection.
    pub protection: Option<Protection>,
    /// End of the back substitution on rank 0, in seconds since 1970 with their fraction; `None` if
    /// it is not known.
    pub end_unix: Option<f64>,
    /// The energy of the timed part, by each source that measured it.
    pub power: Vec<EnergyReading>,
    /// What HPL-MxP has besides; `None` for HPL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mxp: Option<MxpRecord>,
    /// The rates of all ranks in the last start, and the ranks that are slow; `None` where they
    /// were not compared. Not stored for later starts.
    #[serde(skip)]
    pub slow: Option<SlowReport>,
    /// What the ranks got of their cores in the last start; `None` where that was not watched. Not
    /// stored for later starts.
    #[serde(skip)]
    pub cores: Option<CoreShares>,
    /// How the test ended.
    pub outcome: Outcome,
}

/// What is known about a run before its first test.
#[derive(Debug, Clone)]
pub struct RunFacts {
    /// The command line, program first.
    pub command_line: Vec<String>,
    /// The text of the configuration; `None` if flags alone describe the run.
    pub configuration: Option<ConfigText>,
    /// The machine and the libraries that the job runs on.
    pub environment: Environment,
    pub dgemm_self_test: Option<DgemmSelfTest>,
    /// The start of the run, in seconds since 1970.
    pub start_unix_seconds: i64,
}

/// The progress of a test at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds since the first start of the timed part.
    pub elapsed_seconds: f64,
    /// Number of columns that are factored.
    pub column: usize,
}

/// Largest number of samples of the progress: enough for a line across a page.
const MOST: usize = 128;

/// Samples of the progress, evenly spread over the panels.
#[derive(Debug, Clone)]
pub(crate) struct Samples {
    kept: Vec<Sample>,
    latest: Option<Sample>,
    /// One sample is kept for this number of panels.
    stride: usize,
    seen: usize,
}

impl Default for Samples {
    fn default() -> Self {
        Self { kept: Vec::new(), latest: None, stride: 1, seen: 0 }
    }
}

impl Samples {
    /// Adds the sample that `column` columns are factored after `elapsed_seconds`.
    pub(crate) fn push(&mut self, elapsed_seconds: f64, column: usize) {
        let sample = Sample { elapsed_seconds, column };
        self.latest = Some(sample);
        if self.seen.is_multiple_of(self.stride) {
            if self.kept.len() == MOST {
                self.kept = self.kept.iter().copied().step_by(2).collect();
                self.stride *= 2;
            }
            // After a thinning, this sample may be between two that are kept.
            if self.seen.is_multiple_of(self.stride) {
                self.kept.push(sample);
            }
        }
        self.seen += 1;
    }

    /// The samples that are kept, and the latest.
    pub(crate) fn list(&self) -> Vec<Sample> {
        let mut list = self.kept.clone();
        list.extend(self.latest.filter(|latest| list.last() != Some(latest)));
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_few_even_and_end_with_the_last() {
        for panels in [0, 1, 2, 127, 128, 129, 200, 256, 257, 1000, 100_000] {
            let mut samples = Samples::default();
            for panel in 0..panels {
                samples.push(panel as f64, panel);
            }
            let columns: Vec<usize> = samples.list().iter().map(|sample| sample.column).collect();
            assert!(columns.len() <= MOST + 1 && columns.len() >= panels.min(MOST / 2), "{panels}");
            assert_eq!(columns.last().copied(), panels.checked_sub(1));
            let steps: Vec<usize> = columns.windows(2).map(|pair| pair[1] - pair[0]).collect();
            if let [even @ .., last] = &steps[..] {
                assert!(even.iter().all(|step| step == &steps[0]) && *last <= steps[0], "{panels}");
            }
        }
    }
}
