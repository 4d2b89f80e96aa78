//! Errors of the subcommands that run no benchmark.

use std::io;
use std::path::Path;

use crate::report::reader::ReadError;
use skt_config::ConfigError;
use skt_model::ModelError;

#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("cannot {what} '{file}': {source}")]
    File { what: &'static str, file: String, source: io::Error },
    /// The flags do not go together, or the reports lack what is needed.
    #[error("{0}")]
    Usage(String),
}

impl ToolError {
    /// Makes the error of a system call that was to `what` (read or write) the file `path`.
    pub(crate) fn file(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let file = path.display().to_string();
        move |source| Self::File { what, file, source }
    }
}
