use serde::Deserialize;
use skt_host::choice::{Bcast, Swap, Transport};
use skt_host::phases::{PhaseTable, Phases};
use skt_host::shown::shown_message;

use super::RunParams;

/// An entry of a report's `by_messages`: the rows of one half of the columns were sent by messages
/// while the other half was multiplied.
pub const ROWS_IN_HALVES: &str = "rows in halves";

/// A test that ran to its end, with its time by phase.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeasuredTest {
    pub run: RunParams,
    /// Seconds of the timed part.
    pub time_seconds: f64,
    /// The mean over ranks of each phase, in seconds.
    pub mean: Phases,
    /// Whether ranks read panels or rows in each other's memory. The walk covers messages only.
    pub shared: bool,
}

/// Of each run, in the order of first appearance: other load can only add to a time.
pub fn fastest(tests: &[MeasuredTest]) -> Vec<MeasuredTest> {
    let mut best: Vec<MeasuredTest> = Vec::new();
    for test in tests {
        let same = |other: &&mut MeasuredTest| other.run == test.run && other.shared == test.shared;
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
    phases_seconds: Option<PhaseTable>,
    protection: Option<serde_json::Value>,
    /// What was sent by messages; `None` in older reports.
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
    /// The matrix of HPL-MxP, which the model does not describe.
    matrix: Option<String>,
}

/// Reads the tests of HPL in a report (`--json`) that passed or were not checked, ran without
/// checkpoints, and have their phases.
pub fn parse(text: &str) -> Result<Vec<MeasuredTest>, String> {
    let report: Report = serde_json::from_str(text).map_err(|why| {
        format!(
            "no JSON report of skt-hpl (written by --json): {}",
            shown_message(&why.to_string())
        )
    })?;
    if report.format != "skt-hpl report" {
        return Err("its \"format\" is not \"skt-hpl report\"".to_owned());
    }
    report.tests.into_iter().filter_map(|test| test.measured().transpose()).collect()
}

impl Test {
    /// The test, or `None` if it has no usable time.
    fn measured(self) -> Result<Option<MeasuredTest>, String> {
        let Parameters { n, nb, p, q, depth, bcast, swap, swap_threshold, threads, .. } =
            self.parameters;
        let is_mxp = self.parameters.matrix.is_some();
        let is_done = matches!(self.status.as_str(), "passed" | "not-checked");
        if !is_done || self.protection.is_some() || is_mxp {
            return Ok(None);
        }
        let time_seconds = self.time_seconds.filter(|&seconds| seconds > 0.0);
        let (1.., Some(time_seconds), Some(phases)) = (n, time_seconds, &self.phases_seconds)
        else {
            return Ok(None);
        };
        let list = self.by_messages.as_deref().unwrap_or_default();
        let halves = list.iter().any(|what| what == ROWS_IN_HALVES);
        let run = RunParams {
            threads,
            depth,
            bcast,
            swap,
            swap_threshold,
            halves,
            ..RunParams::new(n, nb, (p, q))
        };
        run.validate().map_err(|error| error.to_string())?;
        let (mean, shared) = (phases.mean, self.is_shared());
        Ok(Some(MeasuredTest { run, time_seconds, mean, shared }))
    }

    fn is_shared(&self) -> bool {
        let Parameters { p, q, transport, .. } = self.parameters;
        match &self.by_messages {
            Some(list) => {
                let by_messages = |what: &str| list.iter().any(|other| other == what);
                let rows = by_messages("rows") || by_messages(ROWS_IN_HALVES);
                q > 1 && !by_messages("panels") || p > 1 && !rows
            }
            // Reports with neither field are older than the transport by shared memory.
            None => transport == Some(Transport::Shared) && (p > 1 || q > 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A test of 1.5 s on 2 x 3 ranks, with additional `parameters` and `fields`.
    fn test(parameters: &str, fields: &str) -> MeasuredTest {
        let text = format!(
            r#"{{"format": "skt-hpl report", "tests": [{{
                "status": "passed", "time_seconds": 1.5, "protection": null,
                "phases_seconds": {{"mean": {PHASES}, "max": {PHASES}}},
                "parameters": {{"n": 100, "nb": 10, "p": 2, "q": 3, "depth": 1, "bcast": "1ring",
                    "swap": "mix", "swap_threshold": 64, "threads": 1 {parameters}}} {fields}}}]}}"#
        );
        parse(&text).unwrap()[0]
    }

    const PHASES: &str =
        r#"{"panel": 1, "swap": 0, "bcast": 0, "update": 0.5, "back": 0, "other": 0}"#;

    #[test]
    fn reports_distinguish_messages() {
        let shared = r#", "transport": "shared""#;
        let by = |list: &str| test(shared, &format!(r#", "by_messages": [{list}]"#)).shared;
        assert!(!by(r#""panels", "rows""#));
        assert!(!by(r#""panels", "rows in halves""#));
        assert!(by(r#""panels""#) && by(r#""rows""#) && by(""));
        assert!(!test("", "").shared);
        assert!(test(shared, "").shared);
        assert!(!test(r#", "transport": "messages""#, "").shared);
    }

    #[test]
    fn tests_of_hpl_mxp_are_left_out() {
        let test = |matrix: &str| {
            let text = format!(
                r#"{{"format": "skt-hpl report", "tests": [{{
                "status": "passed", "time_seconds": 1.5, "protection": null,
                "phases_seconds": {{"mean": {PHASES}, "max": {PHASES}}},
                "parameters": {{"n": 100, "nb": 10, "p": 2, "q": 3, "depth": 1, "bcast": "1ring",
                    "swap": "mix", "swap_threshold": 64, "threads": 1 {matrix}}}}}]}}"#
            );
            parse(&text).unwrap().len()
        };
        assert_eq!((test(""), test(r#", "matrix": "scaled""#)), (1, 0));
    }

    #[test]
    fn what_no_solver_can_take_is_refused() {
        let text = |n: &str, p: u64| {
            format!(
                r#"{{"format": "skt-hpl report", "tests": [{{
                "status": "passed", "time_seconds": 1.5, "protection": null,
                "phases_seconds": {{"mean": {PHASES}, "max": {PHASES}}},
                "parameters": {{"n": {n}, "nb": 10, "p": {p}, "q": 3, "depth": 1, "bcast": "1ring",
                    "swap": "mix", "swap_threshold": 64, "threads": 1}}}}]}}"#
            )
        };
        let why = parse(&text("9007199254740992", 2)).unwrap_err();
        assert!(why.contains("n = 9007199254740992 is out of range") && why.contains("4294967295"));
        // More steps than can be walked are estimated.
        assert_eq!(parse(&text("4000000000", 2)).unwrap()[0].run.n, 4_000_000_000);
        assert_eq!(parse(&text("0", 2)).unwrap(), []);
        // The number of ranks does not wrap.
        assert!(parse(&text("100", u64::MAX)).is_err());
    }

    #[test]
    fn the_fastest_test_of_each_run_counts() {
        let run = RunParams::new(100, 10, (2, 3));
        let mean = Phases::default();
        let slow = MeasuredTest { run, time_seconds: 1.5, mean, shared: false };
        let fast = MeasuredTest { time_seconds: 1.0, ..slow };
        let other = MeasuredTest { run: RunParams { depth: 0, ..slow.run }, ..slow };
        assert_eq!(fastest(&[slow, other, fast, slow]), [fast, other]);
    }
}
