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
    pub fn error(self, what: impl fmt::Display) -> ConfigError {
        ConfigError::in_file(self, what)
    }

    /// The error that the `value` given here is out of range.
    pub fn out_of_range(self, value: impl fmt::Display, legal: impl fmt::Display) -> ConfigError {
        self.error(format!("value {value} is out of range; legal: {legal}"))
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
    /// Something is wrong with a file, or the command line, as a whole.
    pub fn in_file(file: impl fmt::Display, what: impl fmt::Display) -> Self {
        Self::Other(format!("{file}: {what}"))
    }

    /// A file would be overwritten.
    pub fn exists(file: impl fmt::Display) -> Self {
        Self::in_file(file, "exists already; --force overwrites it")
    }

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
    /// The largest grid needs more processes than the job has.
    #[error("{text}")]
    TooFewRanks { need: usize, text: String },
    /// What is wrong, where, and what to do.
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
