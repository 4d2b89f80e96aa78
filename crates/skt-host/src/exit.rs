//! Exit codes.
//!
//! For each code: where it comes from, what the user does, and what `skt-hpl launch` does after one
//! of its jobs ended with it.
//!
//! - 0, [`Exit::Passed`]. From a whole report of passed tests, and from other subcommands that have
//!   done their work. `launch` frees the run's memory and ends with 0.
//! - 1, [`Exit::ResidualFailed`]. From a residual that failed. The user suspects the machine.
//!   `launch` frees the run's memory and ends with 1.
//! - 2, [`Exit::BadInput`]. From flags and files, what all ranks refuse, tests that were skipped,
//!   and errors that a restart would meet again. The user changes what the message names. `launch`:
//!   if the report is whole, frees the run's memory and ends with 2; if more is lost than can be
//!   rebuilt, starts over with `--start-over`; if an earlier start was still running, starts again;
//!   otherwise ends with 2 and keeps all data.
//! - 75, [`Exit::Interrupted`]. From errors of a protected run that may pass, ranks or images out
//!   of reach, and losses that the job cannot survive. The user gives the same command again.
//!   `launch` probes the nodes and starts again, with spares for lost nodes.
//! - 101, which has no [`Exit`]. From a panic, which the user reports. `launch` acts as after 75.
//!
//! `launch` acts on the last code that the job itself has reported (`heartbeat::done`), not
//! on its launcher's code. None is reported after an error of a single rank, which ends the job by
//! `Comm::abort`, a panic, a signal or the loss of a node: then it acts as after 75.

use std::process::ExitCode;

/// How the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// All tests passed, or a subcommand did its work: code 0.
    Passed,
    /// A residual failed: code 1.
    ResidualFailed,
    /// The input or the environment is bad: code 2.
    BadInput,
    /// The run was interrupted and can be restarted: code 75.
    Interrupted,
    /// A program of the user that `launch` has run ended with this code, by its own decision.
    OfProgram(u8),
}

impl Exit {
    pub fn code(self) -> u8 {
        match self {
            Exit::Passed => 0,
            Exit::ResidualFailed => 1,
            Exit::BadInput => 2,
            Exit::Interrupted => 75,
            Exit::OfProgram(code) => code,
        }
    }

    /// The exit code of the program under the name `xhpl`, where all tests pass: the reference
    /// knows only 0 and 1.
    pub fn reference_code(self) -> u8 {
        match self {
            Exit::BadInput => 1,
            other => other.code(),
        }
    }

    /// The exit with this code; any other code is an error of the environment.
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
