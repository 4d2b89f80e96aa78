use std::io::{IsTerminal as _, Write as _};

/// A progress bar on standard error, if that is a terminal.
pub(super) struct ProgressBar {
    what: &'static str,
    total: usize,
    visible: bool,
}

impl ProgressBar {
    pub(super) fn new(what: &'static str, total: usize) -> Self {
        Self { what, total, visible: std::io::stderr().is_terminal() }
    }

    pub(super) fn show(&self, done: usize) {
        const WIDTH: usize = 40;
        // Two hundred updates are as smooth as a thousand.
        let step = (self.total / 200).max(1);
        if !self.visible || (!done.is_multiple_of(step) && done != self.total) {
            return;
        }
        let filled = WIDTH * done / self.total.max(1);
        let bar = "#".repeat(filled) + &".".repeat(WIDTH - filled);
        // A progress bar that cannot be written is no error.
        let _ = write!(std::io::stderr(), "\r{} [{bar}] {done}/{}", self.what, self.total);
    }

    pub(super) fn end(&self) {
        if self.visible {
            let _ = writeln!(std::io::stderr());
        }
    }
}
