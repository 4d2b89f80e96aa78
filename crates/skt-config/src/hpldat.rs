//! HPL.dat: 31 positional lines, the form of the reference (`HPL_pdinfo`).
//!
//! The first token or tokens of a line count, the rest is comment. The reference steps through a
//! list by the length of each token plus one, so it misreads lists with leading or double blanks;
//! here any number of blanks separates tokens.

use std::fmt::Write as _;
use std::sync::Arc;

use skt_terms::shown::shown;

use super::draft::Draft;
use super::error::{At, ConfigError, Misplaced, ValueSource, Warning};
use super::labels::{LINES, find_misplaced};
use super::param::{MAX_LIST, PARAMS, Param, ParamInfo};
use super::spec::{Generator, Output, Pin, RunSpec, Transport, clean_title};
use super::validate::{leading_whole, parse_whole};
use super::value::{Form, Value};

/// The parameters of the last lines, which do not change our storage.
const MOOT: [Param; 4] = [Param::L1, Param::U, Param::Equilibration, Param::Alignment];

/// Reads the text of an HPL.dat. `file` is its name in messages. With `lenient`, text in the
/// position of a number is read as C's `atoi` does, with a warning; ranges are left to
/// [`super::validate()`].
///
/// # Errors
/// The first line that cannot be read, by number.
pub fn read(bytes: &[u8], file: &str, lenient: bool) -> Result<(Draft, Vec<Warning>), ConfigError> {
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        let what = "looks like UTF-16; save it as plain text (ASCII or UTF-8)".to_owned();
        return Err(ConfigError::NotAConfig { file: file.to_owned(), what });
    }
    let mut lines = split_lines(bytes);
    let file: Arc<str> = file.into();
    let misplaced = find_misplaced(&lines, &file);
    if lines.len() >= LINES - MOOT.len() {
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

/// The tokens of a line.
fn tokens(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(is_blank).filter(|t| !t.is_empty())
}

/// The number of values that a count line announces.
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
        let mut grids = None;
        for info in PARAMS.iter().filter(|info| !info.dat_name.is_empty()) {
            match info.param {
                Param::P => {
                    let count = self.count(info)?;
                    grids = Some(count);
                    self.list(info, count)?;
                }
                // One count line serves both lists, so P comes first.
                Param::Q => match grids {
                    Some(count) => self.list(info, count)?,
                    None => unreachable!("Ps stand before Qs"),
                },
                _ if info.is_list => {
                    let count = self.count(info)?;
                    self.list(info, count)?;
                }
                _ => self.single(info)?,
            }
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
                let name = std::str::from_utf8(name).map_err(|_| ConfigError::BadText {
                    at: name_at.clone(),
                    what: "the file name is not UTF-8".to_owned(),
                })?;
                Output::file(name)
                    .map_err(|what| ConfigError::BadText { at: name_at, what: what.to_owned() })?
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

    /// Reads the line with the number of values of the next line.
    fn count(&mut self, info: &ParamInfo) -> Result<Count, ConfigError> {
        let (line, place) = self.line(info.dat_count_name)?;
        let at = At::named(info.dat_count_name, &place);
        let is_legal = |value| (1..=MAX_LIST as i128).contains(&value);
        let values = self.whole(line, &at, &format!("1 to {MAX_LIST}"), is_legal)? as usize;
        self.warn_of_surplus(line, 1, &at, "the values of the list are in the next line");
        Ok(Count { values, line: self.next })
    }

    /// Reads a line with the number of values that its count gives.
    fn list(&mut self, info: &ParamInfo, count: Count) -> Result<(), ConfigError> {
        let (line, place) = self.line(info.dat_name)?;
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
        self.warn_of_surplus(line, count.values, &At::param(info.param, &place), &why);
        self.draft.values.insert(info.param, values);
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
        info: &ParamInfo,
        place: &ValueSource,
        count: Count,
        got: usize,
        found: &str,
    ) -> ConfigError {
        let at = At::param(info.param, place);
        if got == 0 {
            return ConfigError::Empty { at, legal: info.legal(false) };
        }
        ConfigError::FewerValues {
            at,
            want: count.values,
            got,
            count_line: count.line,
            found: if found.is_empty() { "end of line".to_owned() } else { shown(found) },
        }
    }

    /// Reads a line with one value.
    fn single(&mut self, info: &ParamInfo) -> Result<(), ConfigError> {
        let (line, place) = self.line(info.dat_name)?;
        let at = At::param(info.param, &place);
        let Some(word) = tokens(line).next() else {
            if !MOOT.contains(&info.param) {
                return Err(ConfigError::Empty { at, legal: info.legal(false) });
            }
            let what =
                format!("no value is given; it has no effect here, {} is reported", info.default);
            self.warnings.push(Warning { at, what });
            return Ok(());
        };
        self.warn_of_surplus(line, 1, &at, "it takes one");
        let text = String::from_utf8_lossy(word).into_owned();
        self.draft.values.insert(info.param, vec![Value { text, form: Form::Token, place }]);
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
        let at = At::named("output file name", &ValueSource::Default);
        return Err(ConfigError::BadText { at, what });
    }
    let mut out = format!("{}\n{}\n", spec.title[0], spec.title[1]);
    line(&mut out, name, "output file name (if any)");
    line(&mut out, device, "device out (6=stdout,7=stderr,file)");
    list(&mut out, &spec.n, "# of problems sizes (N)", "Ns");
    list(&mut out, &spec.nb, "# of NBs", "NBs");
    line(&mut out, spec.pmap.code(), "PMAP process mapping (0=Row-,1=Column-major)");
    let (ps, qs): (Vec<_>, Vec<_>) = spec.grids.iter().copied().unzip();
    list(&mut out, &ps, "# of process grids (P x Q)", "Ps");
    line(&mut out, joined(&qs), "Qs");
    line(&mut out, format!("{:?}", spec.threshold), "threshold");
    let codes = |facts: &[super::Fact]| facts.iter().map(|f| f.code()).collect::<Vec<_>>();
    list(&mut out, &codes(&spec.pfact), "# of panel fact", "PFACTs (0=left, 1=Crout, 2=Right)");
    list(&mut out, &spec.nbmin, "# of recursive stopping criterium", "NBMINs (>= 1)");
    list(&mut out, &spec.ndiv, "# of panels in recursion", "NDIVs");
    let rfact_comment = "RFACTs (0=left, 1=Crout, 2=Right)";
    list(&mut out, &codes(&spec.rfact), "# of recursive panel fact.", rfact_comment);
    let bcasts: Vec<_> = spec.bcast.iter().map(|b| b.code()).collect();
    let bcast_comment = "BCASTs (0=1rg,1=1rM,2=2rg,3=2rM,4=Lng,5=LnM)";
    list(&mut out, &bcasts, "# of broadcast", bcast_comment);
    list(&mut out, &spec.depth, "# of lookahead depth", "DEPTHs (>=0)");
    line(&mut out, spec.swap.code(), "SWAP (0=bin-exch,1=long,2=mix)");
    line(&mut out, spec.swap_threshold, "swapping threshold");
    let form = "in (0=transposed,1=no-transposed) form";
    line(&mut out, u8::from(!spec.l1_transposed), &format!("L1 {form}"));
    line(&mut out, u8::from(!spec.u_transposed), &format!("U  {form}"));
    line(&mut out, u8::from(spec.equilibration), "Equilibration (0=no,1=yes)");
    line(&mut out, spec.align_doubles, "memory alignment in double (> 0)");
    Ok((out, not_representable(spec)))
}

fn not_representable(spec: &RunSpec) -> Vec<String> {
    let mut lost = Vec::new();
    if spec.generator != Generator::Hpl {
        let name = spec.generator.name();
        lost.push(format!("generator: HPL.dat cannot say `{name}`; add --generator {name}"));
    }
    if spec.threads != 1 {
        let t = spec.threads;
        lost.push(format!("threads: HPL.dat cannot say {t} threads; add --threads {t}"));
    }
    if spec.transport != Transport::Shared {
        let name = spec.transport.name();
        lost.push(format!("transport: HPL.dat cannot say `{name}`; add --transport {name}"));
    }
    if spec.pin != Pin::Auto {
        let name = spec.pin.name();
        lost.push(format!("pin: HPL.dat cannot say `{name}`; add --pin {name}"));
    }
    lost
}

fn line(out: &mut String, value: impl ToString, comment: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{:<12} {comment}", value.to_string());
}

fn list<T: ToString>(out: &mut String, values: &[T], count_comment: &str, comment: &str) {
    line(out, values.len(), count_comment);
    line(out, joined(values), comment);
}

fn joined<T: ToString>(values: &[T]) -> String {
    values.iter().map(T::to_string).collect::<Vec<_>>().join(" ")
}
