use std::io::{self, IsTerminal as _};

use clap::{Args, ValueEnum};
use skt_run::progress::Progress;

/// How progress is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgressMode {
    /// Live if standard error is a terminal, plain otherwise.
    #[default]
    Auto,
    /// No progress.
    Off,
    /// A line every few seconds.
    Plain,
    /// One line that is rewritten in place.
    Live,
}

/// The flags of progress, for each command that shows it.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct ProgressArgs {
    /// When to show progress on standard error
    #[arg(long = "progress", value_name = "HOW", value_enum, default_value_t, id = "progress")]
    pub mode: ProgressMode,
}

impl ProgressArgs {
    pub(super) fn progress(self) -> Progress {
        match self.mode {
            ProgressMode::Off => Progress::off(),
            ProgressMode::Plain => Progress::stderr(false),
            ProgressMode::Live => Progress::stderr(true),
            ProgressMode::Auto => Progress::stderr(io::stderr().is_terminal()),
        }
    }
}
