//! Reads JSON reports of this version, and of other versions as far as their fields are known.
//!
//! Unknown fields are ignored, and missing ones are `None`, so that reports of older and newer
//! versions can be compared.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use skt_terms::phases::PhaseTable;
use skt_terms::shown::{shown, shown_message};

use super::bundle::{self, BundleError};
use skt_config::ConfigText;
use skt_health::slow::SlowRank;
use skt_health::slow::links::SlowLink;
use skt_run::record::Event;
use skt_run::record::energy::EnergyReading;

/// Why a report cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be read.
    #[error("cannot read the report '{}': {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file is not a JSON report.
    #[error(
        "'{}' is no JSON report of skt-hpl (written by --json), nor an archive (by report \
         --bundle): {reason}", path.display()
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong, with line and column if the text is not JSON.
        reason: String,
    },
    /// The file is an archive that is refused.
    #[error("'{}': {source}", path.display())]
    Bundle {
        /// The file.
        path: PathBuf,
        /// Why.
        source: BundleError,
    },
}

/// The report of a run.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct RunReport {
    /// Always "skt-hpl report".
    pub format: String,
    /// The program that wrote the report.
    pub program: Option<ProgramPart>,
    /// The command line, program first.
    pub command_line: Vec<String>,
    /// The text of the configuration; `None` if flags alone describe the run.
    pub configuration: Option<ConfigText>,
    /// Start of the run, in RFC 3339.
    pub start: Option<String>,
    /// End of the run, in RFC 3339.
    pub end: Option<String>,
    /// Whether all tests have run.
    pub finished: bool,
    /// The machine and the libraries that the run used.
    pub environment: EnvironmentPart,
    /// The result of the DGEMM self-test.
    pub dgemm_self_test: Option<DgemmPart>,
    /// The tests.
    pub tests: Vec<TestReport>,
    /// The text report so far; older documents do not have it.
    pub text_report: Option<String>,
}

/// Name and version of the program.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ProgramPart {
    /// The program's name.
    pub name: String,
    /// The program's version.
    pub version: String,
    /// The compiler that built the program; older documents do not have it.
    pub compiler: Option<String>,
}

/// The machine and the libraries of a run.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct EnvironmentPart {
    /// The host of rank 0.
    pub host: HostPart,
    /// A description of the BLAS, as JSON.
    pub blas: serde_json::Value,
    /// The name and version of the MPI library.
    pub mpi_library: Option<String>,
    /// All hosts, with their ranks.
    pub hosts: Vec<HostRanksPart>,
    /// How threads were pinned.
    pub pinning: Option<String>,
    /// CPUs that were kept from the solver.
    pub helper_cpus: Vec<usize>,
}

/// The host of rank 0.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct HostPart {
    /// Host name.
    pub name: Option<String>,
    /// Kernel name and release.
    pub kernel: Option<String>,
    /// The model of the processor.
    pub cpu_model: Option<String>,
    /// Number of cores.
    pub cores: Option<usize>,
    /// Bytes of memory.
    pub memory_bytes: Option<u64>,
}

/// A host and its number of ranks.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct HostRanksPart {
    /// Host name.
    pub host: String,
    /// Number of ranks on the host.
    pub ranks: usize,
}

/// The result of the DGEMM self-test.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct DgemmPart {
    /// The best rate on one core, in Gflop/s.
    pub gflops_per_core: Option<f64>,
}

/// The report of a test.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct TestReport {
    /// The test's name in the text report.
    pub variant: String,
    /// The test's parameters.
    pub parameters: ParametersPart,
    /// `passed`, `failed`, `not-checked`, `broke` or `skipped`.
    pub status: String,
    /// The scaled residual.
    pub scaled_residual: Option<f64>,
    /// Seconds of the timed part.
    pub time_seconds: Option<f64>,
    /// The rate, in Gflop/s.
    pub gflops: Option<f64>,
    /// The rate relative to that of the DGEMM self-test.
    pub efficiency: Option<f64>,
    /// Start of the timed part, in RFC 3339.
    pub start: Option<String>,
    /// End of the timed part, in RFC 3339.
    pub end: Option<String>,
    /// End of the timed part, in seconds since 1970 with their fraction.
    pub end_unix_seconds: Option<f64>,
    /// Seconds to generate the matrix.
    pub generate_seconds: Option<f64>,
    /// Seconds to check the result.
    pub check_seconds: Option<f64>,
    /// Seconds by phase.
    pub phases_seconds: Option<PhaseTable>,
    /// Points of the factorization's progress.
    pub progress: Vec<ProgressPart>,
    /// Checkpoints, failures and recoveries.
    pub events: Vec<Event>,
    /// Bytes of a rank's memory, by part.
    pub memory_bytes: BTreeMap<String, u64>,
    /// The energy of the timed part, by each source that measured it.
    pub power: Vec<EnergyReading>,
    /// The rates of all ranks, and the ranks that are slow.
    pub slow: Option<SlowPart>,
    /// The slow links, the slowest first.
    pub(crate) slow_links: Option<Vec<SlowLink>>,
}

/// The rates of all ranks, and the ranks that are slow.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct SlowPart {
    /// The slow ranks, the slowest first.
    pub named: Vec<SlowRank>,
    /// The first column of each window, and the order of the matrix after the last one.
    pub columns: Vec<usize>,
    /// The rates of each rank.
    pub ranks: Vec<RankPart>,
}

/// The rates of a rank.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct RankPart {
    /// The rank's host.
    pub host: String,
    /// The rank's number in the run.
    pub rank: usize,
    /// A number that ranks with the same kind of processor have in common.
    pub kind: usize,
    /// The rate of a thread in each window, in Gflop/s; `-` where nothing was measured.
    pub gflops_a_thread: String,
}

impl RankPart {
    /// The rate of each window, in Gflop/s; `None` where nothing was measured.
    pub fn rates(&self) -> Vec<Option<f64>> {
        let rate =
            |word: &str| word.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate > 0.0);
        self.gflops_a_thread.split(' ').map(rate).collect()
    }
}

/// A point of the progress of a test.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ProgressPart {
    /// Seconds since the start of the timed part.
    pub elapsed_seconds: f64,
    /// Number of columns that are factored.
    pub column: usize,
    /// Share of the floating-point operations done.
    pub fraction: f64,
    /// Mean rate from the start to this point, in Gflop/s.
    pub gflops: f64,
}

/// The parameters of a test that a reader needs.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ParametersPart {
    /// Order of the matrix.
    pub n: usize,
    /// Blocking factor.
    pub nb: usize,
    /// Process rows.
    pub p: usize,
    /// Process columns.
    pub q: usize,
    /// Checksum columns in addition to them, with abft.
    pub checksums: usize,
    /// Threads per rank.
    pub threads: usize,
}

impl ParametersPart {
    /// Number of ranks of the grid, with those of its checksum columns, which compute, too.
    pub fn ranks(&self) -> usize {
        self.p.saturating_mul(self.q.saturating_add(self.checksums))
    }

    /// Number of cores that compute: ranks times threads.
    pub fn cores(&self) -> usize {
        self.ranks().saturating_mul(self.threads.max(1))
    }
}

/// The text of a file written by `--json`, which may be in an archive.
pub(crate) fn read_text(path: &Path) -> Result<String, ReadError> {
    let io = |source| ReadError::Io { path: path.to_path_buf(), source };
    let bytes = fs::read(path).map_err(io)?;
    if bundle::is_archive(&bytes) {
        return bundle::read(&bytes)
            .map_err(|source| ReadError::Bundle { path: path.to_path_buf(), source });
    }
    String::from_utf8(bytes)
        .map_err(|error| io(io::Error::new(io::ErrorKind::InvalidData, error.utf8_error())))
}

/// Parses JSON text, or returns what is wrong with it.
pub(crate) fn from_json<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| shown_message(&error.to_string()))
}

/// Checks that a document is a report.
pub(crate) fn check_format(format: &str) -> Result<(), String> {
    match format {
        "skt-hpl report" => Ok(()),
        _ => Err(format!("its \"format\" is \"{}\", not \"skt-hpl report\"", shown(format))),
    }
}

impl RunReport {
    /// Reads a file written by `--json`, or an archive with one.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        Self::parse_from(path, &read_text(path)?)
    }

    /// Reads the text of the file `path`, as [`read_text`] gives it.
    pub fn parse_from(path: &Path, text: &str) -> Result<Self, ReadError> {
        Self::parse(text).map_err(|reason| ReadError::Format { path: path.to_path_buf(), reason })
    }

    /// Reads the text of a report, as [`RunReport::read`] does with a file.
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
    pub fn completed(&self) -> impl Iterator<Item = &TestReport> {
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
