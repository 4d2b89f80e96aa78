//! Exit codes.
//!
//! | code | [`Exit`] | who ends so | what the user does | what `skt-hpl launch` does after a job of its own |
//! |---|---|---|---|---|
//! | 0 | `Passed` | `run::job::reports`: the report is whole, all tests passed; every other subcommand that has done its work | nothing | frees the run's memory, 0 |
//! | 1 | `ResidualFailed` | `run::job::reports`: a residual failed; `cli::tune`: that of a trial | doubts the machine, or reports a bug | frees the run's memory, 1 |
//! | 2 | `BadInput` | `cli`: flags, files; `run::job`: what all ranks refuse, and, when the report is whole, tests that were skipped; `cli::run`: an error of one rank that a restart would meet again, or without protection; `supervisor::decisions`: given up for good | changes what the message names | report whole: frees the run's memory, 2; more is lost than can be rebuilt: begins again with `--start-over`; an earlier start was still running: starts again; else 2, and keeps all data |
//! | 75 | `Interrupted` | `cli::run`: an error of one rank of a protected run that may pass; `run::job::error`: ranks or images that are out of reach; `cli::losses`, `comm::mpi`: a loss that the job cannot outlive; `supervisor::decisions`: stopped, out of spares, no room for its files | gives the same command again | looks at the nodes, starts again, on spares for those lost |
//! | 101 | none | `comm::mpi`: a panic, a bug of this program | reports it | as 75 |
//!
//! `launch` goes by the code that the job itself has told last (`report::heartbeat::done`), not by
//! its launcher's. An error of one rank alone ends the job by `Comm::abort`, which tells none; so
//! do a panic, a signal and the loss of a node. `launch` then does as for 75.
//!
//! SIGINT and SIGTERM end a rank by the signal, as SIGKILL does, and the launcher returns a code of
//! its own: 128 and the number of the signal where a rank had it, and 1 where the mpirun of Open
//! MPI 4 itself had it. `launch` ends with 75 after either.

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
