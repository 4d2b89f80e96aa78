//! What the user sees: messages with their time, the job's lines, a status line.

use std::io::{self, IsTerminal as _, Write as _};

use crate::report::outfile;

/// Standard output and standard error.
#[derive(Debug, Default)]
pub struct Terminal {
    has_status: bool,
}

// A standard error that is closed is no reason to stop, so write errors are ignored.
impl Terminal {
    /// Shows a message with its time, in seconds since the run began.
    pub fn tell(&mut self, seconds: f64, text: &str) {
        self.clear_status();
        let _ = writeln!(io::stderr(), "launch {seconds:9.3} s  {text}");
    }

    /// Shows a line unchanged, with its line end.
    pub fn forward(&mut self, line: &str) {
        self.clear_status();
        let _ = io::stderr().write_all(line.as_bytes());
    }

    /// Writes text of the report to standard output.
    ///
    /// # Errors
    /// The text cannot be written.
    pub fn print(&mut self, text: &str) -> io::Result<()> {
        self.clear_status();
        let mut out = outfile::stdout()?.lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    /// Shows a status line, rewritten in place, if standard error is a terminal.
    pub fn show_status(&mut self, line: &str) {
        if io::stderr().is_terminal() {
            let _ = write!(io::stderr(), "\r\x1b[K{line}");
            self.has_status = true;
        }
    }

    /// Removes the status line.
    pub fn clear_status(&mut self) {
        if std::mem::take(&mut self.has_status) {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
