//! The output of a run: the reference's text, JSON, progress, and the files that they are written
//! to.

#[allow(missing_docs)] // each error has its message
pub mod bundle;
mod cformat;
mod detailed;
mod heat_map;
pub mod html;
mod json;
mod levels;
pub mod measured;
mod mxp;
pub(crate) mod output;
pub mod phases;
mod power;
#[allow(missing_docs)] // docs/report.md describes the fields
pub mod reader;
mod run_output;
mod slow;
pub mod text;
pub mod top500;

pub use json::JsonReport;
pub(crate) use run_output::{OutputOptions, RunOutput};
pub use text::TextReport;
