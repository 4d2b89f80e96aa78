//! HPL under checkpoints: what the run saves, when, and where it goes on.
//!
//! [`crate::checkpoint`] knows nothing of LU and [`crate::pgesv`] nothing of
//! checkpoints; this is where they meet.

mod code;
mod guard;
mod inject;
mod interval;
mod memory;
mod need;
mod settings;

pub use guard::{Opened, Protected, Surroundings, open, segment_bytes};
pub use inject::{Inject, Target, What};
pub use interval::{Every, daly_interval_seconds, parse_seconds};
pub use memory::{NodeMemory, RunInUse, RunLock, found_test, run_bytes, sweep};
pub use need::{geometry, rank_bytes};
pub use settings::{Region, Settings};
