//! The reports of a run.

use std::io::{self, Write};

use skt_terms::exit::Exit;

use super::options::JobOptions;
use super::setup;
use crate::record::{Counts, RunFacts, TestRecord};
use crate::report::detailed::ColumnLines;
use crate::report::json::{JsonError, JsonReport};
use crate::report::text::{self, TextReport};
use crate::run::tuning::TUNING;
use skt_config::{Output, RunSpec, TestSpec};
use skt_health::environment::Environment;
use skt_host::messages;

/// The reports of a run, on rank 0.
pub(super) struct Reports {
    pub text: TextReport<'static, Copied>,
    json: Option<JsonReport>,
    /// Where each panel gets a line, if that is asked for.
    pub column_lines: Option<ColumnLines<Box<dyn Write + Send>>>,
    /// Whether a test could not be added to the JSON report; the warning is printed only once.
    is_json_behind: bool,
    as_reference: bool,
}

/// The output of the text report, of which the JSON report gets a copy.
pub(super) struct Copied {
    out: Box<dyn Write + Send>,
    /// What has been written since the copy was last taken.
    copy: Vec<u8>,
}

impl Copied {
    fn take(&mut self) -> String {
        String::from_utf8(std::mem::take(&mut self.copy)).expect("reports are text")
    }
}

impl Write for Copied {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.copy.extend_from_slice(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Why a report could not be written.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReportError {
    #[error(transparent)]
    Open(#[from] text::OutputError),
    #[error("cannot write the report: {0}; the tests that are left are not run")]
    Text(#[from] io::Error),
    #[error(transparent)]
    Json(#[from] JsonError),
}

impl Reports {
    pub fn open(
        spec: &RunSpec,
        facts: RunFacts,
        options: &JobOptions,
        of_setup: Vec<String>,
    ) -> Result<Self, ReportError> {
        let mut notes = facts.environment.notes();
        notes.extend(idle_ranks(spec, &facts.environment));
        let self_test = facts.dgemm_self_test.clone();
        if let Some(test) = &self_test {
            let rate = test.gflops_per_core;
            let of_peak = test.peak_gflops_per_core.map_or(String::new(), |peak| {
                format!(", {:.0} % of the {peak:.1} of its multiply-adds", 100.0 * rate / peak)
            });
            notes.push(format!("dgemm    : {rate:.1} Gflop/s a core{of_peak}"));
            notes.extend(test.warnings.iter().map(|warning| format!("warning  : {warning}")));
            if options.as_reference {
                // In the report they come after the first test, which may take hours.
                setup::warn(&test.warnings);
            }
        }
        notes.extend(of_setup);
        if options.verbose {
            let solver = crate::hpl::tuning::TUNING.lines();
            let (comm, checkpoint) = (skt_comm::tuning::TUNING, skt_checkpoint::tuning::TUNING);
            let lines = [TUNING.lines(), solver, comm.lines(), checkpoint.lines()];
            notes.extend(lines.iter().flatten().map(|line| format!("tuning   : {line}")));
        }
        let json = match &options.json {
            Some(path) => Some(JsonReport::create(path, spec, facts)?),
            None => None,
        };
        let column_lines = if options.progress_report {
            Some(ColumnLines(text::open(&Output::Stdout)?))
        } else {
            None
        };
        let out = Copied { out: text::open(&spec.output)?, copy: Vec::new() };
        // A process has one run, so its description may live as long as the process.
        let spec: &'static RunSpec = Box::leak(Box::new(spec.clone()));
        let mut text = TextReport::new(out, spec)
            .with_dgemm(self_test.map(|test| test.gflops_per_core))
            .with_detailed_timing(options.detailed_timing)
            .with_notes(notes)
            .with_late_notes(options.as_reference);
        text.header()?;
        let as_reference = options.as_reference;
        Ok(Self { text, json, column_lines, is_json_behind: false, as_reference })
    }

    pub fn test(&mut self, record: &TestRecord, note: Option<&str>) -> Result<(), ReportError> {
        if let Some(note) = note {
            self.text.note(note)?;
        }
        self.text.test(record)?;
        let lines = self.text.out().take();
        // The text report comes first; the JSON document is written whole each time, so the next
        // test adds this one, too.
        if let Some(Err(why)) = self.json.as_mut().map(|json| json.test(record, &lines))
            && !std::mem::replace(&mut self.is_json_behind, true)
        {
            messages::print(format_args!("warning: {why}; it is tried again with each test"));
        }
        Ok(())
    }

    /// Writes the summary. Returns the exit code, or `None` if the report cannot be written.
    pub fn close(mut self) -> Option<Exit> {
        let counts = match self.text.summary() {
            Ok(counts) => counts,
            Err(why) => {
                messages::print(format_args!("error: cannot write the report: {why}"));
                return None;
            }
        };
        let exit = if self.as_reference { Exit::Passed } else { exit_for(counts) };
        let lines = self.text.out().take();
        match self.json.map_or(Ok(()), |json| json.finish(&lines)) {
            Err(why) => {
                messages::print(format_args!("error: {why}; the report itself is whole"));
                Some(if exit == Exit::Passed { Exit::BadInput } else { exit })
            }
            Ok(()) => Some(exit),
        }
    }
}

/// Says how many ranks no grid takes, if there are any.
fn idle_ranks(spec: &RunSpec, environment: &Environment) -> Option<String> {
    let ranks: usize = environment.hosts.iter().map(|host| host.ranks).sum();
    let taken = spec.tests().iter().map(TestSpec::ranks).max()?;
    (ranks > taken)
        .then(|| format!("idle     : {} rank(s): the largest grid takes {taken}", ranks - taken))
}

fn exit_for(counts: Counts) -> Exit {
    match counts {
        Counts { failed: 1.., .. } => Exit::ResidualFailed,
        Counts { skipped: 1.., .. } => Exit::BadInput,
        _ => Exit::Passed,
    }
}
