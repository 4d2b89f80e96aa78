//! HPL.dat: 31 positional lines, the form of the reference (`HPL_pdinfo`).
//!
//! The first token or tokens of a line count, the rest is comment. The reference steps through a
//! list by the length of each token plus one, so it misreads lists with leading or double blanks;
//! here any number of blanks separates tokens.

use std::fmt::Write as _;
use std::sync::Arc;

use skt_terms::shown::shown;

use super::draft::Draft;
use super::error::{At, ConfigError, Misplaced, Warning};
use super::labels::{LINES, find_misplaced};
use super::param::{IGNORED, MAX_LIST, PARAMS, Param, in_dat_order};
use super::source::ValueSource;
use super::spec::{Output, RunSpec, clean_title};
use super::validate::{leading_whole, parse_whole};
use super::value::{DatLine, Form, Row, Value};

/// Number of the last lines, whose parameters do not change our storage.
fn ignored_lines() -> usize {
    PARAMS.iter().filter(|info| info.heading == IGNORED).count()
}

/// Reads the text of an HPL.dat. `file` is its name in messages. With `lenient`, text in the
/// position of a number is read as C's `atoi` does, with a warning; ranges are left to
/// [`super::validate()`].
pub fn read(bytes: &[u8], file: &str, lenient: bool) -> Result<(Draft, Vec<Warning>), ConfigError> {
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        let what = "looks like UTF-16; save it as plain text (ASCII or UTF-8)".to_owned();
        return Err(ConfigError::NotAConfig { file: file.to_owned(), what });
    }
    let mut lines = split_lines(bytes);
    let file: Arc<str> = file.into();
    let misplaced = find_misplaced(&lines, &file);
    if lines.len() >= LINES - ignored_lines() {
        // A missing line of these counts as empty.
        lines.resize(lines.len().max(LINES), b"");
    }
    let mut reader = Reader {
        lines,
        next: 0,
        file,
        lenient,
        draft: Draft::default(),
        warnings: misplaced.iter().map(Misplaced::warning).collect(),
    };
    reader.all().map_err(|error| error.explained(misplaced.as_ref()))?;
    reader.draft.misplaced = misplaced;
    Ok((reader.draft, reader.warnings))
}

/// Whether C's `isspace` takes the byte for a blank.
fn is_blank(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

/// Splits text into lines without their ends (`\n` or `\r\n`); there is no empty line after the
/// last.
fn split_lines(bytes: &[u8]) -> Vec<&[u8]> {
    let bytes = bytes.strip_prefix(&[0xef, 0xbb, 0xbf]).unwrap_or(bytes);
    let mut lines: Vec<&[u8]> = bytes.split(|&b| b == b'\n').take(LINES + 1).collect();
    if lines.last().is_some_and(|l| l.is_empty()) {
        lines.pop();
    }
    lines
}

fn tokens(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(is_blank).filter(|t| !t.is_empty())
}

#[derive(Clone, Copy)]
struct Count {
    values: usize,
    line: usize,
}

struct Reader<'a> {
    lines: Vec<&'a [u8]>,
    next: usize,
    file: Arc<str>,
    lenient: bool,
    draft: Draft,
    warnings: Vec<Warning>,
}

impl<'a> Reader<'a> {
    fn all(&mut self) -> Result<(), ConfigError> {
        self.header()?;
        let mut count = None;
        for info in in_dat_order() {
            let Some(dat) = &info.dat else { continue };
            if !info.is_list {
                self.single(info, dat)?;
                continue;
            }
            // One count line serves Ps and Qs.
            if info.setting != Param::Q {
                count = Some(self.count(dat)?);
            }
            self.list(info, dat, count.expect("Ps stand before Qs"))?;
        }
        Ok(())
    }

    /// Takes the next line and its place; `name` is the parameter of that line.
    fn line(&mut self, name: &str) -> Result<(&'a [u8], ValueSource), ConfigError> {
        let Some(&line) = self.lines.get(self.next) else {
            return Err(ConfigError::Short {
                file: self.file.to_string(),
                lines: self.lines.len(),
                missing: self.next + 1,
                name: name.to_owned(),
            });
        };
        self.next += 1;
        Ok((line, ValueSource::Dat { file: self.file.clone(), line: self.next }))
    }

    /// Lines 1 to 4: two free lines, the output file and the device.
    fn header(&mut self) -> Result<(), ConfigError> {
        let (first, _) = self.line("free text")?;
        let (second, _) = self.line("free text")?;
        self.draft.title = Some([first, second].map(|t| clean_title(&String::from_utf8_lossy(t))));
        let (name_line, name_place) = self.line("output file name")?;
        let name_at = At::named("output file name", &name_place);
        let (device_line, device_place) = self.line("device out")?;
        let device_at = At::named("device out", &device_place);
        let legal = "6 (stdout), 7 (stderr), any other number for the file";
        let device = self.whole(device_line, &device_at, legal, |_| true)?;
        self.draft.output = Some(match device {
            6 => Output::Stdout,
            7 => Output::Stderr,
            _ => {
                let name = tokens(name_line).next().unwrap_or_default();
                let named = std::str::from_utf8(name).map_err(|_| "the file name is not UTF-8");
                named.and_then(Output::file).map_err(|what| name_at.error(what))?
            }
        });
        Ok(())
    }

    /// Reads the whole number at the beginning of a line; with leniency, as `atoi` does, if the
    /// result is legal.
    fn whole(
        &mut self,
        line: &[u8],
        at: &At,
        legal: &str,
        is_legal: fn(i128) -> bool,
    ) -> Result<i128, ConfigError> {
        let Some(token) = tokens(line).next() else {
            return Err(ConfigError::Empty { at: at.clone(), legal: legal.to_owned() });
        };
        let text = String::from_utf8_lossy(token);
        let (at, shown, legal) = (at.clone(), shown(&text), legal.to_owned());
        let value = leading_whole(&text);
        let error = match parse_whole(&text) {
            Some(value) if is_legal(value) => return Ok(value),
            Some(_) => return Err(ConfigError::OutOfRange { at, value: shown, legal }),
            None => {
                let (at, value) = (at.clone(), shown.clone());
                ConfigError::NotUnderstood { at, value, wanted: "a whole number", legal }
            }
        };
        if !is_legal(value) {
            return Err(error);
        }
        if !self.lenient {
            return Err(ConfigError::Strict { error: Box::new(error), used: value.to_string() });
        }
        let what = format!("`{shown}` is read as {value}, as the reference does");
        self.warnings.push(Warning { at, what });
        Ok(value)
    }

    fn count(&mut self, dat: &DatLine) -> Result<Count, ConfigError> {
        let (line, place) = self.line(dat.count)?;
        let at = At::named(dat.count, &place);
        let is_legal = |value| (1..=MAX_LIST as i128).contains(&value);
        let values = self.whole(line, &at, &format!("1 to {MAX_LIST}"), is_legal)? as usize;
        self.warn_of_surplus(line, 1, &at, "the values of the list are in the next line");
        Ok(Count { values, line: self.next })
    }

    fn list(&mut self, info: &Row<Param>, dat: &DatLine, count: Count) -> Result<(), ConfigError> {
        let (line, place) = self.line(dat.name)?;
        let mut words = tokens(line).map(String::from_utf8_lossy);
        let mut values = Vec::with_capacity(count.values);
        for got in 0..count.values {
            // If a later value does not begin like a number, it is the comment, and the list is too
            // short. The behaviour of the reference is then undefined, so leniency does not help.
            let word = words.next().unwrap_or_default();
            let numeric = word.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c));
            if word.is_empty() || (got > 0 && !numeric) {
                return Err(self.too_short(info, &place, count, got, &word));
            }
            values.push(Value { text: word.into_owned(), form: Form::Token, place: place.clone() });
        }
        let why = format!("as line {} says", count.line);
        self.warn_of_surplus(line, count.values, &At::param(info.setting, &place), &why);
        self.draft.values.insert(info.setting, values);
        Ok(())
    }

    /// Warns if more values follow the `used` ones at the beginning of a line.
    fn warn_of_surplus(&mut self, line: &[u8], used: usize, at: &At, why: &str) {
        let is_value = |word: &&[u8]| {
            let text = str::from_utf8(word).unwrap_or_default();
            text.parse().is_ok_and(f64::is_finite)
        };
        let surplus = tokens(line).skip(used).take_while(is_value).count();
        if surplus > 0 {
            let what = format!("{used} of {} values used, {why}", used + surplus);
            self.warnings.push(Warning { at: at.clone(), what });
        }
    }

    fn too_short(
        &self,
        info: &Row<Param>,
        place: &ValueSource,
        count: Count,
        got: usize,
        found: &str,
    ) -> ConfigError {
        let at = At::param(info.setting, place);
        if got == 0 {
            return ConfigError::Empty { at, legal: info.legal_in_dat() };
        }
        let Count { values: want, line } = count;
        let found = if found.is_empty() { "end of line".to_owned() } else { shown(found) };
        at.error(format!(
            "{got} of {want} values found (line {line} says {want}); `{found}` is not a number"
        ))
    }

    fn single(&mut self, info: &Row<Param>, dat: &DatLine) -> Result<(), ConfigError> {
        let (line, place) = self.line(dat.name)?;
        let at = At::param(info.setting, &place);
        let Some(word) = tokens(line).next() else {
            if info.heading != IGNORED {
                return Err(ConfigError::Empty { at, legal: info.legal_in_dat() });
            }
            let what =
                format!("no value is given; it has no effect here, {} is reported", info.default);
            self.warnings.push(Warning { at, what });
            return Ok(());
        };
        self.warn_of_surplus(line, 1, &at, "it takes one");
        let text = String::from_utf8_lossy(word).into_owned();
        self.draft.values.insert(info.setting, vec![Value { text, form: Form::Token, place }]);
        Ok(())
    }
}

/// Writes a run as an HPL.dat with the classical comments. Also returns descriptions of what an
/// HPL.dat cannot hold.
///
/// # Errors
/// The name of the report's file has blanks, which HPL.dat cannot hold.
pub fn write(spec: &RunSpec) -> Result<(String, Vec<String>), ConfigError> {
    let (name, device) = match &spec.output {
        Output::Stdout => ("HPL.out", "6"),
        Output::Stderr => ("HPL.out", "7"),
        Output::File(path) => (path.to_str().unwrap_or_default(), "8"),
    };
    if name.is_empty() || name.bytes().any(|b| is_blank(&b)) {
        let what = format!("`{}` has blanks, which HPL.dat cannot hold", shown(name));
        return Err(At::named("output file name", &ValueSource::Default).error(what));
    }
    let mut out = format!("{}\n{}\n", spec.title[0], spec.title[1]);
    line(&mut out, name, "output file name (if any)");
    line(&mut out, device, "device out (6=stdout,7=stderr,file)");
    let mut spec = spec.clone();
    let mut lost = Vec::new();
    for info in in_dat_order() {
        let texts = info.texts(&mut spec);
        let Some(dat) = &info.dat else {
            lost.extend(not_representable(info, &texts));
            continue;
        };
        let code = |text: &String| {
            let code = info.choices.iter().position(|names| names[0] == text);
            code.map_or_else(|| text.clone(), |code| code.to_string())
        };
        let values: Vec<String> = texts.iter().map(code).collect();
        if info.is_list && info.setting != Param::Q {
            // The reference's own file has the first of them with a plural more.
            line(&mut out, values.len(), &dat.count.replace("problem sizes", "problems sizes"));
        }
        line(&mut out, values.join(" "), &info.dat_comment(dat));
    }
    Ok((out, lost))
}

/// What these values of a parameter need in addition to an HPL.dat, unless they are its default.
pub(crate) fn not_representable(info: &Row<Param>, texts: &[String]) -> Option<String> {
    if info.setting == Param::Matrix {
        // A run of HPL has none.
        let matrix = texts.first()?;
        let run = format!("run it by `skt-hpl mxp --matrix {matrix}`");
        return Some(format!("{}: HPL.dat cannot say `{matrix}`; {run}", info.key));
    }
    if texts == info.default_texts() {
        return None;
    }
    let (key, flag, text) = (info.key, info.flag(), texts.join(","));
    let value = match info.choices {
        [] => format!("{text} {key}"),
        _ => format!("`{text}`"),
    };
    Some(format!("{key}: HPL.dat cannot say {value}; add --{flag} {text}"))
}

fn line(out: &mut String, value: impl ToString, comment: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{:<12} {comment}", value.to_string());
}
