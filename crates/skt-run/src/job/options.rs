//! The options of a job that are not part of the run.

use std::time::Instant;

use crate::power::MeterCommand;
use crate::protect::RankInRun;
use skt_config::ConfigText;
use skt_health::environment::library::ChosenBlas;

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
    /// The BLAS that this process calls.
    pub blas: ChosenBlas,
    /// The name and version of the MPI library.
    pub mpi_library: Option<String>,
    /// The site's power meter, if the user names one.
    pub meter: Option<MeterCommand>,
    /// When this process noticed the latest loss that it has outlived.
    pub lost_at: Option<Instant>,
    /// The rank of this process in the run.
    pub rank_in_run: RankInRun,
}
