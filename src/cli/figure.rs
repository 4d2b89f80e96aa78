//! Writes figures to files.

use std::path::Path;

use super::study_error::StudyError;
use crate::model::plot::Figure;
use crate::report::output;

/// Writes a figure in the form that the file's extension names.
pub(super) fn write(figure: &Figure, path: &Path, force: bool) -> Result<(), StudyError> {
    let text = match path.extension().and_then(|e| e.to_str()) {
        Some("svg") => figure.svg(),
        Some("csv") => figure.csv(),
        _ => {
            return Err(StudyError::Usage(format!(
                "--out {}: the name must end in .svg or .csv",
                path.display()
            )));
        }
    };
    Ok(output::write_file(path, &text, force)?)
}
