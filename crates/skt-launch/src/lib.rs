//! `skt-hpl launch`: starts a job and restarts it after the loss of nodes until it is done (the
//! restart daemon of Tang et al., TPDS 2018, section 6.2).
//!
//! ```text
//! until the job is done, or there is a reason to give up:
//!     probe all nodes                                survey, line, probe, fault
//!     replace the lost in place                      decisions, hosts::pool
//!     start the job on them                          launcher
//!     follow its heartbeats until it ends or hangs   job, watch
//!     decide what comes next                         decisions
//! ```
//!
//! `decisions` decides, `shell` acts. The state is kept in a folder, see [`state`]: if a supervisor
//! is killed, the job continues, and the next supervisor takes it over.
#![warn(unreachable_pub)]

pub mod agent;
mod decisions;
pub mod hosts;
mod input;
mod job;
pub mod launcher;
pub mod line;
pub mod links;
pub mod probe;
pub mod process;
pub mod program;
pub mod report;
pub mod shape;
mod shell;
pub mod state;
mod stop;
pub mod survey;
pub mod watch;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hosts::Pool;
use launcher::Launcher;
use links::addresses::Networks;
use program::Program;
use skt_checkpoint::heartbeat::DataLocation;
use skt_config::LaunchSettings;
use skt_host::exit::Exit;

/// What to run, and how.
#[derive(Debug, Clone, Default)]
pub struct LaunchOptions {
    /// The settings of the command line and of the `[launch]` table.
    pub settings: LaunchSettings,
    pub launcher: Launcher,
    pub networks: Networks,
    /// The agent that the launcher has chosen, if it is not the usual one.
    pub launcher_agent: Option<String>,
    /// Whether all ranks run on this machine, so that no agent is needed.
    pub is_local: bool,
    pub pool: Pool,
    pub ranks: usize,
    pub threads: usize,
    /// Cores per node that are kept from the solver.
    pub helper_cores: usize,
    /// This program's file; each node has it under the same path.
    pub program_file: PathBuf,
    pub program_of_user: Option<Program>,
    /// Arguments of the benchmark, see [`subcommand_words`], or of the user's program as texts of
    /// words.
    pub command: Vec<String>,
    /// The name of the run; for the benchmark, also its name in the store.
    pub run_id: String,
    /// Where the benchmark keeps its data. A program that uses the library reports this itself.
    pub keeps: Option<DataLocation>,
    pub rank_bytes: u64,
    /// Number of lost ranks per group that the code can rebuild.
    pub parities: usize,
    pub is_protected: bool,
    /// Whether the arguments choose what to do with data of earlier starts.
    pub says_resume: bool,
    /// The checkpoint that the first start is to resume from, if the arguments name one.
    pub checkpoint: Option<u64>,
    /// Whether the machine of an earlier supervisor is gone for good, so that its launcher is not
    /// waited for.
    pub head_lost: bool,
    /// For each node in use, in order: whether the checksums can rebuild the data of its ranks.
    pub losable: Vec<bool>,
    pub sharing: SharingLimits,
    /// When the time of the run ends, in seconds since 1970.
    pub end_unix: Option<f64>,
}

impl LaunchOptions {
    pub(crate) fn is_of_program(&self) -> bool {
        self.program_of_user.is_some()
    }

    /// What the numbers in heartbeats count.
    pub(crate) fn place(&self) -> &'static str {
        if self.is_of_program() { "checkpoint" } else { "column" }
    }

    /// Whether a run restarts from scratch when more is lost than can be rebuilt: not where its own
    /// arguments choose how it begins.
    pub(crate) fn starts_over(&self) -> bool {
        self.settings.start_over && !self.says_resume
    }

    /// The agent of probes, if it is not the usual one.
    pub fn agent(&self) -> Option<&str> {
        self.settings.agent.as_deref().or(self.launcher_agent.as_deref())
    }

    /// The longest time that a node may take to answer.
    pub fn probe_limit(&self) -> Duration {
        // ssh, which gets this limit, too, counts the seconds in an `int`.
        Duration::from_secs_f64(self.settings.probe_limit_seconds.min(i32::MAX.into()))
    }
}

/// Which nodes may run the ranks of a lost one as well.
#[derive(Debug, Clone, Default)]
pub struct SharingLimits {
    /// Bytes of memory that a rank needs in all.
    pub rank_bytes: u64,
    /// The order of the largest matrix.
    pub n: Option<usize>,
    /// The group of the rank of each slot of the nodes in use; empty if none is known.
    pub groups: Vec<usize>,
    /// The failure domain of nodes that are not their own.
    pub domains: BTreeMap<String, String>,
    /// The number of ranks of a group that one failure domain should hold at most, or, if
    /// `is_strict`, may hold.
    pub most: usize,
    pub is_strict: bool,
}

impl SharingLimits {
    /// About the N with which a node that has `have_bytes` would have enough, where this one needs
    /// `need_bytes`.
    pub fn fitting_n(&self, have_bytes: u64, need_bytes: u64) -> Option<usize> {
        let share = have_bytes as f64 / need_bytes as f64;
        self.n.filter(|_| have_bytes < need_bytes).map(|n| (n as f64 * share.sqrt()) as usize)
    }
}

/// Why the supervisor cannot begin or continue, in words for its user.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SupervisorError(pub(crate) String);

impl SupervisorError {
    /// Makes the error of a system call for a file.
    pub(crate) fn file(path: &Path) -> impl Fn(io::Error) -> Self {
        move |error| Self(format!("{}: {error}", path.display()))
    }
}

/// The subcommand of this program that the ranks run, with its arguments, from those of the
/// benchmark: flags alone are those of `run`, after a first word `mxp` those of that.
pub fn subcommand_words(command: &[String]) -> impl Iterator<Item = &str> {
    let is_named = command.first().is_some_and(|word| word == "mxp");
    (!is_named).then_some("run").into_iter().chain(command.iter().map(String::as_str))
}

/// Runs the job to its end. A failure of the job is not an error here: the exit code reports it.
pub fn run(options: LaunchOptions) -> Result<Exit, SupervisorError> {
    let failed = |error| SupervisorError(format!("cannot catch signals: {error}"));
    stop::listen().map_err(failed)?;
    shell::Shell::new(options)?.run()
}

#[cfg(test)]
mod tests {
    use skt_store::segments::node_store::NodeStore;

    use crate::probe::{Answer, program_checksum};

    pub(crate) fn with_bytes(run_bytes: u64) -> NodeStore {
        NodeStore { run_bytes, ..NodeStore::default() }
    }

    /// The answer of a healthy node to the first question.
    pub(crate) fn answer() -> Answer {
        Answer {
            host: "n1".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            program: program_checksum(),
            available_bytes: 1 << 30,
            ..Answer::default()
        }
    }
}
