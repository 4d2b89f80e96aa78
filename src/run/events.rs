//! What a run reports while it goes on. The run knows no report: whoever starts it passes an
//! implementation of [`RunEvents`].

use std::io;
use std::path::PathBuf;

use crate::record::{RunFacts, TestRecord};
use skt_config::RunSpec;
use skt_health::slow::Named;

/// Why a report could not be written.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The file of the text report cannot be created.
    #[error(
        "cannot create the report file '{}' (output file, lines 3 and 4 of an HPL.dat): {source}; \
         name a file in a folder that exists and may be written to, or take device 6 for standard \
         output", path.display()
    )]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The process was started with this stream closed.
    #[error("cannot write the report: {0} is closed; open it, or name a file with --out")]
    Closed(&'static str),
    /// The text report cannot be written any more.
    #[error("cannot write the report: {0}; the tests that are left are not run")]
    Text(#[from] io::Error),
    /// The last lines of the text report cannot be written.
    #[error("cannot write the report: {0}")]
    Summary(io::Error),
    /// The JSON report cannot be written.
    #[error("cannot write the JSON report '{}': {source}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

/// Callbacks about the progress and the results of a run, on its rank 0.
pub trait RunEvents {
    /// Called when something begins that may take a while, with a line about it.
    fn announce(&mut self, _line: &str) {}

    /// Called for work that is not counted in columns, `elapsed_seconds` after its begin, with a
    /// line about it.
    fn step(&mut self, _elapsed_seconds: f64, _line: &str) {}

    /// Called when `done` of `n` columns are eliminated, `elapsed_seconds` after the first start
    /// began.
    fn columns(&mut self, _done: usize, _n: usize, _elapsed_seconds: f64) {}

    /// Called with the ranks that are slow by the windows so far, and the links that were slow
    /// before.
    fn slow(&mut self, _: &Named) {}

    /// Called before a message is printed: removes a line that is rewritten in place.
    fn clear(&mut self) {}

    /// Called before the first test, with `notes` on the setup.
    ///
    /// # Errors
    /// The report cannot be written.
    fn run_begins(
        &mut self,
        _spec: &RunSpec,
        _facts: RunFacts,
        _notes: Vec<String>,
    ) -> Result<(), ReportError> {
        Ok(())
    }

    /// Called with a note on the next tests.
    ///
    /// # Errors
    /// The report cannot be written.
    fn note(&mut self, _note: &str) -> Result<(), ReportError> {
        Ok(())
    }

    /// Called with the record of each test.
    ///
    /// # Errors
    /// The report cannot be written, so that the test does not count as reported.
    fn test_ends(&mut self, _record: &TestRecord) -> Result<(), ReportError> {
        Ok(())
    }

    /// Called after the last test, if all of them have been reported.
    ///
    /// # Errors
    /// The report is not complete; [`ReportError::Json`] if only the JSON report is not.
    fn run_ends(&mut self) -> Result<(), ReportError> {
        Ok(())
    }

    /// Number of lines that have been written to standard output.
    fn lines_on_stdout(&self) -> u64 {
        0
    }
}

/// Ignores everything.
pub struct Silent;

impl RunEvents for Silent {}
