//! What can be wrong with a configuration, and where.

use std::fmt;
use std::sync::Arc;

use super::param::{Param, ParamInfo};

/// Where a value was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A line of an HPL.dat, counted from 1.
    Dat {
        /// The file, as the user named it.
        file: Arc<str>,
        /// The line.
        line: usize,
    },
    /// A line of a TOML file, counted from 1.
    Toml {
        /// The file, as the user named it.
        file: Arc<str>,
        /// The line.
        line: usize,
    },
    /// The command line.
    Flag,
    /// Nowhere: the default.
    Default,
}

/// A parameter and where it was given; shown as `HPL.dat:12: Qs`, as
/// `hpl.toml:4: q` or as `--q`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At {
    /// Where.
    pub place: Place,
    /// The parameter's name, as it is called there.
    pub name: String,
}

impl At {
    /// A parameter of the table, named as it is called at this place.
    pub fn param(param: Param, place: &Place) -> At {
        let info: &ParamInfo = param.info();
        let name = match place {
            Place::Dat { .. } => info.dat_name.to_owned(),
            Place::Toml { .. } | Place::Default => info.key.to_owned(),
            Place::Flag => info.flag(),
        };
        At { place: place.clone(), name }
    }

    /// Something that is not in the table.
    pub fn named(name: &str, place: &Place) -> At {
        At { place: place.clone(), name: name.to_owned() }
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Dat { file, line } | Place::Toml { file, line } => {
                write!(f, "{file}:{line}: {}", self.name)
            }
            Place::Flag | Place::Default => f.write_str(&self.name),
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
    /// The file is there already and would be lost.
    #[error("{file}: exists already; --force overwrites it")]
    Exists {
        /// The file.
        file: String,
    },
    /// No configuration at all.
    #[error(
        "HPL.dat: not found in {folder}; `skt-hpl init` writes one that fits this machine, \
         --config FILE names another, or give --n (and --p, --q, ...) on the command line"
    )]
    NoConfig {
        /// The current folder.
        folder: String,
    },
    /// The file is not a text of the kind we read.
    #[error("{file}: {what}")]
    NotAConfig {
        /// The file.
        file: String,
        /// What is wrong with it and what to do.
        what: String,
    },
    /// HPL.dat ends too early.
    #[error(
        "{file}: the file ends after line {lines}; line {missing} ({name}) is missing \
         (an HPL.dat has 31 lines)"
    )]
    Short {
        /// The file.
        file: String,
        /// Lines it has.
        lines: usize,
        /// First line that is missing.
        missing: usize,
        /// What belongs there.
        name: String,
    },
    /// Nothing where a value belongs.
    #[error("{at}: no value is given; legal: {legal}")]
    Empty {
        /// Where.
        at: At,
        /// Legal values.
        legal: String,
    },
    /// Not a number, or not one of the names.
    #[error("{at}: `{value}` is not {wanted}; legal: {legal}")]
    NotUnderstood {
        /// Where.
        at: At,
        /// The value found there.
        value: String,
        /// What should: `a whole number`, `a number`, `one of the choices`.
        wanted: &'static str,
        /// Legal values.
        legal: String,
    },
    /// Outside of the legal range.
    #[error("{at}: value {value} is out of range; legal: {legal}")]
    OutOfRange {
        /// Where.
        at: At,
        /// The value.
        value: String,
        /// Legal values.
        legal: String,
    },
    /// What leniency would replace.
    #[error("{error}; --lenient takes {used} in its place, as the reference does")]
    Strict {
        /// What is wrong.
        error: Box<ConfigError>,
        /// What `--lenient` takes instead.
        used: String,
    },
    /// A list shorter than its count.
    #[error(
        "{at}: {got} of {want} values found (line {count_line} says {want}); \
         `{found}` is not a number"
    )]
    FewerValues {
        /// Where.
        at: At,
        /// Values asked for.
        want: usize,
        /// Values found.
        got: usize,
        /// Line of the count.
        count_line: usize,
        /// What is found in place of the next value.
        found: String,
    },
    /// A list longer than 20 values.
    #[error("{at}: {got} values; legal: 1 to 20")]
    TooManyValues {
        /// Where.
        at: At,
        /// Values found.
        got: usize,
    },
    /// Several values where one belongs.
    #[error("{at}: {got} values where one belongs")]
    NotAList {
        /// Where.
        at: At,
        /// Values found.
        got: usize,
    },
    /// Ps and Qs do not pair up.
    #[error("{p_at} has {p_count} values and {q_at} has {q_count}; they pair up, one Q for each P")]
    GridPairs {
        /// Where the Ps are.
        p_at: Box<At>,
        /// How many.
        p_count: usize,
        /// Where the Qs are.
        q_at: Box<At>,
        /// How many.
        q_count: usize,
    },
    /// The grid cannot be derived.
    #[error("{at}: value {value} does not divide the {ranks} ranks; give both --p and --q")]
    NoGrid {
        /// The side of the grid that was given.
        at: At,
        /// Its value.
        value: usize,
        /// Ranks of the job.
        ranks: usize,
    },
    /// More processes than anyone can count.
    #[error("{at}: the {p} x {q} grid has more than 2147483647 processes; legal: P x Q below that")]
    GridTooLarge {
        /// Where.
        at: At,
        /// Process rows.
        p: usize,
        /// Process columns.
        q: usize,
    },
    /// More processes than the job has.
    #[error(
        "{at}: the {p} x {q} grid{} needs {need} ranks, this job has {ranks}; \
         start it on {need} ranks (`mpirun ... -np {need}`) or make {} at most {ranks}",
        with_checksums(*checksums), grid_words(*checksums)
    )]
    TooFewRanks {
        /// Where.
        at: At,
        /// Process rows.
        p: usize,
        /// Process columns.
        q: usize,
        /// Process columns that hold checksums.
        checksums: usize,
        /// `p * (q + checksums)`
        need: usize,
        /// Ranks of the job.
        ranks: usize,
    },
    /// A setting of checkpoints where none are taken.
    #[error("{at}: has no meaning with --ft abft, which takes no checkpoints; leave it out")]
    NoCheckpoints {
        /// Where.
        at: At,
    },
    /// Helper cores that would have nothing to do.
    #[error("{at}: there is nothing for helper cores to do: {why}")]
    NoHelp {
        /// Where.
        at: At,
        /// Why, and what to do.
        why: &'static str,
    },
    /// Levels of images of a method that has none.
    #[error("{at}: levels need --ft self, --ft double or --ft abft; this is {method}")]
    NoImages {
        /// Where.
        at: At,
        /// The method.
        method: String,
    },
    /// An option of images that are written while the solver goes on, of a method that waits
    /// for each.
    #[error(
        "{at}: {option} has no meaning with --ft abft, which waits for each image; leave it out"
    )]
    WaitsForImages {
        /// Where.
        at: At,
        /// The option.
        option: &'static str,
    },
    /// A setting of checksums where there are none.
    #[error("{at}: has no meaning without --ft abft, which has checksums; leave it out")]
    NoChecksums {
        /// Where.
        at: At,
    },
    /// Memory that is kept for losses, and thrown away at each.
    #[error(
        "{at}: goes on from memory, which --resume never does not; to begin anew, remove the memory \
         before (skt-hpl store clean --run NAME)"
    )]
    RecoversFromNothing {
        /// Where.
        at: At,
    },
    /// Checksums in the place of a process column, where that cannot be.
    #[error(
        "{at}: replace takes one checksum column (--parities 1) and one test, as none is left for \
         another; here are {parities} and {tests}. Change that, or take recover"
    )]
    NotReplaced {
        /// Where.
        at: At,
        /// Checksum columns.
        parities: usize,
        /// Tests of the configuration.
        tests: usize,
    },
    /// A wrong number that nothing would notice.
    #[error("--inject {inject}: flips a bit of the matrix, which only --ft abft notices")]
    FlipUnnoticed {
        /// The fault.
        inject: String,
    },
    /// A process row of more ranks than a segment can name.
    #[error(
        "--ft abft: a process row has {width} ranks, checksum columns included; legal: at most \
         {most}. Take a grid of more rows, or another --ft"
    )]
    WideRow {
        /// Ranks of a process row.
        width: usize,
        /// As many are legal.
        most: usize,
    },
    /// A job too small for checksum columns.
    #[error(
        "--ft abft with {checksums} checksum column(s) needs a process column for data beside \
         them, this job has {ranks} rank(s); start it on more, or take fewer --parities"
    )]
    NoDataColumn {
        /// Process columns that hold checksums.
        checksums: usize,
        /// Ranks of the job.
        ranks: usize,
    },
    /// More tests than anyone can wait for, or than can be listed.
    #[error(
        "{file}: the lists make {tests} tests, each value of one with each of all others; legal: \
         at most {most}"
    )]
    TooManyTests {
        /// The file (or `command line`).
        file: String,
        /// Tests.
        tests: u64,
        /// As many are legal.
        most: u64,
    },
    /// A parameter without default was not given.
    #[error("{file}: `{key}` is missing; legal: {legal}")]
    Missing {
        /// The file (or `command line`).
        file: String,
        /// The parameter.
        key: &'static str,
        /// Legal values.
        legal: String,
    },
    /// TOML that cannot be parsed.
    #[error("{file}:{line}: {message}")]
    TomlSyntax {
        /// The file.
        file: String,
        /// The line, from 1.
        line: usize,
        /// The parser's message.
        message: String,
    },
    /// An unknown key.
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
    /// A text (title, file name) that is not allowed where it is.
    #[error("{at}: {what}")]
    BadText {
        /// Where.
        at: At,
        /// What is wrong and what to do.
        what: String,
    },
    /// The machine does not tell what it has, or has too little.
    #[error("{what}")]
    Machine {
        /// What is wrong and what to do.
        what: String,
    },
}

/// Something that was accepted, but that the user should know of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// Where.
    pub at: At,
    /// What was done.
    pub what: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.what)
    }
}

/// What is said of a grid's checksum columns, with a blank before it.
fn with_checksums(checksums: usize) -> String {
    match checksums {
        0 => String::new(),
        1 => " with 1 checksum column".to_owned(),
        count => format!(" with {count} checksum columns"),
    }
}

/// What the ranks of a grid are the product of.
fn grid_words(checksums: usize) -> String {
    if checksums == 0 { "P x Q".to_owned() } else { format!("P x (Q + {checksums})") }
}
