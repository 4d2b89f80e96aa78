//! Errors of configurations, with the places where they are.

use std::fmt;

use super::param::Param;
use super::source::ValueSource;

/// A parameter and where it was given; displayed as `HPL.dat:12: Qs`, as `hpl.toml:4: q` or as
/// `--q`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At {
    /// Where the parameter was given.
    pub place: ValueSource,
    /// The parameter's name at that place.
    pub name: String,
}

impl At {
    /// A parameter of the table, named as it is called at this place.
    pub fn param(param: Param, place: &ValueSource) -> At {
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

    /// The line, in an HPL.dat.
    fn dat_line(&self) -> Option<usize> {
        match self.place {
            ValueSource::Dat { line, .. } => Some(line),
            _ => None,
        }
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

/// Why a configuration was refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{file}: cannot be read: {source}")]
    Read {
        /// The file.
        file: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The file cannot be written.
    #[error("{file}: cannot be written: {source}")]
    Write {
        /// The file.
        file: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The file exists already and would be lost.
    #[error("{file}: exists already; --force overwrites it")]
    Exists {
        /// The file.
        file: String,
    },
    /// A report would replace what another part of the run reads or writes.
    #[error("{file}: is {what}, and a report would replace it; name another file")]
    Replaces {
        /// The report's file.
        file: String,
        /// What the file is.
        what: &'static str,
    },
    /// There is no configuration.
    #[error(
        "HPL.dat: not found in {folder}; `skt-hpl init` writes one that fits this machine, \
         --config FILE names another, or give --n (and --p, --q, ...) on the command line"
    )]
    NoConfig {
        /// The current folder.
        folder: String,
    },
    /// The file is not text of the expected kind.
    #[error("{file}: {what}")]
    NotAConfig {
        /// The file.
        file: String,
        /// What is wrong with it and what to do.
        what: String,
    },
    /// HPL.dat is wrong in or after a line whose label belongs in another one.
    #[error("{}: {} As it stands, {error}", misplaced.at, misplaced.what)]
    Misplaced {
        /// The misplaced line.
        misplaced: Box<Misplaced>,
        /// The error that follows from it.
        error: Box<ConfigError>,
    },
    /// HPL.dat ends too early.
    #[error(
        "{file}: the file ends after line {lines}; line {missing} ({name}) is missing \
         (an HPL.dat has 31 lines)"
    )]
    Short {
        /// The file.
        file: String,
        /// The number of its lines.
        lines: usize,
        /// The first missing line.
        missing: usize,
        /// The parameter of the missing line.
        name: String,
    },
    /// A value is missing.
    #[error("{at}: no value is given; legal: {legal}")]
    Empty {
        /// The parameter.
        at: At,
        /// Legal values.
        legal: String,
    },
    /// The value is not a number, or not one of the names.
    #[error("{at}: `{value}` is not {wanted}; legal: {legal}")]
    NotUnderstood {
        /// The parameter.
        at: At,
        /// The value.
        value: String,
        /// What is expected: `a whole number`, `a number`, or `one of the choices`.
        wanted: &'static str,
        /// Legal values.
        legal: String,
    },
    /// The value is outside of its legal range.
    #[error("{at}: value {value} is out of range; legal: {legal}")]
    OutOfRange {
        /// The parameter.
        at: At,
        /// The value.
        value: String,
        /// Legal values.
        legal: String,
    },
    /// The value is not legal, but `--lenient` would replace it.
    #[error("{error}; --lenient takes {used} in its place, as the reference does")]
    Strict {
        /// The error without `--lenient`.
        error: Box<ConfigError>,
        /// The value that `--lenient` uses.
        used: String,
    },
    /// A list is shorter than its count.
    #[error(
        "{at}: {got} of {want} values found (line {count_line} says {want}); \
         `{found}` is not a number"
    )]
    FewerValues {
        /// The parameter.
        at: At,
        /// Number of values that the count asks for.
        want: usize,
        /// Number of values found.
        got: usize,
        /// The line of the count.
        count_line: usize,
        /// The word in the position of the next value.
        found: String,
    },
    /// A list has more than 20 values.
    #[error("{at}: {got} values; legal: 1 to 20")]
    TooManyValues {
        /// The parameter.
        at: At,
        /// Number of values found.
        got: usize,
    },
    /// Several values are given for a parameter with one value.
    #[error("{at}: {got} values where one belongs")]
    NotAList {
        /// The parameter.
        at: At,
        /// Number of values found.
        got: usize,
    },
    /// The lists of P and of Q do not pair up.
    #[error("{p_at} has {p_count} values and {q_at} has {q_count}; they pair up, one Q for each P")]
    GridPairs {
        /// Where the values of P are.
        p_at: Box<At>,
        /// Number of values of P.
        p_count: usize,
        /// Where the values of Q are.
        q_at: Box<At>,
        /// Number of values of Q.
        q_count: usize,
    },
    /// The grid cannot be derived from the number of ranks.
    #[error("{at}: value {value} does not divide the {ranks} ranks; give both --p and --q")]
    NoGrid {
        /// The dimension of the grid that was given.
        at: At,
        /// The value of that dimension.
        value: usize,
        /// Number of ranks of the job.
        ranks: usize,
    },
    /// The grid has more processes than a C `int` can count.
    #[error("{at}: the {p} x {q} grid has more than 2147483647 processes; legal: P x Q below that")]
    GridTooLarge {
        /// Where the grid was given.
        at: At,
        /// Process rows.
        p: usize,
        /// Process columns.
        q: usize,
    },
    /// The grid needs more processes than the job has.
    #[error(
        "{at}: the {p} x {q} grid{} needs {need} ranks, this job has {ranks}; \
         start it on {need} ranks (`mpirun ... -np {need}`) or make {} at most {ranks}",
        with_checksums(*checksums), grid_words(*checksums)
    )]
    TooFewRanks {
        /// Where the grid was given.
        at: At,
        /// Process rows.
        p: usize,
        /// Process columns.
        q: usize,
        /// Number of process columns that hold checksums.
        checksums: usize,
        /// Number of ranks needed: `p * (q + checksums)`.
        need: usize,
        /// Number of ranks of the job.
        ranks: usize,
    },
    /// A setting of checkpoints is given for a method that takes none.
    #[error("{at}: has no meaning with --ft abft, which takes no checkpoints; leave it out")]
    NoCheckpoints {
        /// The setting.
        at: At,
    },
    /// Helper cores are given that would have nothing to do.
    #[error("{at}: there is nothing for helper cores to do: {why}")]
    NoHelp {
        /// The setting.
        at: At,
        /// Why, and what to do.
        why: &'static str,
    },
    /// Levels of images are given for a method without images.
    #[error(
        "{at}: levels need --ft self, --ft double or --ft abft; this is {method}, so leave them out"
    )]
    NoImages {
        /// The setting.
        at: At,
        /// The method.
        method: String,
    },
    /// An option is given that is only for images written in the background, and the method waits
    /// for each image.
    #[error(
        "{at}: {option} has no meaning with --ft abft, which waits for each image; leave it out"
    )]
    WaitsForImages {
        /// The setting.
        at: At,
        /// The option.
        option: &'static str,
    },
    /// A setting of checksums is given for a method without them.
    #[error("{at}: has no meaning without --ft abft, which has checksums; leave it out")]
    NoChecksums {
        /// The setting.
        at: At,
    },
    /// The memory that `--on-loss` recovers from would be discarded at each loss.
    #[error(
        "{at}: goes on from memory, which --resume never does not; to begin anew, remove the memory \
         before (skt-hpl store clean --run NAME)"
    )]
    RecoversFromNothing {
        /// The setting.
        at: At,
    },
    /// `--on-loss replace` is given, but a checksum column cannot replace a process column here.
    #[error(
        "{at}: replace takes one checksum column (--parities 1) and one test, as none is left for \
         another; here are {parities} and {tests}. Change that, or take recover"
    )]
    NotReplaced {
        /// The setting.
        at: At,
        /// Number of checksum columns.
        parities: usize,
        /// Number of tests of the configuration.
        tests: usize,
    },
    /// `--inject` flips a bit, and nothing would notice it.
    #[error("--inject {inject}: flips a bit of the matrix, which only --ft abft notices")]
    FlipUnnoticed {
        /// The fault.
        inject: String,
    },
    /// A process row has more ranks than a segment can name.
    #[error(
        "--ft abft: a process row has {width} ranks, checksum columns included; legal: at most \
         {most}. Take a grid of more rows, or another --ft"
    )]
    WideRow {
        /// Number of ranks of a process row.
        width: usize,
        /// The largest legal number.
        most: usize,
    },
    /// The job is too small for checksum columns.
    #[error(
        "--ft abft with {checksums} checksum column(s) needs a process column for data beside \
         them, this job has {ranks} rank(s); start it on more, or take fewer --parities"
    )]
    NoDataColumn {
        /// Number of process columns that hold checksums.
        checksums: usize,
        /// Number of ranks of the job.
        ranks: usize,
    },
    /// The lists make more tests than can be listed.
    #[error(
        "{file}: the lists make {tests} tests, each value of one with each of all others; legal: \
         at most {most}"
    )]
    TooManyTests {
        /// The file (or `command line`).
        file: String,
        /// Number of tests.
        tests: u64,
        /// The largest legal number.
        most: u64,
    },
    /// A parameter without a default was not given.
    #[error("{file}: `{key}` is missing; legal: {legal}")]
    Missing {
        /// The file (or `command line`).
        file: String,
        /// The parameter.
        key: &'static str,
        /// Legal values.
        legal: String,
    },
    /// The text is not TOML.
    #[error("{file}:{line}: {message}")]
    TomlSyntax {
        /// The file.
        file: String,
        /// The line, from 1.
        line: usize,
        /// The parser's message.
        message: String,
    },
    /// A key is not known.
    #[error("{file}:{line}: {key}: no such key; {hint}")]
    UnknownKey {
        /// The file.
        file: String,
        /// The line, from 1.
        line: usize,
        /// The key.
        key: String,
        /// The known key most like it, or all of them if none is.
        hint: String,
    },
    /// A text (title, file name) is not legal.
    #[error("{at}: {what}")]
    BadText {
        /// The parameter.
        at: At,
        /// What is wrong and what to do.
        what: String,
    },
    /// The machine does not report what it has, or has too little.
    #[error("{what}")]
    Machine {
        /// What is wrong and what to do.
        what: String,
    },
}

impl ConfigError {
    /// The error with its likely cause, if `misplaced` is one.
    pub(super) fn explained(self, misplaced: Option<&Misplaced>) -> ConfigError {
        match (misplaced, self.dat_line()) {
            (Some(cause), Some(line)) if cause.explains(line) => {
                // Leniency would only use the value of another line.
                let error = match self {
                    ConfigError::Strict { error, .. } => error,
                    error => Box::new(error),
                };
                ConfigError::Misplaced { misplaced: Box::new(cause.clone()), error }
            }
            _ => self,
        }
    }

    /// The line of HPL.dat that is wrong.
    fn dat_line(&self) -> Option<usize> {
        match self {
            ConfigError::Short { missing, .. } => Some(*missing),
            ConfigError::Strict { error, .. } => error.dat_line(),
            ConfigError::Empty { at, .. }
            | ConfigError::NotUnderstood { at, .. }
            | ConfigError::OutOfRange { at, .. }
            | ConfigError::FewerValues { at, .. }
            | ConfigError::BadText { at, .. }
            | ConfigError::GridTooLarge { at, .. }
            | ConfigError::TooFewRanks { at, .. } => at.dat_line(),
            ConfigError::GridPairs { q_at, .. } => q_at.dat_line(),
            _ => None,
        }
    }
}

/// The first line of an HPL.dat whose label belongs in another line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misplaced {
    /// The line to look at, and what it has.
    pub at: At,
    /// What is wrong with it, as a question.
    pub what: String,
    /// The first line that may be wrong: all lines before it are where they belong.
    pub(crate) first_doubtful: usize,
    /// Whether the lines that follow are where they belong.
    pub is_alone: bool,
}

impl Misplaced {
    /// Whether an error in this line follows from the misplaced one.
    fn explains(&self, line: usize) -> bool {
        if self.is_alone { self.at.dat_line() == Some(line) } else { line >= self.first_doubtful }
    }

    /// The warning for a file that is legal nevertheless.
    pub(super) fn warning(&self) -> Warning {
        let what = format!("{} Lines are read by their number, not by their label", self.what);
        Warning { at: self.at.clone(), what }
    }
}

/// A note about something that was accepted, but that the user should know of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The parameter, and where it was given.
    pub at: At,
    /// What was done.
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
