//! TOML: the parameters of HPL.dat under readable names, and ours.
//!
//! The keys of HPL.dat are at the top level, each a scalar or, where HPL.dat has a list, a list.
//! The tables `[checkpoint]` and `[launch]` have the settings of the protection and of the
//! launcher, which HPL.dat does not have.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use ::toml::Spanned;
use ::toml::de::{DeTable, DeValue};
use skt_host::shown::shown;
use skt_host::similar;

use super::checkpoint::{CheckpointDraft, SETTINGS, Setting};
use super::draft::Draft;
use super::error::{At, ConfigError};
use super::launch::{LAUNCH, LaunchDraft, Launching};
use super::param::{self, NO_COMMENT, PARAMS, Param, in_dat_order};
use super::source::ValueSource;
use super::spec::{Output, RunSpec, clean_title};
use super::value::{Form, Row, Table, Value, Written};

/// Top-level keys that are not in the table of parameters.
const OTHER_KEYS: [&str; 4] = ["title", "output", "checkpoint", "launch"];

/// Reads the text of a TOML configuration. `file` is its name in messages.
pub fn read(bytes: &[u8], file: &str) -> Result<Draft, ConfigError> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let line = 1 + bytes[..error.valid_up_to()].iter().filter(|&&b| b == b'\n').count();
        ConfigError::in_file(file, format!("line {line} is not UTF-8, which TOML must be"))
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at);
    let reader = Reader { ends: ends.collect(), file: file.into() };
    let table = DeTable::parse(text).map_err(|error| {
        let line = reader.line(error.span().map_or(0, |span| span.start));
        let what = error.message().replace('\n', "; ");
        ConfigError::in_file(format!("{file}:{line}"), what)
    })?;
    let mut draft = Draft::default();
    for (key, value) in table.get_ref() {
        let place = reader.place(key.span().start);
        match key.get_ref().as_ref() {
            "title" => draft.title = Some(reader.title(value, &place)?),
            "output" => draft.output = Some(reader.output(value, &place)?),
            "checkpoint" => {
                let read = Reader::setting;
                draft.checkpoint = reader.table("checkpoint", value, &place, read)?;
            }
            "launch" => {
                let read = Reader::launching_values;
                draft.launch = reader.table("launch", value, &place, read)?;
            }
            name => {
                let info = PARAMS
                    .iter()
                    .find(|info| info.key == name)
                    .ok_or_else(|| reader.unknown_key(name, key.span().start))?;
                let values = reader.values(info.setting, value)?;
                draft.values.insert(info.setting, values);
            }
        }
    }
    Ok(draft)
}

struct Reader {
    /// The offsets of the line ends, to find the line of each of many values.
    ends: Vec<usize>,
    file: Arc<str>,
}

impl Reader {
    fn line(&self, offset: usize) -> usize {
        1 + self.ends.partition_point(|&end| end < offset)
    }

    fn place(&self, offset: usize) -> ValueSource {
        ValueSource::Toml { file: self.file.clone(), line: self.line(offset) }
    }

    fn unknown_key(&self, key: &str, offset: usize) -> ConfigError {
        let params = in_dat_order();
        let keys = OTHER_KEYS.into_iter().chain(params.iter().map(|info| info.key));
        self.unknown(key, offset, hint(key, &keys.collect::<Vec<_>>()))
    }

    fn unknown(&self, key: &str, offset: usize, hint: String) -> ConfigError {
        At::named(&shown(key), &self.place(offset)).error(format!("no such key; {hint}"))
    }

    /// Reads a table below the top level: what `read` makes of each value, by its setting.
    fn table<S: Table, T>(
        &self,
        table: &str,
        value: &Spanned<DeValue<'_>>,
        place: &ValueSource,
        read: fn(&Self, S, &Spanned<DeValue<'_>>) -> Result<T, ConfigError>,
    ) -> Result<BTreeMap<S, T>, ConfigError> {
        let keys: Vec<&str> = S::ROWS.iter().map(|info| info.key).collect();
        let entries = sub_table(table, &keys, value, place)?.iter().map(|(key, value)| {
            let (name, offset) = (key.get_ref().as_ref(), key.span().start);
            let row = S::ROWS.iter().find(|info| info.key == name).ok_or_else(|| {
                self.unknown(&format!("{table}.{name}"), offset, hint(name, &keys))
            })?;
            Ok((row.setting, read(self, row.setting, value)?))
        });
        entries.collect()
    }

    fn setting(
        &self,
        setting: Setting,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<Value, ConfigError> {
        self.scalar(setting.info(), Setting::at, value, "a value")
    }

    fn launching_values(
        &self,
        setting: Launching,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<Vec<Value>, ConfigError> {
        match value.get_ref() {
            DeValue::Array(list) if setting.info().is_list => {
                list.iter().map(|item| self.launching(setting, item)).collect()
            }
            _ => Ok(vec![self.launching(setting, value)?]),
        }
    }

    fn launching(
        &self,
        setting: Launching,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<Value, ConfigError> {
        let place = self.place(value.span().start);
        let found = scalar(value.get_ref());
        let (text, form) =
            found.unwrap_or_else(|| (format!("a {}", value.get_ref().type_str()), Form::Token));
        let value = Value { text, form, place };
        let names = setting.info().names();
        if !setting.info().fits(form) || !(names.is_empty() || names.contains(&value.text.as_str()))
        {
            return Err(setting.wrong(&value));
        }
        Ok(value)
    }

    fn values(
        &self,
        param: Param,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<Vec<Value>, ConfigError> {
        let scalar =
            |value| self.scalar(param.info(), At::param, value, "a value or a list of values");
        match value.get_ref() {
            DeValue::Array(list) if list.is_empty() => {
                let at = At::param(param, &self.place(value.span().start));
                Err(at.empty(&param.info().legal()))
            }
            DeValue::Array(list) => list.iter().map(scalar).collect(),
            _ => Ok(vec![scalar(value)?]),
        }
    }

    fn scalar<S: Table>(
        &self,
        row: &Row<S>,
        at: fn(S, &ValueSource) -> At,
        value: &Spanned<DeValue<'_>>,
        wanted: &'static str,
    ) -> Result<Value, ConfigError> {
        let place = self.place(value.span().start);
        let (text, form) = scalar(value.get_ref()).ok_or_else(|| {
            let given = format!("this {}", value.get_ref().type_str());
            at(row.setting, &place).not_understood(&given, wanted, &row.legal())
        })?;
        Ok(Value { text, form, place })
    }

    fn title(
        &self,
        value: &Spanned<DeValue<'_>>,
        place: &ValueSource,
    ) -> Result<[String; 2], ConfigError> {
        let wrong =
            || At::named("title", place).error("must be one or two strings, each of one line");
        let one_line = |value: &DeValue<'_>| match value.as_str() {
            Some(text) if !text.chars().any(|c| c.is_control() && c != '\t') => {
                Ok(clean_title(text))
            }
            _ => Err(wrong()),
        };
        match value.get_ref() {
            DeValue::Array(lines) if (1..=2).contains(&lines.len()) => {
                let second = lines.get(1).map_or(Ok(String::new()), |l| one_line(l.get_ref()))?;
                match lines.first() {
                    Some(first) => Ok([one_line(first.get_ref())?, second]),
                    None => Err(wrong()),
                }
            }
            line => Ok([one_line(line)?, String::new()]),
        }
    }

    fn output(
        &self,
        value: &Spanned<DeValue<'_>>,
        place: &ValueSource,
    ) -> Result<Output, ConfigError> {
        let named = match value.get_ref().as_str() {
            Some(name) => Output::from_name(name),
            None => Err("must be \"stdout\", \"stderr\" or the name of a file"),
        };
        named.map_err(|what| At::named("output", place).error(what))
    }
}

fn sub_table<'a, 'i>(
    name: &str,
    keys: &[&str],
    value: &'a Spanned<DeValue<'i>>,
    place: &ValueSource,
) -> Result<&'a DeTable<'i>, ConfigError> {
    match value.get_ref() {
        DeValue::Table(table) => Ok(table),
        other => {
            let legal = format!("[{name}] with the keys {}", keys.join(", "));
            let given = format!("this {}", other.type_str());
            Err(At::named(name, place).not_understood(&given, "a table", &legal))
        }
    }
}

/// The text of a scalar; `None` for tables, lists and dates.
fn scalar(value: &DeValue<'_>) -> Option<(String, Form)> {
    Some(match value {
        // The parser returns the digits, however many there are.
        DeValue::Integer(int) if int.radix() == 10 => (int.as_str().to_owned(), Form::Integer),
        DeValue::Integer(int) => {
            let number = i128::from_str_radix(int.as_str(), int.radix()).unwrap_or(i128::MAX);
            (number.to_string(), Form::Integer)
        }
        DeValue::Float(float) => (float.as_str().to_owned(), Form::Float),
        DeValue::String(text) => (text.to_string(), Form::Quoted),
        DeValue::Boolean(flag) => (flag.to_string(), Form::Boolean),
        _ => return None,
    })
}

/// A hint for a key that is none of `keys`: where it belongs, or the nearest of `keys`.
fn hint(key: &str, keys: &[&str]) -> String {
    let top = PARAMS.iter().map(|info| (info.key, "at the top level"));
    let of_checkpoint = SETTINGS.iter().map(|info| (info.key, "in the table [checkpoint]"));
    let of_launch = LAUNCH.iter().map(|info| (info.key, "in the table [launch]"));
    match of_checkpoint.chain(of_launch).chain(top).find(|(known, _)| *known == key) {
        Some((_, place)) => format!("it belongs {place}"),
        None => nearest(key, keys),
    }
}

/// The known key most like `key`, or all of them if none is.
fn nearest(key: &str, keys: &[&str]) -> String {
    let similar = keys.iter().filter_map(|known| {
        Some((similar::edits(key, known)?, key.len().abs_diff(known.len()), *known))
    });
    match similar.min() {
        Some((_, _, known)) => format!("did you mean `{known}`?"),
        None => format!("the keys are {}", keys.join(", ")),
    }
}

/// Writes a run as commented TOML. Every field is written, so that nothing depends on defaults.
pub fn write(spec: &RunSpec) -> String {
    let mut out = String::new();
    let title = [quoted(&spec.title[0]), quoted(&spec.title[1])];
    field(&mut out, "Free text for the report.", "title", list(&title));
    let output = match &spec.output {
        Output::Stdout => quoted("stdout"),
        Output::Stderr => quoted("stderr"),
        Output::File(path) => quoted(&path.to_string_lossy()),
    };
    field(&mut out, "Where the report goes: stdout, stderr, or a file.", "output", output);
    let mut spec = spec.clone();
    let mut section = "";
    // A run of HPL has no choice of its matrix, and none of its products.
    let is_mxp = spec.mxp.is_some();
    let is_written = |info: &&Row<Param>| !info.setting.is_of_mxp() || is_mxp;
    for info in PARAMS.iter().filter(is_written) {
        if section_of(info) != section {
            section = section_of(info);
            let _ = writeln!(out, "\n# {section}"); // writing to a String cannot fail
        }
        out += &lines(info, &info.texts(&mut spec));
    }
    out
}

/// The comment and the line of a parameter with these values.
pub(crate) fn lines(info: &Row<Param>, texts: &[String]) -> String {
    let line = line(info, texts.iter().map(String::as_str));
    let legal = || info.names().join(", ") + &info.legal_range();
    match info.comment {
        NO_COMMENT => line,
        "" => format!("# {}: {}.\n{line}", info.sentence(), info.legal()),
        comment => format!("# {}\n{line}", comment.replace("{legal}", &legal())),
    }
}

/// The line of a setting with these values; without any, a comment with the default.
fn line<'a, S: Table>(info: &Row<S>, texts: impl Iterator<Item = &'a str>) -> String {
    let written = |text: &str| match info.written {
        Written::Whole | Written::Real => text.to_owned(),
        Written::Flag => matches!(text, "yes" | "true").to_string(),
        Written::Text | Written::Time => quoted(text),
    };
    let values: Vec<String> = texts.map(written).collect();
    match &values[..] {
        [] if info.has_default_value() => format!("# {} = {}\n", info.key, written(info.default)),
        [] => format!("# {} = {}\n", info.key, info.default),
        _ if info.is_list => format!("{} = {}\n", info.key, list(&values)),
        [value, ..] => format!("{} = {value}\n", info.key),
    }
}

fn section_of(info: &Row<Param>) -> &'static str {
    match info.heading {
        _ if info.dat.is_none() => "What HPL.dat cannot express.",
        param::PANEL => "The panel.",
        param::COMMUNICATION => "Communication.",
        param::IGNORED => "Accepted and reported, but without effect on this program's storage.",
        _ => "The problem. Lists are run in all combinations.",
    }
}

pub fn write_launch(draft: &LaunchDraft) -> String {
    let heading = "For `skt-hpl launch`, which runs through the loss of nodes; `run` skips it.\n# Lines \
                   that are commented out show the default.\n[launch]";
    write_table(heading, |setting| draft.get(&setting).map(Vec::as_slice))
}

pub fn write_checkpoint(draft: &CheckpointDraft) -> String {
    let heading = "Protection against the loss of nodes. Lines that are commented out show the \
                   default.\n[checkpoint]";
    write_table(heading, |setting| draft.get(&setting).map(std::slice::from_ref))
}

/// Writes a table: the settings that are given, and the others as comments with their defaults.
fn write_table<'a, S: Table>(heading: &str, said: impl Fn(S) -> Option<&'a [Value]>) -> String {
    let mut out = format!("\n# {heading}\n");
    for info in S::ROWS {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "# {}:\n#   {}.", info.help, info.legal());
        let values = said(info.setting).unwrap_or_default();
        out += &line(info, values.iter().map(|value| &*value.text));
    }
    out
}

fn field(out: &mut String, comment: &str, key: &str, value: String) {
    let _ = writeln!(out, "# {comment}\n{key} = {value}");
}

fn quoted(text: &str) -> String {
    ::toml::Value::String(text.to_owned()).to_string()
}

fn list<T: ToString>(values: &[T]) -> String {
    format!("[{}]", values.iter().map(T::to_string).collect::<Vec<_>>().join(", "))
}
