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

    /// The way of ending that has this number; any other number is an error of
    /// the environment.
    pub fn from_code(code: u8) -> Self {
        match code {
            0 => Exit::Passed,
            1 => Exit::ResidualFailed,
            75 => Exit::Interrupted,
            _ => Exit::BadInput,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}
