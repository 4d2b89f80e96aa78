use std::io;
use std::path::Path;

use skt_model::ModelError;

use crate::sim::trace::BadTrace;

#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error(transparent)]
    Trace(#[from] BadTrace),
    #[error("there is no figure named {name:?}; known figures: {known}")]
    UnknownFigure { name: String, known: String },
    #[error("cannot {what} '{file}': {source}")]
    File { what: &'static str, file: String, source: io::Error },
    #[error("{file}: cannot be written: {source}")]
    Write { file: String, source: io::Error },
    #[error("{file}: exists already; --force overwrites it")]
    Exists { file: String },
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
