//! The reports of a run.

use std::io::Write;

use skt_terms::exit::Exit;

use super::options::Options;
use crate::config::{RunSpec, TestSpec};
use crate::machine::environment::Environment;
use crate::machine::tuning::TUNING;
use crate::report::json::{JsonError, JsonReport, RunFacts};
use crate::report::output;
use crate::report::record::TestRecord;
use crate::report::text::{self, Counts, Report};

/// The reports of a run, on rank 0.
pub(super) struct Reports {
    pub text: Report<'static, Box<dyn Write + Send>>,
    json: Option<JsonReport>,
    /// Whether a test could not be added to the JSON report, which is printed once.
    is_json_behind: bool,
}

/// Why a report could not be written.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReportError {
    #[error(transparent)]
    Open(#[from] text::OutputError),
    #[error("cannot write the report: {0}")]
    Text(#[from] std::io::Error),
    #[error(transparent)]
    Json(#[from] JsonError),
}

impl Reports {
    pub fn open(
        spec: &RunSpec,
        facts: RunFacts,
        options: &Options,
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
        }
        notes.extend(of_setup);
        if options.verbose {
            let lines = TUNING.lines().into_iter().chain(skt_checkpoint::tuning::TUNING.lines());
            notes.extend(lines.map(|line| format!("tuning   : {line}")));
        }
        let json = match &options.json {
            Some(path) => Some(JsonReport::create(path, spec, facts)?),
            None => None,
        };
        let out = text::open(&spec.output)?;
        // A process has one run, so its description may live as long as the process.
        let spec: &'static RunSpec = Box::leak(Box::new(spec.clone()));
        let mut text = Report::new(out, spec)
            .with_dgemm(self_test.map(|test| test.gflops_per_core))
            .with_notes(notes);
        text.header()?;
        Ok(Self { text, json, is_json_behind: false })
    }

    pub fn test(&mut self, record: &TestRecord, note: Option<&str>) -> Result<(), ReportError> {
        if let Some(note) = note {
            self.text.note(note)?;
        }
        self.text.test(record)?;
        // The text report comes first; the JSON document is written whole each time, so the next
        // test adds this one, too.
        if let Some(Err(why)) = self.json.as_mut().map(|json| json.test(record))
            && !std::mem::replace(&mut self.is_json_behind, true)
        {
            output::say(format_args!("warning: {why}; it is tried again with each test"));
        }
        Ok(())
    }

    /// Writes the summary. Returns the exit code, or `None` if the report cannot be written.
    pub fn close(mut self) -> Option<Exit> {
        let counts = match self.text.summary() {
            Ok(counts) => counts,
            Err(why) => {
                output::say(format_args!("error: cannot write the report: {why}"));
                return None;
            }
        };
        let exit = exit_for(counts);
        match self.json.map_or(Ok(()), JsonReport::finish) {
            Err(why) => {
                output::say(format_args!("error: {why}; the report itself is whole"));
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
