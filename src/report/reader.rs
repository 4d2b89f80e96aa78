//! Reads JSON reports of this version, and of others as far as it knows their fields.
//!
//! Unknown fields are ignored, and missing ones are `None`, so that reports of older
//! and newer versions can be compared.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use skt_terms::phases::PhaseTable;
use skt_terms::shown::{shown, shown_message};

use super::record::Event;

/// A report that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be read.
    #[error("cannot read the report '{}': {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is no JSON report.
    #[error("'{}' is no JSON report of skt-hpl (written by --json): {reason}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// Why not, with line and column where JSON itself is at fault.
        reason: String,
    },
}

/// A run.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct RunReport {
    /// Always "skt-hpl report".
    pub format: String,
    /// Which program wrote it.
    pub program: Option<ProgramPart>,
    /// The command line, program first.
    pub command_line: Vec<String>,
    /// Start of the run, RFC 3339.
    pub start: Option<String>,
    /// End of the run, RFC 3339.
    pub end: Option<String>,
    /// Whether all tests have run.
    pub finished: bool,
    /// Where it ran.
    pub environment: EnvironmentPart,
    /// The DGEMM self-test.
    pub dgemm_self_test: Option<DgemmPart>,
    /// The tests.
    pub tests: Vec<TestReport>,
}

/// Name and version of the program.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ProgramPart {
    /// Name.
    pub name: String,
    /// Version.
    pub version: String,
    /// The compiler that built it.
    pub compiler: Option<String>,
}

/// Where a run ran.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct EnvironmentPart {
    /// The host of rank 0.
    pub host: HostPart,
    /// The BLAS, as JSON.
    pub blas: serde_json::Value,
    /// The MPI library.
    pub mpi_library: Option<String>,
    /// All hosts.
    pub hosts: Vec<HostRanksPart>,
    /// Where threads ran.
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
    /// Processor.
    pub cpu_model: Option<String>,
    /// Cores.
    pub cores: Option<usize>,
    /// Memory.
    pub memory_bytes: Option<u64>,
}

/// A host and its ranks.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct HostRanksPart {
    /// Host name.
    pub host: String,
    /// Ranks on it.
    pub ranks: usize,
}

/// The DGEMM self-test.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct DgemmPart {
    /// Best rate on one core.
    pub gflops_per_core: Option<f64>,
}

/// A test.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct TestReport {
    /// Its name in the text report.
    pub variant: String,
    /// Its parameters.
    pub parameters: ParametersPart,
    /// passed, failed, not-checked, broke or skipped.
    pub status: String,
    /// Scaled residual.
    pub scaled_residual: Option<f64>,
    /// Time of the timed part.
    pub time_seconds: Option<f64>,
    /// Rate.
    pub gflops: Option<f64>,
    /// Rate over that of the DGEMM self-test.
    pub efficiency: Option<f64>,
    /// Start of the timed part, RFC 3339.
    pub start: Option<String>,
    /// End of the timed part, RFC 3339.
    pub end: Option<String>,
    /// Time of the matrix generation.
    pub generate_seconds: Option<f64>,
    /// Time of the check.
    pub check_seconds: Option<f64>,
    /// Where the time went.
    pub phases_seconds: Option<PhaseTable>,
    /// How far the factorization was, and how fast, now and then.
    pub progress: Vec<ProgressPart>,
    /// Checkpoints, failures and recoveries.
    pub events: Vec<Event>,
    /// How the memory of a rank is split, by name.
    pub memory_bytes: BTreeMap<String, u64>,
}

/// A point of the progress of a test.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ProgressPart {
    /// Seconds since the start of the timed part.
    pub elapsed_seconds: f64,
    /// Columns that are factored.
    pub column: usize,
    /// Share of the floating-point operations done.
    pub fraction: f64,
    /// Rate from the start to here.
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
    /// Threads a rank.
    pub threads: usize,
}

impl ParametersPart {
    /// Ranks of the grid.
    pub fn ranks(&self) -> usize {
        self.p.saturating_mul(self.q)
    }

    /// Cores that compute: ranks times threads.
    pub fn cores(&self) -> usize {
        self.ranks().saturating_mul(self.threads.max(1))
    }
}

/// What a JSON text says, or what is wrong with it.
pub(crate) fn from_json<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| shown_message(&error.to_string()))
}

/// Whether a document is a report.
pub(crate) fn check_format(format: &str) -> Result<(), String> {
    match format {
        "skt-hpl report" => Ok(()),
        _ => Err(format!("its \"format\" is \"{}\", not \"skt-hpl report\"", shown(format))),
    }
}

impl RunReport {
    /// Reads a file written by `--json`.
    ///
    /// # Errors
    /// The file cannot be read, is not JSON, or is another kind of document.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        let text = fs::read_to_string(path)
            .map_err(|source| ReadError::Io { path: path.to_path_buf(), source })?;
        Self::parse(&text).map_err(|reason| ReadError::Format { path: path.to_path_buf(), reason })
    }

    /// As [`RunReport::read`], from text.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let report: Self = from_json(text)?;
        check_format(&report.format)?;
        Ok(report)
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
