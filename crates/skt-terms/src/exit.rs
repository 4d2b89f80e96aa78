//! Exit codes.
//!
//! For each code: where it comes from, what the user does, and what `skt-hpl launch` does after one
//! of its jobs ended with it.
//!
//! - 0, [`Exit::Passed`]. From `run::job::reports` if the report is whole and all tests passed,
//!   and from every other subcommand that has done its work. The user does nothing. `launch` frees
//!   the run's memory and ends with 0.
//! - 1, [`Exit::ResidualFailed`]. From `run::job::reports` if a residual failed, and from
//!   `cli::tune` if the residual of a trial failed. The user suspects the machine, or reports a
//!   bug. `launch` frees the run's memory and ends with 1.
//! - 2, [`Exit::BadInput`]. From `cli` for flags and files; from `run::job` for what all ranks
//!   refuse and, when the report is whole, for tests that were skipped; from `cli::run` for an
//!   error of one rank that a restart would meet again, or any without protection; from
//!   `supervisor::decisions` if it gives up for good. The user changes what the message names.
//!   `launch`: if the report is whole, frees the run's memory and ends with 2; if more is lost
//!   than can be rebuilt, starts over with `--start-over`; if an earlier start was still running,
//!   starts again; otherwise ends with 2 and keeps all data.
//! - 75, [`Exit::Interrupted`]. From `cli::run` for an error of one rank of a protected run that
//!   may pass; from `run::job::error` for ranks or images that are out of reach; from
//!   `cli::losses` and `comm::mpi` for a loss that the job cannot survive; from
//!   `supervisor::decisions` if it was stopped, has no spares left, or has no space for its files.
//!   The user gives the same command again. `launch` probes the nodes and starts again, with
//!   spares for lost nodes.
//! - 101, which has no [`Exit`]. From `comm::mpi` for a panic, which is a bug of this program. The
//!   user reports it. `launch` acts as after 75.
//!
//! `launch` acts on the last code that the job itself has reported (`heartbeat::done`), not
//! on its launcher's code. An error of a single rank ends the job by `Comm::abort`, which reports
//! no code; nor is one reported after a panic, a signal or the loss of a node. `launch` then acts
//! as after 75.
//!
//! SIGINT and SIGTERM end a rank by the signal, as SIGKILL does, and the launcher returns a
//! different code: 128 plus the number of the signal if a rank got it, and 1 if the mpirun of Open
//! MPI 4 itself got it. `launch` ends with 75 after either.
//! its own: 128 plus the number of the signal if a rank got it, and 1 if the mpirun of Open MPI 4
//! itself got it. `launch` ends with 75 after either.

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
    /// The exit code.
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
