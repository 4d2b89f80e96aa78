//! What can go wrong in the subcommands that run no benchmark.

use std::io;
use std::path::Path;

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

impl StudyError {
    /// What the system said when it was to `what` (read or write) this file.
    pub fn file(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let file = path.display().to_string();
        move |source| Self::File { what, file, source }
    }
}
