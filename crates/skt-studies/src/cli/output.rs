use std::io;
use std::path::Path;

use crate::plot::Figure;
use skt_host::shown::printable;
use skt_host::{outfile, streams};

use crate::StudyError;

pub(super) fn print(text: &str) -> Result<(), StudyError> {
    let written = streams::print(printable(text).as_bytes());
    written.map_err(|source| StudyError::Write { file: "standard output".into(), source })
}

/// In the format that the extension of `path` names; overwrites an existing file only with `force`.
pub(super) fn write_figure(figure: &Figure, path: &Path, force: bool) -> Result<(), StudyError> {
    let file = path.display().to_string();
    let text = match path.extension().and_then(|extension| extension.to_str()) {
        Some("svg") => figure.svg(),
        Some("csv") => figure.csv(),
        _ => {
            let why = format!("--out {file}: the name must end in .svg or .csv");
            return Err(StudyError::Usage(why));
        }
    };
    let write = if force { outfile::write } else { outfile::write_new };
    write(path, printable(&text).as_bytes()).map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => StudyError::Exists { file },
        _ => StudyError::Write { file, source },
    })
}
