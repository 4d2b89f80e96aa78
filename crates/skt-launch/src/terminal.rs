//! What the user sees: messages with their time, the job's lines, a status line.

use std::io::{self, IsTerminal as _, Write as _};

use skt_terms::shown::printable;

use skt_host::streams;

#[derive(Debug, Default)]
pub(crate) struct Terminal {
    has_status: bool,
    /// Whether the job's last line on standard error, or on a terminal's standard output, is open.
    is_open: bool,
}

// A standard error that is closed is no reason to stop, so write errors are ignored.
impl Terminal {
    /// Shows a message with its time, in seconds since the run began.
    pub(crate) fn message(&mut self, seconds: f64, text: &str) {
        self.clear_status();
        let end = if std::mem::take(&mut self.is_open) { "\n" } else { "" };
        let _ = writeln!(io::stderr(), "{end}launch {seconds:9.3} s  {}", printable(text));
    }

    /// Shows text of the job unchanged.
    pub(crate) fn forward(&mut self, text: &[u8]) {
        self.clear_status();
        self.is_open = !text.ends_with(b"\n");
        let _ = io::stderr().write_all(text);
    }

    /// Writes text of the report to standard output.
    pub(crate) fn print(&mut self, text: &[u8]) -> io::Result<()> {
        self.clear_status();
        let mut out = streams::stdout()?.lock();
        if out.is_terminal() {
            self.is_open = !text.ends_with(b"\n");
        }
        out.write_all(text)?;
        out.flush()
    }

    /// Shows a status line, rewritten in place, if standard error is a terminal. An open line of
    /// the job would be lost by that.
    pub(crate) fn show_status(&mut self, line: &str) {
        if io::stderr().is_terminal() && !self.is_open {
            let _ = write!(io::stderr(), "\r\x1b[K{}", printable(line));
            self.has_status = true;
        }
    }

    pub(crate) fn clear_status(&mut self) {
        if std::mem::take(&mut self.has_status) {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
