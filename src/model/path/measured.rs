//! Runs as their JSON reports tell of them.

use std::fs;
use std::path::Path;

use serde::Deserialize;

use super::Run;
use crate::config::{Bcast, Swap};
use crate::report::reader::{PhaseSeconds, PhasesPart, ReadError};

/// A test that ran to its end, and where its time went.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// What was run.
    pub run: Run,
    /// Time of the timed part.
    pub time_seconds: f64,
    /// Mean over ranks of each phase.
    pub mean: PhaseSeconds,
}

#[derive(Deserialize)]
struct Report {
    format: String,
    tests: Vec<Test>,
}

#[derive(Deserialize)]
struct Test {
    parameters: Parameters,
    status: String,
    time_seconds: Option<f64>,
    phases_seconds: Option<PhasesPart>,
    protection: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Parameters {
    n: usize,
    nb: usize,
    p: usize,
    q: usize,
    depth: usize,
    bcast: Bcast,
    swap: Swap,
    swap_threshold: usize,
    threads: usize,
}

impl Measured {
    /// The tests of a report (`--json`) that passed or were not checked, ran without
    /// checkpoints, and have their phases.
    ///
    /// # Errors
    /// The file cannot be read, or is no report of this program.
    pub fn read(path: &Path) -> Result<Vec<Self>, ReadError> {
        let text = fs::read_to_string(path)
            .map_err(|source| ReadError::Io { path: path.to_path_buf(), source })?;
        Self::parse(&text).map_err(|reason| ReadError::Format { path: path.to_path_buf(), reason })
    }

    /// As [`Measured::read`], from text.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn parse(text: &str) -> Result<Vec<Self>, String> {
        let report: Report = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if report.format != "skt-hpl report" {
            return Err(format!("its \"format\" is {:?}, not \"skt-hpl report\"", report.format));
        }
        Ok(report.tests.into_iter().filter_map(Test::measured).collect())
    }
}

impl Test {
    fn measured(self) -> Option<Measured> {
        let Parameters { n, nb, p, q, depth, bcast, swap, swap_threshold, threads } =
            self.parameters;
        if !matches!(self.status.as_str(), "passed" | "not-checked") || self.protection.is_some() {
            return None;
        }
        let run = Run { n, nb, p, q, threads, depth, bcast, swap, swap_threshold };
        run.validate().ok()?;
        let time_seconds = self.time_seconds.filter(|&seconds| seconds > 0.0)?;
        Some(Measured { run, time_seconds, mean: self.phases_seconds?.mean })
    }
}
