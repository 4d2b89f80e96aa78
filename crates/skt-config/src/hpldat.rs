//! HPL.dat: 31 positional lines, the form of the reference (`HPL_pdinfo`).
//!
//! The first token or tokens of a line count, the rest is comment. Any number of blanks separates
//! tokens; with leniency, all is read as the reference reads it, see `pdinfo`.
//!
//! rocHPL-MxP reads an HPL-MxP.dat of 14 lines (`HPLMXP_pinfo`): the first 13 of HPL.dat with one
//! grid, which has no count, then the broadcasts.

use std::fmt::Write as _;
use std::sync::Arc;

use skt_host::shown::{shell_quoted, shown};

use super::draft::Draft;
use super::error::{At, ConfigError, Warning};
use super::param::{IGNORED, MAX_LIST, PARAMS, Param, in_dat_order};
use super::pdinfo::{Buffers, is_blank, tokens};
use super::source::ValueSource;
use super::spec::{Output, RunSpec, clean_title};
use super::validate::{atoi, parse_whole};
use super::value::{DatLine, Form, Row, Value};

/// Number of lines of an HPL.dat.
pub(crate) const LINES: usize = 31;
/// Number of lines of an HPL-MxP.dat.
const MXP_LINES: usize = 14;
const COUNT_OF_GRIDS_LINE: usize = 10;
/// The last line that an HPL-MxP.dat has in common with an HPL.dat, but for the count of grids.
const THRESHOLD_LINE: usize = 13;

/// Reads the text of an HPL.dat, or of an HPL-MxP.dat. `file` is its name in messages. With
/// `lenient`, values are those that the reference reads, with a warning where a line has others or
/// none; ranges are left to [`super::validate()`].
pub fn read(bytes: &[u8], file: &str, lenient: bool) -> Result<(Draft, Vec<Warning>), ConfigError> {
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        let what = "looks like UTF-16; save it as plain text (ASCII or UTF-8)";
        return Err(ConfigError::in_file(file, what));
    }
    let bytes = bytes.strip_prefix(&[0xef, 0xbb, 0xbf]).unwrap_or(bytes);
    let mut lines = split_lines(bytes);
    let file: Arc<str> = file.into();
    let is_mxp = has_mxp_form(&lines);
    // The last lines' parameters do not change our storage.
    let ignored = PARAMS.iter().filter(|info| info.heading == IGNORED).count();
    if lines.len() >= LINES - ignored {
        // A missing line of these counts as empty.
        lines.resize(lines.len().max(LINES), b"");
    }
    let mut reader = Reader {
        lines,
        next: 0,
        file,
        reference: lenient.then(|| Buffers::new(bytes)),
        draft: Draft { has_mxp_form: is_mxp, ..Draft::default() },
        warnings: Vec::new(),
    };
    let read = reader.all();
    read.map_err(|error| reader.draft.explained(error))?;
    reader.warnings.extend(reader.draft.ends_early.clone());
    Ok((reader.draft, reader.warnings))
}

/// Whether lines are those of an HPL-MxP.dat: 14 lines, without the count of grids.
fn has_mxp_form(lines: &[&[u8]]) -> bool {
    let is_blank = |line: &&&[u8]| tokens(line).next().is_none();
    let surplus = lines.iter().rev().take_while(is_blank).count();
    let has_count = |line: &[u8]| String::from_utf8_lossy(line).to_lowercase().contains("grid");
    lines.len() - surplus == MXP_LINES && !has_count(lines[COUNT_OF_GRIDS_LINE - 1])
}

/// Without their ends (`\n` or `\r\n`); there is no empty line after the last.
fn split_lines(bytes: &[u8]) -> Vec<&[u8]> {
    let mut lines: Vec<&[u8]> = bytes.split(|&b| b == b'\n').take(LINES + 1).collect();
    if lines.last().is_some_and(|l| l.is_empty()) {
        lines.pop();
    }
    lines
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
    /// How the reference reads the lines; with leniency alone.
    reference: Option<Buffers<'a>>,
    draft: Draft,
    warnings: Vec<Warning>,
}

impl<'a> Reader<'a> {
    fn all(&mut self) -> Result<(), ConfigError> {
        self.header()?;
        let mut count = None;
        for info in in_dat_order() {
            let Some(dat) = &info.dat else { continue };
            let is_mxp = self.draft.has_mxp_form;
            if is_mxp && dat.line > THRESHOLD_LINE && info.setting != Param::Bcast {
                continue;
            }
            let has_one_grid = is_mxp && matches!(info.setting, Param::P | Param::Q);
            if !info.is_list || has_one_grid {
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
        self.next += 1;
        let place = ValueSource::Dat { file: self.file.clone(), line: self.next };
        let line = match &mut self.reference {
            Some(buffers) => buffers.next_line(),
            None => self.lines.get(self.next - 1).copied(),
        };
        if let Some(line) = line {
            return Ok((line, place));
        }
        if self.reference.is_none() {
            let what = format!(
                "the file ends after line {}; line {} ({name}) is missing (an HPL.dat has 31 lines)",
                self.lines.len(),
                self.next
            );
            return Err(ConfigError::in_file(&self.file, what));
        }
        self.draft.ends_early.get_or_insert_with(|| Warning {
            at: At::named(name, &place),
            what: format!(
                "the file ends after line {} of {LINES}, and the last value is read again, as the \
                 reference does: add the missing lines",
                self.next - 1
            ),
        });
        Ok((b"", place))
    }

    /// The first token of a line; with leniency, what the reference reads.
    fn word(&mut self, line: &[u8], at: &At) -> Option<String> {
        let written = tokens(line).next().map(|word| String::from_utf8_lossy(word).into_owned());
        let Some(buffers) = &mut self.reference else { return written };
        let word = String::from_utf8_lossy(buffers.word()).into_owned();
        if written.as_ref() != Some(&word) {
            let what = format!(
                "no value is given; `{}`, which was read last, is taken, as the reference does",
                shown(&word)
            );
            self.warnings.push(Warning { at: at.clone(), what });
        }
        Some(word)
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

    /// At the beginning of a line; with leniency, as `atoi` reads it, if the result is legal.
    fn whole(
        &mut self,
        line: &[u8],
        at: &At,
        legal: &str,
        is_legal: fn(i128) -> bool,
    ) -> Result<i128, ConfigError> {
        let Some(text) = self.word(line, at) else {
            return Err(at.clone().empty(legal));
        };
        let (at, shown) = (at.clone(), shown(&text));
        let value = i128::from(atoi(&text));
        let is_lenient = self.reference.is_some();
        let error = match parse_whole(&text) {
            Some(whole) if is_legal(whole) && (whole == value || !is_lenient) => return Ok(whole),
            Some(_) => at.clone().out_of_range(&shown, legal),
            None => at.clone().not_understood(&shown, "a whole number", legal),
        };
        if !is_legal(value) {
            return Err(error);
        }
        if !is_lenient {
            return Err(error.or_lenient(&value.to_string()));
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
        let at = At::param(info.setting, &place);
        let words = tokens(line).map(|word| String::from_utf8_lossy(word).into_owned());
        let mut words: Vec<String> = words.take(count.values).collect();
        if let Some(buffers) = &mut self.reference {
            let read = buffers.words(count.values);
            if read != words {
                let read = shown(&read.join(" "));
                let what = format!(
                    "read as `{read}`, as the reference does, which searches for each value where \
                     the last one would end before a single blank"
                );
                self.warnings.push(Warning { at: at.clone(), what });
            }
            words = read;
        } else if let Some(error) = too_short(info, &at, count, &words) {
            return Err(error);
        }
        let why = format!("as given in line {}", count.line);
        self.warn_of_surplus(line, count.values, &at, &why);
        let value = |text| Value { text, form: Form::Token, place: place.clone() };
        self.draft.values.insert(info.setting, words.into_iter().map(value).collect());
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

    fn single(&mut self, info: &Row<Param>, dat: &DatLine) -> Result<(), ConfigError> {
        let (line, place) = self.line(dat.name)?;
        let at = At::param(info.setting, &place);
        let Some(text) = self.word(line, &at) else {
            if info.heading != IGNORED {
                return Err(at.empty(&info.legal_in_dat()));
            }
            let what =
                format!("no value is given; it has no effect here, {} is reported", info.default);
            self.warnings.push(Warning { at, what });
            return Ok(());
        };
        self.warn_of_surplus(line, 1, &at, "it takes one");
        self.draft.values.insert(info.setting, vec![Value { text, form: Form::Token, place }]);
        Ok(())
    }
}

/// The error that a list has fewer values than its count, if it has.
fn too_short(info: &Row<Param>, at: &At, count: Count, words: &[String]) -> Option<ConfigError> {
    // A later value that does not begin like a number is the comment.
    let is_value =
        |word: &&String| word.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c));
    let Some((first, later)) = words.split_first() else {
        return Some(at.clone().empty(&info.legal_in_dat()));
    };
    let Count { values: want, line } = count;
    let got = 1 + later.iter().take_while(is_value).count();
    if got == want {
        return None;
    }
    let found = words.get(got);
    let error = at.clone().error(format!(
        "{got} of {want} values found (line {line} gives {want}); {}",
        found.map_or("then the line ends".to_owned(), |it| format!(
            "`{}` is not a number",
            shown(it)
        ))
    ));
    // At the end of a line, the reference takes the last value again.
    let used = atoi(found.or(later.last()).unwrap_or(first)).to_string();
    let is_legal = info.range.is_none_or(|range| range.contains(&used));
    Some(if is_legal { error.or_lenient(&used) } else { error })
}

/// Writes a run as an HPL.dat with the classical comments, but for [`flags_besides`].
pub fn write(spec: &RunSpec) -> Result<String, ConfigError> {
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
    for info in in_dat_order() {
        let texts = info.texts(&mut spec);
        let Some(dat) = &info.dat else { continue };
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
    Ok(out)
}

/// The flags of what an HPL.dat of this run cannot hold, but for defaults.
pub fn flags_besides(spec: &RunSpec) -> Vec<String> {
    let mut spec = spec.clone();
    let rows = in_dat_order().into_iter().filter(|info| info.dat.is_none());
    let given = rows.map(|info| (info, info.texts(&mut spec)));
    given
        .filter(|(info, texts)| !texts.is_empty() && *texts != info.default_texts())
        .map(|(info, texts)| format!("--{} {}", info.flag(), shell_quoted(&texts.join(","))))
        .collect()
}

fn line(out: &mut String, value: impl ToString, comment: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{:<12} {comment}", value.to_string());
}
