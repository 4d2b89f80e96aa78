//! Errors of studies.

use std::io;
use std::path::Path;

use skt_model::ModelError;

use crate::sim::trace::BadTrace;

/// Why a study has no result.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// A parameter of a model is not legal.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A failure trace cannot be used.
    #[error(transparent)]
    Trace(#[from] BadTrace),
    /// The catalogue has no figure of this name.
    #[error("there is no figure named {name:?}; known figures: {known}")]
    UnknownFigure {
        /// The name.
        name: String,
        /// All names, separated by commas.
        known: String,
    },
    /// A file cannot be read or written.
    #[error("cannot {what} '{file}': {source}")]
    File {
        /// `read`, `write` or `create`.
        what: &'static str,
        /// The file.
        file: String,
        /// The error of the system.
        source: io::Error,
    },
    /// What was asked for cannot be written.
    #[error("{file}: cannot be written: {source}")]
    Write {
        /// The file, or standard output.
        file: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The file exists already and would be lost.
    #[error("{file}: exists already; --force overwrites it")]
    Exists {
        /// The file.
        file: String,
    },
    /// The flags do not go together.
    #[error("{0}")]
    Usage(String),
}

impl StudyError {
    /// Makes the error of a system call that was to `what` (read, write or create) the file `path`.
    pub(crate) fn file(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let file = path.display().to_string();
        move |source| Self::File { what, file, source }
    }
}
