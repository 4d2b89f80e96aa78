//! HPL under checkpoints: what a run saves, when, and where it continues.
//!
//! [`skt_checkpoint::checkpoint`] knows nothing of LU, and [`skt_solver::pgesv`] nothing of
//! checkpoints; this module connects them.

pub mod abft;
mod chosen;
mod clock;
pub mod deadline;
pub mod ended;
mod guard;
mod history;
pub(crate) mod images;
mod inject;
mod interval;
pub mod ledger;
mod recorder;
pub mod result;
mod segments;
mod split;
mod times;
mod unprotected;
mod wrong;

use skt_checkpoint::checkpoint::parameters::{FORMAT, FORMAT_NAME};

pub use chosen::{Chosen, RunBlas};
pub use clock::{Clock, ClockReading};
pub use guard::{Done, Opened, Protected, RankInRun, TestContext, guessed_schedule, open};
pub use inject::FaultInjector;
pub(crate) use interval::panel_flops;
pub use interval::{CheckpointSchedule, GuessedRates, Outlook};
pub use ledger::Beginning;
pub(crate) use ledger::kept_choices;
pub use segments::{
    RankProcess, StoredCheckpoint, TestSegments, checkpoint_config, column_in, left_by_others,
    stored_checkpoints,
};
pub(crate) use segments::{found_test, store_flag, sweep_tests};
pub use skt_checkpoint::checkpoint::level::settings::{LevelSettings, Levels};
pub use skt_checkpoint::time_limit::{SLURM_END, TimeLimit};
pub use skt_config::protection::{Every, Inject, MAX_MEMBERS, Settings, What, read_domains};
pub use skt_host::choice::{OnLoss, Overlap, Region};
pub use skt_store::segments::role::is_mark;
pub use skt_store::segments::{lock as hold, run_bytes, sweep};
pub(crate) use split::{form_groups, format_memory, test_header_layout};
pub use split::{
    header_layout, memory_split, process_rows, segment_bytes, segment_layout, smallest_group,
};
pub use unprotected::Unprotected;

/// The names and numbers of the formats of checkpoints, as a refusal to read another format prints
/// them: a build with the same numbers continues a run of this one.
pub fn formats() -> [(&'static str, u32); 3] {
    [(FORMAT_NAME, FORMAT), guard::STATE_FORMAT, abft::STATE_FORMAT]
}
