//! What a job is told besides the run itself.

use std::path::PathBuf;
use std::time::Instant;

use crate::report::progress::ProgressMode;
use crate::run::protect::RankInRun;

/// What a job is told besides the run itself.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Where the JSON report goes.
    pub json: Option<PathBuf>,
    /// How progress is shown.
    pub progress: ProgressMode,
    /// Whether the head of the report has the values that were found by measurement.
    pub verbose: bool,
    /// What the MPI library calls itself.
    pub mpi_library: Option<String>,
    /// When this process noticed a loss that it has outlived: the last one.
    pub lost_at: Option<Instant>,
    /// The rank that it has in the run.
    pub rank_in_run: RankInRun,
}
