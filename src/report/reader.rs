//! Reads JSON reports of this version, and of other versions as far as their fields are known.
//!
//! Unknown fields are ignored, and missing ones are `None`, so that reports of older and newer
//! versions can be compared.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use skt_terms::phases::PhaseTable;
use skt_terms::shown::{shown, shown_message};

use skt_config::ConfigText;
use skt_health::slow::SlowRank;
use skt_health::slow::links::SlowLink;
use skt_host::infile;
use skt_run::record::Event;
use skt_run::record::energy::EnergyReading;

/// More than a report of the largest machine has.
const BYTES_MAX: u64 = 1 << 30;

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("cannot read the report '{}': {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error(
        "'{}' is no JSON report of skt-hpl (written by --json): {reason}", path.display()
    )]
    Format { path: PathBuf, reason: String },
    #[error(
        "'{}' is no JSON report of skt-hpl (written by --json), and has no result of HPL, a line \
         such as `WR11C2R4  6000  128  2  4  7.46  1.9311e+01`", path.display()
    )]
    NoResult { path: PathBuf },
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct RunReport {
    pub format: String,
    pub program: Option<ProgramPart>,
    pub command_line: Vec<String>,
    pub configuration: Option<ConfigText>,
    pub start: Option<String>,
    pub end: Option<String>,
    pub finished: bool,
    pub environment: EnvironmentPart,
    pub dgemm_self_test: Option<DgemmPart>,
    pub tests: Vec<TestReport>,
    pub text_report: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ProgramPart {
    pub name: String,
    pub version: String,
    pub compiler: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct EnvironmentPart {
    pub host: HostPart,
    pub blas: serde_json::Value,
    pub mpi_library: Option<String>,
    pub hosts: Vec<HostRanksPart>,
    pub pinning: Option<String>,
    pub helper_cpus: Vec<usize>,
    pub bf16: Option<Bf16Part>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Bf16Part {
    pub function: String,
    pub file: Option<String>,
    pub gflops_per_core: Option<f64>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct HostPart {
    pub name: Option<String>,
    pub kernel: Option<String>,
    pub cpu_model: Option<String>,
    pub cores: Option<usize>,
    pub memory_bytes: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct HostRanksPart {
    pub host: String,
    pub ranks: usize,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct DgemmPart {
    pub gflops_per_core: Option<f64>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct TestReport {
    pub variant: String,
    pub parameters: ParametersPart,
    /// `passed`, `failed`, `not-checked`, `broke` or `skipped`.
    pub status: String,
    pub scaled_residual: Option<f64>,
    pub time_seconds: Option<f64>,
    pub gflops: Option<f64>,
    pub efficiency: Option<f64>,
    pub start: Option<String>,
    pub end: Option<String>,
    /// End of the timed part, in seconds since 1970 with their fraction.
    pub end_unix_seconds: Option<f64>,
    pub generate_seconds: Option<f64>,
    pub check_seconds: Option<f64>,
    pub phases_seconds: Option<PhaseTable>,
    pub progress: Vec<ProgressPart>,
    pub events: Vec<Event>,
    pub memory_bytes: BTreeMap<String, u64>,
    pub power: Vec<EnergyReading>,
    pub slow: Option<SlowPart>,
    pub(crate) slow_links: Option<Vec<SlowLink>>,
    pub process_columns: Vec<ProcessColumnPart>,
    pub mxp: Option<MxpPart>,
}

/// A process column of a test with unequal rates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessColumnPart {
    pub blocks: usize,
    pub rate: f64,
    pub waited_seconds: Option<f64>,
}

/// The part of a test of HPL-MxP that one of HPL does not have.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct MxpPart {
    pub factor_seconds: Option<f64>,
    pub refine_seconds: Option<f64>,
    pub steps: Vec<StepPart>,
    pub has_converged: bool,
    pub failure: Option<String>,
}

/// A step of the refinement.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct StepPart {
    pub refinement: String,
    pub corrections: usize,
    pub end_seconds: Option<f64>,
    pub scaled_residual: Option<f64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SlowPart {
    pub named: Vec<SlowRank>,
    pub columns: Vec<usize>,
    pub ranks: Vec<RankPart>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RankPart {
    pub host: String,
    pub rank: usize,
    /// A number that ranks with the same kind of processor have in common.
    pub kind: usize,
    /// The rate of a thread in each window, in Gflop/s; `-` where nothing was measured. One text:
    /// each number would otherwise have a line.
    pub gflops_a_thread: String,
}

impl RankPart {
    /// The rate of each window, in Gflop/s; `None` where nothing was measured.
    pub(crate) fn rates(&self) -> Vec<Option<f64>> {
        let rate =
            |word: &str| word.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate > 0.0);
        self.gflops_a_thread.split(' ').map(rate).collect()
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProgressPart {
    pub elapsed_seconds: f64,
    pub column: usize,
    pub fraction: f64,
    pub gflops: f64,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ParametersPart {
    pub n: usize,
    pub nb: usize,
    pub p: usize,
    pub q: usize,
    pub checksums: usize,
    pub threads: usize,
    /// The matrix of HPL-MxP; `None` for HPL.
    pub matrix: Option<String>,
    /// The operands of the products of HPL-MxP; `None` for single precision, and for HPL.
    pub gemm: Option<String>,
}

impl TestReport {
    /// Whether the test is one of HPL and not of HPL-MxP, whose rates do not compare.
    pub(crate) fn is_of_hpl(&self) -> bool {
        self.parameters.matrix.is_none()
    }
}

impl ParametersPart {
    /// Number of ranks of the grid, with those of its checksum columns, which compute, too.
    pub(crate) fn ranks(&self) -> usize {
        self.p.saturating_mul(self.q.saturating_add(self.checksums))
    }

    /// Number of cores that compute: ranks times threads.
    pub(crate) fn cores(&self) -> usize {
        self.ranks().saturating_mul(self.threads.max(1))
    }
}

/// The orders of these tests, each with the best rate of its tests in Gflop/s.
pub(crate) fn best_rates<'t>(tests: impl Iterator<Item = &'t TestReport>) -> Vec<(f64, f64)> {
    let mut best: BTreeMap<usize, f64> = BTreeMap::new();
    for test in tests {
        let (rate, entry) = (test.gflops.unwrap_or(0.0), best.entry(test.parameters.n));
        entry.and_modify(|known| *known = known.max(rate)).or_insert(rate);
    }
    best.into_iter().map(|(n, rate)| (n as f64, rate)).collect()
}

/// The text of a report; a launcher may have put anything between its lines.
pub(crate) fn read_text(path: &Path) -> Result<String, ReadError> {
    let bytes = infile::read(path, BYTES_MAX);
    let bytes = bytes.map_err(|source| ReadError::Io { path: path.to_path_buf(), source })?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Parses JSON text, or returns what is wrong with it.
pub(crate) fn from_json<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| {
        if text.lines().any(|line| line.starts_with("HPLinpack ")) {
            return "it is the text of HPL, which has neither threads nor hosts nor phases; \
                    `skt-hpl report` reads it"
                .to_owned();
        }
        shown_message(&error.to_string())
    })
}

/// Checks that a document is a report.
pub(crate) fn check_format(format: &str) -> Result<(), String> {
    match format {
        "skt-hpl report" => Ok(()),
        _ => Err(format!("its \"format\" is \"{}\", not \"skt-hpl report\"", shown(format))),
    }
}

impl RunReport {
    /// Reads a file written by `--json`.
    pub(crate) fn read(path: &Path) -> Result<Self, ReadError> {
        Self::parse_from(path, &read_text(path)?)
    }

    /// Reads the text of the file `path`, as `read_text` gives it.
    pub(crate) fn parse_from(path: &Path, text: &str) -> Result<Self, ReadError> {
        Self::parse(text).map_err(|reason| ReadError::Format { path: path.to_path_buf(), reason })
    }

    /// Reads the text of a report, as `RunReport::read` does with a file.
    pub fn parse(text: &str) -> Result<Self, String> {
        let report: Self = from_json(text)?;
        check_format(&report.format)?;
        report.check_numbers()?;
        Ok(report)
    }

    /// Checks that no quantity is negative: all that follows from it would be wrong.
    fn check_numbers(&self) -> Result<(), String> {
        for (number, test) in (1..).zip(&self.tests) {
            let of_test = [
                ("time_seconds", test.time_seconds),
                ("gflops", test.gflops),
                ("scaled_residual", test.scaled_residual),
                ("end_unix_seconds", test.end_unix_seconds),
                ("generate_seconds", test.generate_seconds),
                ("check_seconds", test.check_seconds),
            ];
            let of_power = test.power.iter().flat_map(|reading| {
                [
                    ("joules", Some(reading.joules)),
                    ("mean_watts", Some(reading.mean_watts)),
                    ("measured_seconds", Some(reading.measured_seconds)),
                    ("gflops_per_watt", reading.gflops_per_watt),
                ]
            });
            for (key, value) in of_test.into_iter().chain(of_power) {
                if let Some(value) = value.filter(|value| *value < 0.0) {
                    return Err(format!("test {number}: \"{key}\" is {value}, and not 0 or above"));
                }
            }
        }
        Ok(())
    }

    /// The tests that ended with a time and a rate, and did not fail.
    pub(crate) fn completed(&self) -> impl Iterator<Item = &TestReport> {
        self.tests.iter().filter(|test| {
            test.gflops.is_some()
                && test.time_seconds.is_some()
                && matches!(test.status.as_str(), "passed" | "not-checked")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_below_zero_are_refused() {
        for (test, why) in [
            (r#"{"time_seconds": -1.5}"#, "test 2: \"time_seconds\" is -1.5, and not 0 or above"),
            (r#"{"gflops": -0.1}"#, "test 2: \"gflops\" is -0.1"),
            (r#"{"power": [{}, {"mean_watts": -4}]}"#, "test 2: \"mean_watts\" is -4"),
        ] {
            let text = format!(r#"{{"format": "skt-hpl report", "tests": [{{}}, {test}]}}"#);
            let message = RunReport::parse(&text).unwrap_err();
            assert!(message.starts_with(why), "{message}");
        }
    }
}
