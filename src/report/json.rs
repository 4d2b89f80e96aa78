//! The report as one JSON document, described by `docs/report.schema.json`.
//!
//! The whole document is written again after each test, to a temporary file that then replaces the
//! old one. A reader never sees half of it, and a run that is killed leaves its finished tests.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;
use skt_config::{ConfigText, Output, RunSpec, TestSpec};
use skt_health::environment::{DgemmSelfTest, Environment};
use skt_terms::phases::{Interruptions, PhaseTable};

use skt_health::slow::links::SlowLink;
use skt_health::slow::{RankRates, Rate, SlowReport};
use skt_host::outfile;
use skt_run::events::ReportError;
use skt_run::record::cores::CoreShares;
use skt_run::record::energy::EnergyReading;
use skt_run::record::{
    Counts, Event, MemorySplit, MxpRecord, Outcome, Protection, RunFacts, Sample, TestRecord,
};

use super::phases;
use super::process_columns;
use super::reader::{ProcessColumnPart, ProgressPart, RankPart, SlowPart};
use super::text::variant_name;
use skt_host::clock;
use skt_run::progress::{fraction, gflop_done};

/// The version of the format, raised when a field changes its meaning or is removed.
pub(crate) const FORMAT_VERSION: u32 = 1;

/// The least time between two syncs: to sync after each of hundreds of tiny tests would take longer
/// than the tests.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// Writes the document, test by test.
#[derive(Debug)]
pub struct JsonReport {
    path: PathBuf,
    document: Document,
    synced: Option<Instant>,
}

impl JsonReport {
    /// Writes a document without tests to `path`, so that an error is known before the first test.
    ///
    /// # Errors
    /// The file cannot be written, or exists and is not a regular file.
    pub fn create(path: &Path, spec: &RunSpec, facts: RunFacts) -> Result<Self, ReportError> {
        let fail = |source| ReportError::Json { path: path.to_path_buf(), source };
        let mut report = JsonReport {
            path: outfile::target(path).map_err(fail)?,
            document: Document::new(spec, facts),
            synced: None,
        };
        report.write(true)?;
        Ok(report)
    }

    /// Adds a test, and the lines of the text report since the last call, and writes the document.
    pub fn test(&mut self, record: &TestRecord, lines: &str) -> Result<(), ReportError> {
        self.document.add(record);
        self.document.text_report.push_str(lines);
        self.write(false)
    }

    /// Adds the last lines of the text report, marks the run as finished and writes the document
    /// for the last time.
    pub fn finish(&mut self, lines: &str) -> Result<(), ReportError> {
        self.document.text_report.push_str(lines);
        self.document.finished = true;
        self.document.end = Some(clock::rfc3339(clock::now_unix_seconds()));
        self.write(true)
    }

    fn write(&mut self, must_sync: bool) -> Result<(), ReportError> {
        let sync = must_sync || self.synced.is_none_or(|last| last.elapsed() > SYNC_INTERVAL);
        replace(&self.path, &self.document, sync)
            .map_err(|source| ReportError::Json { path: self.path.clone(), source })?;
        if sync {
            self.synced = Some(Instant::now());
        }
        Ok(())
    }
}

/// Replaces the file by the document.
fn replace(path: &Path, document: &Document, sync: bool) -> io::Result<()> {
    outfile::replace(path, 0o666, sync, |mut out| {
        serde_json::to_writer_pretty(&mut out, document)?;
        out.write_all(b"\n")
    })
}

#[derive(Debug, Serialize)]
struct Document {
    format: &'static str,
    format_version: u32,
    program: Program,
    command_line: Vec<String>,
    configuration: Option<ConfigText>,
    start: String,
    end: Option<String>,
    finished: bool,
    parameters: serde_json::Value,
    environment: Environment,
    dgemm_self_test: Option<DgemmSelfTest>,
    counts: Counts,
    tests: Vec<Test>,
    text_report: String,
}

#[derive(Debug, Serialize)]
struct Program {
    name: &'static str,
    version: &'static str,
    compiler: &'static str,
}

/// A [`TestRecord`] with values derived from it. Values that were not measured or are not finite
/// are null.
#[derive(Debug, Serialize)]
struct Test {
    variant: String,
    parameters: TestSpec,
    #[serde(flatten)]
    outcome: Outcome,
    time_seconds: Option<f64>,
    gflops: Option<f64>,
    efficiency: Option<f64>,
    start: Option<String>,
    end: Option<String>,
    end_unix_seconds: Option<f64>,
    generate_seconds: Option<f64>,
    check_seconds: Option<f64>,
    phases_seconds: Option<PhaseTable>,
    interruptions: Option<Interruptions>,
    rank_bytes: u64,
    memory_bytes: MemorySplit,
    progress: Vec<ProgressPart>,
    events: Vec<Event>,
    x_fingerprint: Option<String>,
    by_messages: Vec<String>,
    protection: Option<Protection>,
    power: Vec<EnergyReading>,
    cores: Option<CoreShares>,
    slow: Option<SlowPart>,
    slow_links: Option<Vec<SlowLink>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    process_columns: Vec<ProcessColumnPart>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mxp: Option<MxpRecord>,
}

fn slow_part(report: &SlowReport) -> SlowPart {
    let kinds: BTreeSet<u64> = report.ranks.iter().map(|rank| rank.kind).collect();
    let kinds: Vec<u64> = kinds.into_iter().collect();
    let of_rank = |of: &RankRates| RankPart {
        host: of.host.clone(),
        rank: of.rank,
        kind: kinds.iter().position(|kind| *kind == of.kind).unwrap_or(0),
        gflops_a_thread: of.windows.iter().map(rate_words).collect::<Vec<_>>().join(" "),
    };
    SlowPart {
        named: report.named.ranks.clone(),
        columns: report.columns.clone(),
        ranks: report.ranks.iter().map(of_rank).collect(),
    }
}

/// The rate of a window in a few digits; `-` where nothing was measured.
fn rate_words(rate: &Rate) -> String {
    match rate.gflops {
        gflops if gflops >= 100.0 => format!("{gflops:.0}"),
        gflops if gflops > 0.0 => format!("{gflops:.2}"),
        _ => "-".to_owned(),
    }
}

/// A sample with values derived from it.
fn progress_part(sample: &Sample, n: usize) -> ProgressPart {
    let Sample { elapsed_seconds, column } = *sample;
    let gflop = gflop_done(column, n);
    let gflops = if elapsed_seconds > 0.0 { gflop / elapsed_seconds } else { 0.0 };
    ProgressPart { elapsed_seconds, column, fraction: fraction(column, n), gflops }
}

impl Document {
    fn new(spec: &RunSpec, facts: RunFacts) -> Self {
        Document {
            format: "skt-hpl report",
            format_version: FORMAT_VERSION,
            program: Program {
                name: env!("CARGO_PKG_NAME"),
                version: env!("CARGO_PKG_VERSION"),
                compiler: env!("SKT_HPL_COMPILER"),
            },
            command_line: facts.command_line,
            configuration: facts.configuration,
            start: clock::rfc3339(facts.start_unix_seconds),
            end: None,
            finished: false,
            parameters: parameters(spec),
            environment: facts.environment,
            dgemm_self_test: facts.dgemm_self_test,
            counts: Counts::default(),
            tests: Vec::new(),
            text_report: String::new(),
        }
    }

    fn add(&mut self, record: &TestRecord) {
        self.counts.add(&record.outcome);
        let dgemm = self.dgemm_self_test.as_ref().map(|test| test.gflops_per_core);
        self.tests.push(Test::new(record, dgemm));
    }
}

impl Test {
    fn new(record: &TestRecord, dgemm_gflops_per_core: Option<f64>) -> Self {
        let ran = !matches!(record.outcome, Outcome::Skipped { .. });
        let solved = record.outcome.ran_to_end();
        Test {
            variant: variant_name(&record.spec),
            parameters: record.spec.clone(),
            outcome: record.outcome.clone(),
            time_seconds: ran.then_some(record.time_seconds),
            gflops: solved.then_some(record.gflops),
            efficiency: dgemm_gflops_per_core
                // The self-test is in double precision.
                .filter(|_| solved && record.spec.mxp.is_none())
                .map(|per_core| phases::efficiency(record, per_core)),
            start: ran.then(|| clock::rfc3339(record.start_unix_seconds)),
            end: ran.then(|| clock::rfc3339(record.end_unix_seconds)),
            end_unix_seconds: record.end_unix.filter(|_| ran),
            generate_seconds: ran.then_some(record.generate_seconds),
            check_seconds: ran.then_some(record.check_seconds),
            phases_seconds: ran.then_some(record.phases),
            interruptions: ran.then_some(record.interruptions),
            rank_bytes: record.rank_bytes,
            memory_bytes: record.memory,
            progress: record.progress.iter().map(|s| progress_part(s, record.spec.n)).collect(),
            events: record.events.clone(),
            by_messages: record.by_messages.clone(),
            x_fingerprint: solved.then(|| format!("{:016x}", record.x_fingerprint)),
            protection: record.protection.clone(),
            power: record.power.clone(),
            cores: record.cores.clone(),
            slow: record.slow.as_ref().map(slow_part),
            slow_links: record.slow.as_ref().and_then(|slow| slow.named.links.clone()),
            process_columns: process_columns::parts(record),
            mxp: record.mxp.clone(),
        }
    }
}

/// The parameters of the run: the fields of [`RunSpec`], with objects where a reader of JSON would
/// have to know a position.
fn parameters(spec: &RunSpec) -> serde_json::Value {
    let mut all = serde_json::to_value(spec).expect("plain data");
    let grids: Vec<_> =
        spec.grids.iter().map(|(p, q)| serde_json::json!({"p": p, "q": q})).collect();
    all["grids"] = grids.into();
    all["output"] = match &spec.output {
        Output::Stdout => serde_json::json!({"device": "stdout"}),
        Output::Stderr => serde_json::json!({"device": "stderr"}),
        Output::File(path) => {
            serde_json::json!({"device": "file", "path": path.to_string_lossy()})
        }
    };
    // Left out where a run is sent to other ranks.
    all["checksums"] = spec.checksums.into();
    all
}
