//! Exit codes.

use std::process::ExitCode;

/// How the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// All tests passed, or a subcommand did what it was asked: 0.
    Passed,
    /// A residual failed: 1.
    ResidualFailed,
    /// Bad input or environment: 2.
    BadInput,
    /// Interrupted, can be restarted: 75.
    Interrupted,
}

impl Exit {
    /// The number.
    pub fn code(self) -> u8 {
        match self {
            Exit::Passed => 0,
            Exit::ResidualFailed => 1,
            Exit::BadInput => 2,
            Exit::Interrupted => 75,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}
