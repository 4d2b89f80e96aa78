mod cformat;
mod detailed;
pub(crate) mod hpl_text;
pub mod html;
mod json;
mod mxp;
pub(crate) mod output;
pub mod phases;
// docs/report.md describes the fields.
pub mod reader;
mod run_output;
pub mod text;
pub mod top500;

pub use json::JsonReport;
pub(crate) use run_output::{OutputOptions, RunOutput};
pub use text::TextReport;
