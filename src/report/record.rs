//! What is known of a test after it has run.

use serde::{Deserialize, Serialize};

use crate::config::TestSpec;

/// Where the time of a rank went, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Phases {
    /// Factorization of panels, with its communication.
    pub panel: f64,
    /// Row exchange and spread of U.
    pub swap: f64,
    /// Waiting for panels and forwarding them.
    pub bcast: f64,
    /// Triangular solve and matrix product of the trailing update.
    pub update: f64,
    /// Back substitution.
    pub back: f64,
    /// All else between start and end.
    pub other: f64,
}

/// Phases over all ranks of the grid.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct PhaseTable {
    /// Largest of any rank, phase by phase.
    pub max: Phases,
    /// Mean over ranks.
    pub mean: Phases,
}

/// Norms of the problem and its solution.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Norms {
    /// max |Ax-b|
    pub residual_oo: f64,
    /// ||A||_oo
    pub a_oo: f64,
    /// ||A||_1
    pub a_1: f64,
    /// ||x||_oo
    pub x_oo: f64,
    /// ||x||_1
    pub x_1: f64,
    /// ||b||_oo
    pub b_oo: f64,
}

/// How a test ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "status")]
pub enum Outcome {
    /// Scaled residual below the threshold.
    Passed {
        /// `||Ax-b||_oo / (eps (||A||_oo ||x||_oo + ||b||_oo) N)`
        scaled_residual: f64,
        /// Norms behind it.
        norms: Norms,
    },
    /// Scaled residual not below the threshold.
    Failed {
        /// As above.
        scaled_residual: f64,
        /// Norms behind it.
        norms: Norms,
    },
    /// The threshold asked for no check; counts as passed, as in the reference.
    NotChecked,
    /// The factorization stopped: a pivot that is zero, or not a number.
    Broke {
        /// Global column, from 0.
        column: usize,
        /// The pivot found there: `0`, `NaN` or `inf`.
        pivot: String,
    },
    /// The test could not be run (for instance: not enough memory).
    Skipped {
        /// Why.
        reason: String,
    },
}

impl Outcome {
    /// Whether the system was solved, so that there is a rate to speak of.
    pub fn ran_to_end(&self) -> bool {
        !matches!(self, Outcome::Broke { .. } | Outcome::Skipped { .. })
    }
}

/// One test, as known on rank 0 after it has run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TestRecord {
    /// Its parameters.
    pub spec: TestSpec,
    /// Seconds from the barrier before the factorization to the end of the
    /// back substitution, the maximum over ranks.
    pub time_seconds: f64,
    /// `N^2 (2N/3 + 3/2) / (time_seconds 1e9)`.
    pub gflops: f64,
    /// Start of the factorization, seconds since the Unix epoch.
    pub start_unix_seconds: i64,
    /// End of the back substitution, seconds since the Unix epoch.
    pub end_unix_seconds: i64,
    /// Seconds spent to generate the matrix (outside of the timed part).
    pub generate_seconds: f64,
    /// Seconds spent to check the result (outside of the timed part).
    pub check_seconds: f64,
    /// Where the time went.
    pub phases: PhaseTable,
    /// Bytes of the largest rank: matrix, panels, work space.
    pub rank_bytes: u64,
    /// How it ended.
    pub outcome: Outcome,
}
