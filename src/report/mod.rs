//! The output of a run: the reference's text, JSON, progress, and the files that they are written
//! to.

pub mod bundle;
pub mod cformat;
pub mod detailed;
mod heat_map;
pub mod html;
pub mod json;
pub mod measured;
pub mod meter_lines;
pub mod output;
pub mod phases;
pub mod power;
pub mod power_log;
pub mod progress;
pub mod reader;
pub mod record;
pub mod samples;
mod slow;
pub(crate) mod streams;
pub mod text;
pub mod top500;

pub use json::{JsonError, JsonReport, RunFacts};
pub use progress::{Progress, ProgressMode};
pub use record::{Norms, Outcome, TestRecord};
pub use text::{Counts, OutputError, TextReport};
