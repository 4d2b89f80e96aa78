//! The options of a job that are not part of the run.

use std::time::Instant;

use crate::protect::RankInRun;
use skt_config::ConfigText;

/// The options of a job that are not part of the run.
#[derive(Debug, Clone, Default)]
pub struct JobOptions {
    /// The text of the configuration, if the run has one.
    pub configuration: Option<ConfigText>,
    /// Variables of this rank's environment that set how many threads it runs, if they count.
    pub thread_variables: Option<String>,
    /// Whether the job behaves as the reference does: tests that fail or are skipped do not show in
    /// the exit code, tests that do not fit into the memory are skipped, and warnings of the
    /// self-test are printed, as the report has them only after the first result.
    pub as_reference: bool,
    /// The name and version of the MPI library.
    pub mpi_library: Option<String>,
    /// The command that prints the readings of the site's meter.
    pub power_command: Option<String>,
    /// The level of that measurement in the methodology of the Green500, as the user names it.
    pub power_level: Option<u8>,
    /// When this process noticed the latest loss that it has outlived.
    pub lost_at: Option<Instant>,
    /// The rank of this process in the run.
    pub rank_in_run: RankInRun,
}
