//! The report as one JSON document, described by `docs/report.schema.json`.
//!
//! The whole document is written again after each test, to a temporary file that then replaces the
//! old one. A reader never sees half of it, and a run that is killed leaves its finished tests.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Map, Value};
use skt_config::{Output, RunSpec};
use skt_health::slow::{RankRates, Rate, SlowReport};
use skt_host::{clock, outfile};
use skt_run::progress::{fraction, gflop_done};
use skt_run::record::{Counts, Outcome, RunFacts, Sample, TestRecord};

use super::reader::{
    FORMAT, ProcessColumn, Program, Progress, RunReport, Slow, SlowRankRates, Test, variant_name,
};

/// The version of the format, raised when a field changes its meaning or is removed.
pub(crate) const FORMAT_VERSION: u32 = 1;

/// To sync after each of hundreds of tiny tests would take longer than the tests.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct JsonReport {
    path: PathBuf,
    document: RunReport,
    counts: Counts,
    dgemm_gflops_per_core: Option<f64>,
    synced: Option<Instant>,
}

impl JsonReport {
    /// Writes a document without tests to `path`, so that an error is known before the first test.
    pub fn create(path: &Path, spec: &RunSpec, facts: RunFacts) -> Result<Self, String> {
        let mut report = JsonReport {
            path: outfile::target(path).map_err(|why| unwritten(path, &why))?,
            counts: Counts::default(),
            dgemm_gflops_per_core: facts.dgemm_self_test.as_ref().map(|it| it.gflops_per_core),
            document: document(spec, facts),
            synced: None,
        };
        report.write(true)?;
        Ok(report)
    }

    /// Adds a test, and the lines of the text report since the last call, and writes the document.
    pub fn test(&mut self, record: &TestRecord, lines: &str) -> Result<(), String> {
        self.counts.add(&record.outcome);
        self.document.counts = value(self.counts);
        self.document.tests.push(test(record, self.dgemm_gflops_per_core));
        self.document.text_report.push_str(lines);
        self.write(false)
    }

    /// Writes the document for the last time, with the last lines of the text report.
    pub fn finish(&mut self, lines: &str) -> Result<(), String> {
        self.document.text_report.push_str(lines);
        self.document.finished = true;
        self.document.end = Some(clock::rfc3339(clock::now_unix_seconds()));
        self.write(true)
    }

    fn write(&mut self, must_sync: bool) -> Result<(), String> {
        let sync = must_sync || self.synced.is_none_or(|last| last.elapsed() > SYNC_INTERVAL);
        replace(&self.path, &self.document, sync).map_err(|why| unwritten(&self.path, &why))?;
        if sync {
            self.synced = Some(Instant::now());
        }
        Ok(())
    }
}

fn unwritten(path: &Path, why: &io::Error) -> String {
    format!("cannot write the JSON report '{}': {why}", path.display())
}

fn replace(path: &Path, document: &RunReport, sync: bool) -> io::Result<()> {
    outfile::replace(path, 0o666, sync, |mut out| {
        serde_json::to_writer_pretty(&mut out, document)?;
        out.write_all(b"\n")
    })
}

fn slow(report: &SlowReport) -> Slow {
    let kinds: BTreeSet<u64> = report.ranks.iter().map(|rank| rank.kind).collect();
    let kinds: Vec<u64> = kinds.into_iter().collect();
    let of_rank = |of: &RankRates| SlowRankRates {
        host: of.host.clone(),
        rank: of.rank,
        kind: kinds.iter().position(|kind| *kind == of.kind).unwrap_or(0),
        gflops_a_thread: of.windows.iter().map(rate_words).collect::<Vec<_>>().join(" "),
    };
    Slow {
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

fn progress(sample: &Sample, n: usize) -> Progress {
    let Sample { elapsed_seconds, column } = *sample;
    let gflop = gflop_done(column, n);
    let gflops = if elapsed_seconds > 0.0 { gflop / elapsed_seconds } else { 0.0 };
    Progress { elapsed_seconds, column, fraction: fraction(column, n), gflops }
}

/// A part as JSON; null if a path in it is no text.
fn value(part: impl Serialize) -> Value {
    serde_json::to_value(part).unwrap_or_default()
}

fn document(spec: &RunSpec, facts: RunFacts) -> RunReport {
    RunReport {
        format: FORMAT.to_owned(),
        format_version: FORMAT_VERSION,
        program: Some(Program {
            name: env!("CARGO_PKG_NAME").to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            compiler: Some(env!("SKT_HPL_COMPILER").to_owned()),
        }),
        command_line: facts.command_line,
        configuration: facts.configuration,
        start: Some(clock::rfc3339(facts.start_unix_seconds)),
        parameters: parameters(spec),
        environment: value(facts.environment),
        dgemm_self_test: value(facts.dgemm_self_test),
        counts: value(Counts::default()),
        ..RunReport::default()
    }
}

/// The rate of the test relative to the DGEMM self-test on all of its cores: `gflops /
/// (gflops_per_core * ranks * threads)`.
pub(super) fn efficiency(record: &TestRecord, dgemm_gflops_per_core: f64) -> f64 {
    let cores = record.spec.ranks() * record.spec.threads;
    record.gflops / (dgemm_gflops_per_core * cores as f64)
}

/// The process columns of a test with unequal rates, in order.
fn process_columns(TestRecord { spec, column_waits, .. }: &TestRecord) -> Vec<ProcessColumn> {
    let (cols, mut blocks) = (spec.columns(), vec![0; spec.q]);
    (0..spec.n.div_ceil(spec.nb)).for_each(|k| blocks[cols.block_owner(k)] += 1);
    let columns = blocks.into_iter().zip(&spec.rates).zip(column_waits);
    let part = |((blocks, &rate), &waited_seconds)| ProcessColumn { blocks, rate, waited_seconds };
    columns.map(part).collect()
}

pub(super) fn test(record: &TestRecord, dgemm_gflops_per_core: Option<f64>) -> Test {
    let ran = !matches!(record.outcome, Outcome::Skipped { .. });
    let solved = record.outcome.ran_to_end();
    let mut rest = match value(&record.outcome) {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    let status = rest.remove("status").and_then(|status| status.as_str().map(str::to_owned));
    let fingerprint = solved.then(|| format!("{:016x}", record.x_fingerprint));
    rest.extend(
        [
            ("rank_bytes", value(record.rank_bytes)),
            ("memory_bytes", value(record.memory)),
            ("interruptions", value(ran.then_some(record.interruptions))),
            ("x_fingerprint", value(fingerprint)),
            ("by_messages", value(&record.by_messages)),
            ("protection", value(&record.protection)),
            ("cores", value(&record.cores)),
        ]
        .map(|(name, part)| (name.to_owned(), part)),
    );
    let columns = process_columns(record);
    if !columns.is_empty() {
        rest.insert("process_columns".to_owned(), value(columns));
    }
    rest.extend(record.mxp.iter().map(|mxp| ("mxp".to_owned(), value(mxp))));
    Test {
        variant: variant_name(&record.spec),
        parameters: record.spec.clone(),
        status: status.unwrap_or_default(),
        time_seconds: ran.then_some(record.time_seconds),
        gflops: solved.then_some(record.gflops),
        efficiency: dgemm_gflops_per_core
            // The self-test is in double precision.
            .filter(|_| solved && record.spec.mxp.is_none())
            .map(|per_core| efficiency(record, per_core)),
        start: ran.then(|| clock::rfc3339(record.start_unix_seconds)),
        end: ran.then(|| clock::rfc3339(record.end_unix_seconds)),
        end_unix_seconds: record.end_unix.filter(|_| ran),
        generate_seconds: ran.then_some(record.generate_seconds),
        check_seconds: ran.then_some(record.check_seconds),
        phases_seconds: ran.then_some(record.phases),
        progress: record.progress.iter().map(|s| progress(s, record.spec.n)).collect(),
        events: record.events.clone(),
        power: record.power.clone(),
        slow: record.slow.as_ref().map(slow),
        slow_links: record.slow.as_ref().and_then(|slow| slow.named.links.clone()),
        rest,
    }
}

/// The fields of [`RunSpec`], with objects where a reader would have to know a position.
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
