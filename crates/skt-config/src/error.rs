use std::fmt;

use skt_host::shown::shown;

use super::param::Param;
use super::source::ValueSource;
use super::value::Range;

/// Displayed as `HPL.dat:12: Qs`, as `hpl.toml:4: q` or as `--q`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At {
    pub place: ValueSource,
    pub name: String,
}

impl At {
    pub(crate) fn param(param: Param, place: &ValueSource) -> At {
        let info = param.info();
        let name = match place {
            ValueSource::Dat { .. } => info.dat.map_or(info.key, |dat| dat.name).to_owned(),
            ValueSource::Toml { .. } | ValueSource::Default => info.key.to_owned(),
            ValueSource::Flag => format!("--{}", info.flag()),
        };
        At { place: place.clone(), name }
    }

    /// Something that the table of parameters does not contain.
    pub fn named(name: &str, place: &ValueSource) -> At {
        At { place: place.clone(), name: name.to_owned() }
    }

    /// The error that what is given here is not legal: what is wrong and what to do.
    pub fn error(self, what: impl Into<String>) -> ConfigError {
        ConfigError::BadText { at: self, what: what.into() }
    }

    pub fn out_of_range(self, value: impl ToString, legal: impl Into<String>) -> ConfigError {
        self.error(format!("value {} is out of range; legal: {}", value.to_string(), legal.into()))
    }

    pub(crate) fn empty(self, legal: &str) -> ConfigError {
        self.error(format!("no value is given; legal: {legal}"))
    }

    /// `wanted` is `a whole number`, `a number`, or `one of the choices`.
    pub fn not_understood(self, value: &str, wanted: &str, legal: &str) -> ConfigError {
        self.error(format!("`{value}` is not {wanted}; legal: {legal}"))
    }

    /// Refuses a text, given here, that is no number in this range.
    pub(crate) fn check(self, range: Range, text: &str) -> Result<(), ConfigError> {
        let legal = match text.parse::<f64>() {
            _ if range.contains(text) => return Ok(()),
            // The message names even a limit that is too large to be of interest otherwise.
            Ok(number) if number > range.most => format!("{} to {}", range.least, range.most),
            _ => range.to_string(),
        };
        Err(self.out_of_range(shown(text), legal))
    }

    /// A flag, with its dashes.
    pub fn flag(name: &str) -> At {
        At::named(name, &ValueSource::Flag)
    }
}

impl ConfigError {
    /// The error that a value is not legal, but `--lenient` would replace it.
    pub(crate) fn or_lenient(self, used: &str) -> Self {
        Self::Other(format!("{self}; --lenient takes {used} in its place, as the reference does"))
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            ValueSource::Dat { file, line } | ValueSource::Toml { file, line } => {
                write!(f, "{file}:{line}: {}", self.name)
            }
            ValueSource::Flag | ValueSource::Default => f.write_str(&self.name),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("{file}: cannot be read: {source}")]
    Read { file: String, source: std::io::Error },
    #[error("{file}: cannot be written: {source}")]
    Write { file: String, source: std::io::Error },
    #[error("{file}: exists already; --force overwrites it")]
    Exists { file: String },
    /// Something is wrong with a file, or the command line, as a whole.
    #[error("{file}: {what}")]
    NotAConfig { file: String, what: String },
    #[error(
        "{at}: the {p} x {q} grid{} needs {need} ranks, this job has {ranks}; \
         start it on {need} ranks (`mpirun ... -np {need}`) or make {} at most {ranks}",
        with_checksums(*checksums), grid_words(*checksums)
    )]
    TooFewRanks { at: At, p: usize, q: usize, checksums: usize, need: usize, ranks: usize },
    #[error("{at}: {what}")]
    BadText { at: At, what: String },
    /// Something is wrong that has no place: what, and what to do.
    #[error("{0}")]
    Other(String),
}

/// A note about something that was accepted, but that the user should know of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    pub at: At,
    pub what: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.what)
    }
}

/// The words on a grid's checksum columns, after a blank; empty if it has none.
fn with_checksums(checksums: usize) -> String {
    match checksums {
        0 => String::new(),
        1 => " with 1 checksum column".to_owned(),
        count => format!(" with {count} checksum columns"),
    }
}

/// The product that gives the number of ranks of a grid.
fn grid_words(checksums: usize) -> String {
    if checksums == 0 { "P x Q".to_owned() } else { format!("P x (Q + {checksums})") }
}
