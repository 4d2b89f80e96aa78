//! The number of tests by result.

use serde::Serialize;

use super::outcome::Outcome;

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
