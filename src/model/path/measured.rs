//! Runs as their JSON reports tell of them.

use std::fs;
use std::path::Path;

use serde::Deserialize;

use super::Run;
use crate::config::{Bcast, Swap, Transport};
use crate::report::reader::{self, PhaseSeconds, PhasesPart, ReadError};

/// A test that ran to its end, and where its time went.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// What was run.
    pub run: Run,
    /// Time of the timed part.
    pub time_seconds: f64,
    /// Mean over ranks of each phase.
    pub mean: PhaseSeconds,
    /// Whether ranks read panels or rows in each other's memory. The walk knows of
    /// messages alone.
    pub shared: bool,
}

/// The fastest of all tests of the same run, in the order in which the runs first
/// come: what else goes on on a machine only adds to a time.
pub fn fastest(tests: &[Measured]) -> Vec<Measured> {
    let mut best: Vec<Measured> = Vec::new();
    for test in tests {
        let same = |other: &&mut Measured| other.run == test.run && other.shared == test.shared;
        match best.iter_mut().find(same) {
            Some(other) if other.time_seconds <= test.time_seconds => {}
            Some(other) => *other = *test,
            None => best.push(*test),
        }
    }
    best
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
    /// What went by messages; older reports do not say.
    by_messages: Option<Vec<String>>,
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
    transport: Option<Transport>,
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
        let report: Report = reader::from_json(text)?;
        reader::check_format(&report.format)?;
        report.tests.into_iter().filter_map(|test| test.measured().transpose()).collect()
    }
}

impl Test {
    /// None where it says nothing of the time.
    fn measured(self) -> Result<Option<Measured>, String> {
        let Parameters { n, nb, p, q, depth, bcast, swap, swap_threshold, threads, .. } =
            self.parameters;
        if !matches!(self.status.as_str(), "passed" | "not-checked") || self.protection.is_some() {
            return Ok(None);
        }
        let time_seconds = self.time_seconds.filter(|&seconds| seconds > 0.0);
        let (1.., Some(time_seconds), Some(phases)) = (n, time_seconds, &self.phases_seconds)
        else {
            return Ok(None);
        };
        let run = Run { n, nb, p, q, threads, depth, bcast, swap, swap_threshold };
        run.validate().map_err(|error| error.to_string())?;
        let (mean, shared) = (phases.mean, self.is_shared());
        Ok(Some(Measured { run, time_seconds, mean, shared }))
    }

    fn is_shared(&self) -> bool {
        let Parameters { p, q, transport, .. } = self.parameters;
        match &self.by_messages {
            Some(list) => {
                let by_messages = |what: &str| list.iter().any(|other| other == what);
                q > 1 && !by_messages("panels") || p > 1 && !by_messages("rows")
            }
            // Reports that name neither are older than shared memory.
            None => transport == Some(Transport::Shared) && (p > 1 || q > 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test of 1.5 s on 2 x 3 ranks, with `more` behind its parameters and fields.
    fn test(parameters: &str, fields: &str) -> Measured {
        let text = format!(
            r#"{{"format": "skt-hpl report", "tests": [{{
                "status": "passed", "time_seconds": 1.5, "protection": null,
                "phases_seconds": {{"mean": {PHASES}, "max": {PHASES}}},
                "parameters": {{"n": 100, "nb": 10, "p": 2, "q": 3, "depth": 1, "bcast": "1ring",
                    "swap": "mix", "swap_threshold": 64, "threads": 1 {parameters}}} {fields}}}]}}"#
        );
        Measured::parse(&text).unwrap()[0]
    }

    const PHASES: &str =
        r#"{"panel": 1, "swap": 0, "bcast": 0, "update": 0.5, "back": 0, "other": 0}"#;

    #[test]
    fn reports_tell_what_went_by_messages() {
        let shared = r#", "transport": "shared""#;
        let by = |list: &str| test(shared, &format!(r#", "by_messages": [{list}]"#)).shared;
        assert!(!by(r#""panels", "rows""#));
        assert!(by(r#""panels""#) && by(r#""rows""#) && by(""));
        assert!(!test("", "").shared);
        assert!(test(shared, "").shared);
        assert!(!test(r#", "transport": "messages""#, "").shared);
    }

    #[test]
    fn what_no_walk_can_take_is_refused() {
        let text = |n: &str| {
            format!(
                r#"{{"format": "skt-hpl report", "tests": [{{
                "status": "passed", "time_seconds": 1.5, "protection": null,
                "phases_seconds": {{"mean": {PHASES}, "max": {PHASES}}},
                "parameters": {{"n": {n}, "nb": 10, "p": 2, "q": 3, "depth": 1, "bcast": "1ring",
                    "swap": "mix", "swap_threshold": 64, "threads": 1}}}}]}}"#
            )
        };
        let why = Measured::parse(&text("9007199254740992")).unwrap_err();
        assert!(why.contains("n = 9007199254740992 is out of range") && why.contains("4294967295"));
        let why = Measured::parse(&text("4000000000")).unwrap_err();
        assert!(why.contains("larger NB"), "{why}");
        assert_eq!(Measured::parse(&text("0")).unwrap(), []);
    }

    #[test]
    fn numbers_at_the_ends_of_their_range_do_not_wrap() {
        let text = include_str!("../../../docs/measurements/2026-11-20-path/fit-1x2-1.json");
        let huge = text.replace(r#""p":1,"#, &format!(r#""p":{},"#, u64::MAX));
        assert_ne!(huge, text);
        assert!(Measured::parse(&huge).is_err());
    }

    #[test]
    fn the_fastest_test_of_each_run_counts() {
        let slow = test("", "");
        let fast = Measured { time_seconds: 1.0, ..slow };
        let other = Measured { run: Run { depth: 0, ..slow.run }, ..slow };
        assert_eq!(fastest(&[slow, other, fast, slow]), [fast, other]);
    }
}
