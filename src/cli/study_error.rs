//! What can go wrong in the subcommands that run no benchmark.

use std::io;

use crate::config::ConfigError;
use crate::model::ModelError;
use crate::report::reader::ReadError;

/// An error of one of them.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// A parameter of a model.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A configuration, this machine, or standard output.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A report of an earlier run.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A file.
    #[error("cannot {what} '{file}': {source}")]
    File {
        /// read or write.
        what: &'static str,
        /// The file.
        file: String,
        /// What the system said.
        source: io::Error,
    },
    /// Flags that do not go together, or reports without what is needed.
    #[error("{0}")]
    Usage(String),
}
