//! How a test ended.

use serde::{Deserialize, Serialize};
use skt_config::Refinement;
pub use skt_host::norms::Norms;
use skt_host::norms::any_number;

/// How a test ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "status")]
pub enum Outcome {
    /// The scaled residual is below the threshold.
    Passed {
        /// `||Ax-b||_oo / (eps (||A||_oo ||x||_oo + ||b||_oo) N)`
        #[serde(with = "any_number")]
        scaled_residual: f64,
        /// The norms that the residual follows from.
        norms: Norms,
    },
    /// The scaled residual is not below the threshold.
    Failed {
        /// `||Ax-b||_oo / (eps (||A||_oo ||x||_oo + ||b||_oo) N)`
        #[serde(with = "any_number")]
        scaled_residual: f64,
        /// The norms that the residual follows from.
        norms: Norms,
    },
    /// The threshold asks for no check; this counts as passed, as in the reference.
    #[default]
    NotChecked,
    /// The factorization stopped at a pivot that is zero or not finite.
    Broke {
        /// The pivot's global column, from 0.
        column: usize,
        /// The pivot: `0`, `NaN` or `inf`.
        pivot: String,
    },
    /// The test could not be run, for instance for lack of memory.
    Skipped {
        /// Why the test was not run.
        reason: String,
    },
}

/// The largest scaled residual that rounding alone leaves. It measures the backward error in units
/// of N eps: LU with partial pivoting stays below one unit on random matrices, usually between 1e-4
/// and 1e-1.
pub(crate) const MAX_ROUNDING_RESIDUAL: f64 = 1.0;

impl Outcome {
    /// Whether a test failed although its residual is that of a correct solution: the threshold is
    /// below what rounding leaves.
    pub fn failed_by_rounding(&self) -> bool {
        matches!(self, Outcome::Failed { scaled_residual, .. }
            if *scaled_residual <= MAX_ROUNDING_RESIDUAL)
    }

    /// Whether the system was solved, so that the rate has a meaning.
    pub fn ran_to_end(&self) -> bool {
        !matches!(self, Outcome::Broke { .. } | Outcome::Skipped { .. })
    }
}

/// Number of tests by result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// The residual was below the threshold, or no check was asked for.
    pub passed: usize,
    /// The residual was not below the threshold, or there is no solution.
    pub failed: usize,
    /// The test was not run.
    pub skipped: usize,
}

impl Counts {
    /// Counts a test.
    pub fn add(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Passed { .. } | Outcome::NotChecked => self.passed += 1,
            Outcome::Failed { .. } | Outcome::Broke { .. } => self.failed += 1,
            Outcome::Skipped { .. } => self.skipped += 1,
        }
    }

    /// Number of all tests.
    pub fn total(&self) -> usize {
        self.passed + self.failed + self.skipped
    }
}

/// The factorization in low precision and its refinement. Times are the longest of any rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MxpRecord {
    /// Seconds of the factorization, within the timed part.
    pub factor_seconds: f64,
    /// Seconds from the end of the factorization to the end of the timed part.
    pub refine_seconds: f64,
    /// How the solution was refined in the end.
    pub refinement: Refinement,
    /// The steps, in order; at most `Self::MAX_STEPS`.
    pub steps: Vec<RefinementStep>,
    /// Whether the last solution is as accurate as one in double precision.
    pub has_converged: bool,
    /// Why the refinement ended early; `None` if it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// A step of the refinement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RefinementStep {
    /// How this step computed its correction.
    pub refinement: Refinement,
    /// The corrections of x that it computed: 1, or the inner steps of a cycle of GMRES.
    pub corrections: usize,
    /// Seconds from the start of the timed part to the end of this step.
    pub end_seconds: f64,
    /// `||b - Ax||_oo / (eps (||A||_oo ||x||_oo + ||b||_oo) N)` of the solution after it.
    #[serde(with = "any_number")]
    pub scaled_residual: f64,
}

impl MxpRecord {
    /// The most corrections, and so steps, of a refinement: as many as the rules of HPL-MxP allow
    /// for GMRES.
    pub(crate) const MAX_STEPS: usize = 50;
}
