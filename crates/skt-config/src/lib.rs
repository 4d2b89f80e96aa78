//! From HPL.dat or TOML to one validated [`RunSpec`].
//!
//! HPL.dat ([`hpldat`]), TOML ([`toml`]) and the command line each give a [`Draft`]: values as
//! written, with their line, key or flag. A later draft overrides an earlier one. [`validate()`]
//! turns the result into a [`RunSpec`], or reports what is wrong and where.
//!
//! ```
//! use skt_config::{Format, parse};
//!
//! let text = "n = [1000, 2000]\nnb = 64\np = 2\nq = 2\nbcast = \"1ring\"\n";
//! let checked = parse(text.as_bytes(), "hpl.toml", Format::Toml, false).unwrap();
//! assert_eq!(checked.spec.tests().len(), 2);
//! ```
#![warn(unreachable_pub)]

pub mod checkpoint;
pub mod draft;
pub mod error;
mod field;
mod given_rates;
pub mod hpldat;
pub mod launch;
mod mxp;
pub mod param;
mod pdinfo;
pub mod protection;
mod rates;
pub mod source;
pub mod spec;
pub mod toml;
pub mod validate;
pub mod value;

#[cfg(test)]
mod tests;

use std::path::Path;

pub use checkpoint::{CheckpointDraft, Setting};
pub use draft::Draft;
pub use error::{At, ConfigError, Warning};
pub use launch::{LaunchDraft, LaunchSettings, Launching};
pub use rates::{EQUAL_WITHIN, RateSource};
use serde::{Deserialize, Serialize};
use skt_host::infile;
pub use source::ValueSource;
pub use spec::{
    Bcast, Fact, Form, GemmPrecision, Generator, MxpMatrix, Output, Pin, Pmap, Refinement, RunSpec,
    Swap, TestSpec, Transport,
};
pub use validate::{Checked, ValidationRules, validate};

/// The largest size of a configuration; a larger file is of another kind.
const MAX_FILE_BYTES: u64 = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Format {
    /// The reference's 31 lines.
    #[serde(rename = "HPL.dat")]
    Dat,
    #[serde(rename = "TOML")]
    Toml,
}

impl Format {
    /// The form of a file that is read: `.toml` is TOML, all others are HPL.dat.
    pub fn from_path(path: &Path) -> Format {
        Format::named_by(path).unwrap_or(Format::Dat)
    }

    /// The form that a file's extension names, `.toml` or `.dat`.
    pub fn named_by(path: &Path) -> Option<Format> {
        match path.extension()?.to_ascii_lowercase().to_str()? {
            "toml" => Some(Format::Toml),
            "dat" => Some(Format::Dat),
            _ => None,
        }
    }

    pub fn other(self) -> Format {
        match self {
            Format::Dat => Format::Toml,
            Format::Toml => Format::Dat,
        }
    }
}

/// Reads a file of at most 1 MiB.
pub fn read_bytes(path: &Path) -> Result<Vec<u8>, ConfigError> {
    infile::read(path, MAX_FILE_BYTES)
        .map_err(|source| ConfigError::Read { file: path.display().to_string(), source })
}

/// The text of a configuration, for the record of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigText {
    /// The file, as the user named it.
    pub file: String,
    pub format: Format,
    /// What was read. Bytes that are not UTF-8, which an HPL.dat may have, are replaced by U+FFFD.
    pub text: String,
}

pub fn read_draft(
    bytes: &[u8],
    file: &str,
    format: Format,
    lenient: bool,
) -> Result<(Draft, Vec<Warning>), ConfigError> {
    match format {
        Format::Dat => hpldat::read(bytes, file, lenient),
        Format::Toml => Ok((toml::read(bytes, file)?, Vec::new())),
    }
}

/// `file` is the name in messages. A text with a parameter of HPL-MxP describes a run of HPL-MxP.
pub fn parse(
    bytes: &[u8],
    file: &str,
    format: Format,
    lenient: bool,
) -> Result<Checked, ConfigError> {
    let (draft, mut warnings) = read_draft(bytes, file, format, lenient)?;
    let is_mxp = draft.is_of_mxp();
    let rules = ValidationRules { lenient, ranks: None, source: file, is_mxp };
    let mut checked = validate(&draft, &rules)?;
    warnings.append(&mut checked.warnings);
    checked.warnings = warnings;
    Ok(checked)
}
