//! The output of a run: the reference's text, JSON, progress, and the files that they are written
//! to.

pub mod bundle;
mod cformat;
mod detailed;
mod escape;
mod heat_map;
pub mod html;
mod json;
mod levels;
pub mod measured;
pub(crate) mod output;
pub mod phases;
mod power;
pub mod reader;
mod run_output;
mod slow;
pub mod text;
pub mod top500;

pub use json::JsonReport;
pub use run_output::{OutputOptions, RunOutput};
pub use text::TextReport;
