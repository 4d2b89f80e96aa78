//! `skt-hpl launch`: starts a job and brings it to its end through the loss of
//! nodes (the restart daemon of Tang et al., TPDS 2018, section 6.2).
//!
//! ```text
//! until the job is done, or there is a reason to give up:
//!     probe all nodes                                survey, line, probe, fault
//!     replace the lost in place                      decisions, hosts::pool
//!     start the job on them                          plan
//!     follow its signs of life until it ends         job, follow, watch
//!     or hangs
//!     what now?                                      decisions, after_ending
//! ```
//!
//! `decisions` decides, `shell` acts. The state is in a folder, see [`state`]: if a
//! supervisor is killed, the job goes on, and the next supervisor takes it over.

pub mod after_ending;
mod decisions;
mod fault;
pub mod follow;
pub mod hosts;
mod job;
pub mod launcher;
pub mod line;
pub mod links;
pub mod probe;
pub mod process;
mod refused;
pub mod report;
pub mod shape;
mod shell;
pub mod state;
mod stop;
pub mod survey;
mod terminal;
pub mod watch;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use hosts::Pool;
use launcher::Launcher;
use links::addresses::Networks;
use skt_terms::exit::Exit;
use state::StateError;
use watch::Floors;

/// What is to be run, and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// The program that starts the ranks.
    pub launcher: Launcher,
    /// The launcher's program, if it is not the usual one.
    pub program: Option<String>,
    /// Further arguments for it.
    pub extra: Vec<String>,
    /// The command that reaches a node, if it is not the launcher's usual one.
    pub agent: Option<String>,
    /// The networks that the job uses.
    pub networks: Networks,
    /// All ranks run on this machine: no agent is needed.
    pub is_local: bool,
    /// Nodes.
    pub pool: Pool,
    /// Ranks.
    pub ranks: usize,
    /// Threads of a rank.
    pub threads: usize,
    /// Cores of each node that are kept from the solver.
    pub helper_cores: usize,
    /// This program's file, which the nodes have under the same path.
    pub program_file: PathBuf,
    /// Arguments of the benchmark.
    pub command: Vec<String>,
    /// Name of the run in the store.
    pub run_id: String,
    /// The store.
    pub store: String,
    /// The folders with images, on the nodes' own disks or where all see them.
    pub image_folders: Vec<PathBuf>,
    /// Bytes that the segments of a rank take.
    pub rank_bytes: u64,
    /// Losses that the code can rebuild.
    pub parities: usize,
    /// Whether checkpoints are taken.
    pub is_protected: bool,
    /// Whether the arguments say what to do with older data.
    pub says_resume: bool,
    /// Where the state is kept.
    pub state: PathBuf,
    /// The least limits for the job's silence.
    pub floors: Floors,
    /// Longest time that a node may take to answer.
    pub probe_limit: Duration,
    /// Failures before giving up.
    pub restarts_max: usize,
    /// The machine of an earlier supervisor is gone for good: its launcher is not waited for.
    pub head_lost: bool,
    /// Nodes that failed a probe may be used again.
    pub readmit: bool,
    /// When more is lost than can be rebuilt, start over.
    pub start_over: bool,
    /// When the time of the run ends, in seconds since 1970.
    pub end_unix: Option<f64>,
    /// Where the JSON record of the run goes.
    pub json: Option<PathBuf>,
}

/// Why a supervisor cannot work.
#[derive(Debug, thiserror::Error)]
pub enum SupervisorError {
    /// The state cannot be kept or read.
    #[error(transparent)]
    State(#[from] StateError),
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The launcher cannot be started.
    #[error("cannot start {program}: {source}; is it installed, and in PATH?")]
    Launcher {
        /// Its program.
        program: String,
        /// What the system said.
        source: io::Error,
    },
    /// The agent that reaches the nodes cannot be started.
    #[error(
        "cannot start {agent}, which runs commands on the nodes: {source}; is it installed, and in \
         PATH? --agent names another. Checkpoints are kept: the same command goes on from them"
    )]
    Agent {
        /// Its program.
        agent: String,
        /// What the system said.
        source: io::Error,
    },
    /// The state is of another run.
    #[error(
        "{}: holds an unfinished run with other options ({command}); finish it with those, name \
         another folder with --state, or remove this one", folder.display()
    )]
    OtherRun {
        /// The folder.
        folder: PathBuf,
        /// Its options.
        command: String,
    },
    /// The job runs under a launcher of another machine.
    #[error(
        "the job was started on {host} and may still run there: start `skt-hpl launch` there, or, \
         if that machine is gone for good, here with --head-lost"
    )]
    Elsewhere {
        /// Which.
        host: String,
    },
    /// Signals cannot be caught.
    #[error("cannot catch signals: {0}")]
    Signals(io::Error),
}

/// Runs the job to its end.
///
/// # Errors
/// See [`SupervisorError`]. What goes wrong with the job is no error here, but
/// in the exit code.
pub fn run(options: Options) -> Result<Exit, SupervisorError> {
    stop::listen().map_err(SupervisorError::Signals)?;
    shell::Shell::new(options)?.run()
}
