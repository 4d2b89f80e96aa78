use std::io::{self, Write};
use std::path::PathBuf;

use skt_config::{Output, RunSpec, TestSpec};
use skt_health::environment::Environment;
use skt_health::slow::Named;
use skt_host::messages;
use skt_run::events::{RunEvents, Saved};
use skt_run::record::{RunFacts, TestRecord};
use skt_run::tuning::TUNING;

use super::detailed::ColumnLines;
use super::json::JsonReport;
use super::text::{self, TextOptions, TextReport};
use skt_run::progress::Progress;

#[derive(Debug, Clone, Default)]
pub(crate) struct OutputOptions {
    pub json: Option<PathBuf>,
    /// Whether the head of the report lists the values found by measurement.
    pub verbose: bool,
    /// Whether each panel gets a line on standard output, as the reference's progress report.
    pub(crate) progress_report: bool,
    pub detailed_timing: bool,
    pub are_lines_alone: bool,
}

/// Our own lines that warn, by their first words: they go to standard error where the text report
/// has the reference's lines alone.
const WARNINGS: [&str; 10] = [
    "warning",
    "skipped",
    "the factorization stopped",
    "cores",
    "slow",
    "slow_link",
    "repaired",
    "clock",
    "unverified",
    "hint",
];

pub(crate) struct RunOutput {
    options: OutputOptions,
    progress: Progress,
    reports: Option<Reports>,
}

struct Reports {
    text: TextReport<'static, Copied>,
    json: Option<JsonReport>,
    /// Where each panel gets a line, if that is asked for.
    column_lines: Option<ColumnLines<Box<dyn Write + Send>>>,
    /// Whether a test could not be added to the JSON report; the warning is printed only once.
    is_json_behind: bool,
}

/// The output of the text report, of which the JSON report gets a copy.
struct Copied {
    out: Box<dyn Write + Send>,
    /// Where lines of our own go to standard error: whether all do, or warnings alone.
    apart: Option<bool>,
    /// What has been written since the copy was last taken.
    copy: Vec<u8>,
    /// How much of it has been passed on.
    passed: usize,
}

impl Copied {
    fn take(&mut self) -> String {
        self.passed = 0;
        String::from_utf8(std::mem::take(&mut self.copy)).expect("reports are text")
    }
}

impl Write for Copied {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.copy.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    /// Passes on what has been written, which is whole lines.
    fn flush(&mut self) -> io::Result<()> {
        let text = String::from_utf8_lossy(&self.copy[self.passed..]);
        for line in text.split_inclusive('\n') {
            match (self.apart, line.strip_prefix('#')) {
                (Some(all), Some(own)) => print_own(own.trim_end(), all),
                _ => self.out.write_all(line.as_bytes())?,
            }
        }
        self.passed = self.copy.len();
        self.out.flush()
    }
}

/// Prints a line of our own to standard error, where `all` are meant or it warns.
fn print_own(line: &str, all: bool) {
    let line = line.strip_prefix(' ').unwrap_or(line);
    let (name, words) = line.split_once(':').unwrap_or((line, ""));
    match name.trim() {
        "warning" => messages::print(format_args!("warning:{words}")),
        name if WARNINGS.contains(&name) => messages::print(format_args!("warning: {line}")),
        _ if all => messages::print(format_args!("{line}")),
        _ => {}
    }
}

impl RunOutput {
    pub(crate) fn new(options: OutputOptions, progress: Progress) -> Self {
        Self { progress, reports: None, options }
    }

    fn reports(&mut self) -> &mut Reports {
        self.reports.as_mut().expect("the run has begun")
    }

    /// Our own lines in the head of the report; those `of_setup` are the last but for the tuning.
    fn notes(&self, spec: &RunSpec, facts: &RunFacts, of_setup: Vec<String>) -> Vec<String> {
        let mut notes = facts.environment.notes();
        notes.extend(idle_ranks(spec, &facts.environment));
        if let Some(test) = &facts.dgemm_self_test {
            let rate = test.gflops_per_core;
            let of_peak = test.peak_gflops_per_core.map_or(String::new(), |peak| {
                format!(", {:.0} % of the {peak:.1} of its multiply-adds", 100.0 * rate / peak)
            });
            notes.push(format!("dgemm    : {rate:.1} Gflop/s a core{of_peak}"));
            notes.extend(test.warnings.iter().map(|warning| format!("warning  : {warning}")));
        }
        notes.extend(of_setup);
        if self.options.verbose {
            let solver = skt_solver::tuning::TUNING.lines();
            let (comm, store) = (skt_comm::tuning::TUNING, skt_store::tuning::TUNING);
            let checkpoint = skt_checkpoint::tuning::TUNING.lines();
            let lines = [TUNING.lines(), solver, comm.lines(), store.lines(), checkpoint];
            notes.extend(lines.iter().flatten().map(|line| format!("tuning   : {line}")));
        }
        notes
    }
}

impl RunEvents for RunOutput {
    fn announce(&mut self, line: &str) {
        self.progress.phase(line);
    }

    fn step(&mut self, elapsed_seconds: f64, line: &str) {
        self.progress.step(elapsed_seconds, line);
    }

    fn columns(&mut self, done: usize, n: usize, elapsed_seconds: f64) {
        let lines = self.reports.as_mut().and_then(|reports| reports.column_lines.as_mut());
        if let Some(lines) = lines {
            self.progress.clear();
            // A reader that has left misses no result.
            let _ = lines.columns(done, n, elapsed_seconds);
        }
        self.progress.columns(done, n, elapsed_seconds);
    }

    fn saved(&mut self, saved: &Saved) {
        self.progress.saved(saved);
    }

    fn slow(&mut self, named: &Named) {
        self.progress.slow(named.brief());
    }

    fn clear(&mut self) {
        self.progress.clear();
    }

    fn run_begins(
        &mut self,
        spec: &RunSpec,
        facts: RunFacts,
        notes: Vec<String>,
    ) -> Result<(), String> {
        let notes = self.notes(spec, &facts, notes);
        let dgemm = facts.dgemm_self_test.as_ref().map(|test| test.gflops_per_core);
        let blas = facts.environment.blas.words();
        let json = self.options.json.as_ref();
        let json = json.map(|path| JsonReport::create(path, spec, facts)).transpose()?;
        let column_lines = if self.options.progress_report {
            Some(ColumnLines(text::open(&Output::Stdout)?))
        } else {
            None
        };
        let apart = self.options.are_lines_alone.then_some(self.options.verbose);
        let out = Copied { out: text::open(&spec.output)?, apart, copy: Vec::new(), passed: 0 };
        // A process has one run, so its description may live as long as the process.
        let spec: &'static RunSpec = Box::leak(Box::new(spec.clone()));
        let options = TextOptions {
            dgemm_gflops_per_core: dgemm,
            blas,
            detailed_timing: self.options.detailed_timing,
            notes,
        };
        let mut text = TextReport::new(out, spec, options);
        text.header().map_err(unwritten)?;
        self.reports = Some(Reports { text, json, column_lines, is_json_behind: false });
        Ok(())
    }

    fn note(&mut self, note: &str) -> Result<(), String> {
        self.reports().text.note(note).map_err(unwritten)
    }

    fn test_ends(&mut self, record: &TestRecord) -> Result<(), String> {
        let Reports { text, json, is_json_behind, .. } = self.reports();
        text.test(record)
            .map_err(|why| unwritten(why) + "; the tests that are left are not run")?;
        let lines = text.out().take();
        // The text report comes first; the JSON document is written whole each time, so the next
        // test adds this one, too.
        if let Some(Err(why)) = json.as_mut().map(|json| json.test(record, &lines))
            && !std::mem::replace(is_json_behind, true)
        {
            messages::print(format_args!("warning: {why}; it is tried again with each test"));
        }
        Ok(())
    }

    fn run_ends(&mut self) -> Result<bool, String> {
        let Reports { text, json, .. } = self.reports();
        text.summary().map_err(unwritten)?;
        let lines = text.out().take();
        let json = json.as_mut().map_or(Ok(()), |json| json.finish(&lines));
        let print = |why| messages::print(format_args!("error: {why}; the report itself is whole"));
        Ok(json.map_err(print).is_ok())
    }

    fn lines_on_stdout(&self) -> u64 {
        text::lines_on_stdout()
    }
}

fn unwritten(why: io::Error) -> String {
    format!("cannot write the report: {why}")
}

fn idle_ranks(spec: &RunSpec, environment: &Environment) -> Option<String> {
    let ranks: usize = environment.hosts.iter().map(|host| host.ranks).sum();
    let taken = spec.tests().iter().map(TestSpec::ranks).max()?;
    (ranks > taken)
        .then(|| format!("idle     : {} rank(s): the largest grid takes {taken}", ranks - taken))
}
