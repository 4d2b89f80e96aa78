//! Errors of the subcommands that run no benchmark.

use std::io;
use std::path::Path;

use crate::report::reader::ReadError;
use skt_config::ConfigError;
use skt_model::ModelError;

/// An error of a subcommand that runs no benchmark.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// A parameter of a model is not legal.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A configuration is not legal, this machine does not suffice, or standard output is closed.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A report of an earlier run cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A file cannot be read or written.
    #[error("cannot {what} '{file}': {source}")]
    File {
        /// `read` or `write`.
        what: &'static str,
        /// The file.
        file: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The flags do not go together, or the reports lack what is needed.
    #[error("{0}")]
    Usage(String),
}

impl ToolError {
    /// Makes the error of a system call that was to `what` (read or write) the file `path`.
    pub fn file(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let file = path.display().to_string();
        move |source| Self::File { what, file, source }
    }
}
