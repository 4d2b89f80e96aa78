use skt_host::layout::near_square;
use skt_host::shown::shown;
use skt_host::units::counted;

use super::checkpoint::{CheckpointDraft, checksum_columns};
use super::draft::Draft;
use super::error::{At, ConfigError, Warning};
use super::launch::LaunchDraft;
use super::param::{MAX_LIST, Param, in_dat_order};
use super::source::ValueSource;
use super::spec::RunSpec;
use super::value::{Form, INT_MAX, Row, Value, Written};
use super::{given_rates, mxp};

/// At a second each they take more than a day, and the list of all is still short.
const MAX_TESTS: u64 = 100_000;

#[derive(Debug, Clone, Copy)]
pub struct ValidationRules<'a> {
    /// Whether illegal values of HPL.dat are replaced as the reference does, with a warning. TOML
    /// and flags are always strict, because the reference has neither.
    pub lenient: bool,
    /// Of the job, to derive a grid from if none is given. `None`: a grid must be given.
    pub ranks: Option<usize>,
    /// The name of the configuration, for the message about a missing parameter.
    pub source: &'a str,
    pub is_mxp: bool,
}

/// A legal run, with what the user should know of it.
#[derive(Debug, Clone)]
pub struct Checked {
    pub spec: RunSpec,
    /// Warnings about values that were substituted, ignored or derived.
    pub warnings: Vec<Warning>,
    /// The settings of checkpoints as given; checked by [`crate::protection::Settings`].
    pub checkpoint: CheckpointDraft,
    /// The settings of the launcher as given; checked by `skt-hpl launch`.
    pub launch: LaunchDraft,
    /// Where the grids were given, see [`Checked::require_ranks`].
    grid_place: ValueSource,
}

impl Checked {
    pub fn require_ranks(&self, ranks: usize) -> Result<(), ConfigError> {
        // Of equally large grids, the first is named.
        let checksums = self.spec.checksums;
        let need = |&(p, q): &(usize, usize)| p * (q + checksums);
        match self.spec.grids.iter().rev().max_by_key(|grid| need(grid)) {
            Some(grid @ &(p, q)) if need(grid) > ranks => {
                let (at, need) = (At::param(Param::P, &self.grid_place), need(grid));
                let with = match checksums {
                    0 => String::new(),
                    _ => format!(" with {}", counted(checksums, "checksum column")),
                };
                let text = format!(
                    "{at}: the {p} x {q} grid{with} needs {need} ranks, this job has {ranks}: start \
                     it on {need}"
                );
                Err(ConfigError::TooFewRanks { need, text })
            }
            _ => Ok(()),
        }
    }
}

/// Checks a draft and fills in defaults.
pub fn validate(draft: &Draft, rules: &ValidationRules) -> Result<Checked, ConfigError> {
    check(draft, rules).map_err(|error| draft.explained(error))
}

fn check(draft: &Draft, rules: &ValidationRules) -> Result<Checked, ConfigError> {
    if rules.is_mxp {
        mxp::refuse_checksums(draft)?;
    } else {
        mxp::refuse_form(draft, rules.source)?;
    }
    let mut c = Checker { draft, rules, warnings: Vec::new() };
    let title = draft
        .title
        .clone()
        .unwrap_or_else(|| ["HPLinpack benchmark input file".to_owned(), "skt-hpl".to_owned()]);
    let mut spec = RunSpec {
        title,
        output: draft.output.clone().unwrap_or_default(),
        checksums: checksum_columns(&draft.checkpoint),
        ..RunSpec::default()
    };
    for row in in_dat_order() {
        match (row.setting, row.field) {
            (Param::P, _) => spec.grids = c.grids()?,
            (param, _) if param.is_of_mxp() && !rules.is_mxp => mxp::refuse(param, draft)?,
            (_, Some(field)) => {
                let texts = c.texts(row)?;
                field(&mut spec).set(&texts).expect("a checked text");
            }
            // With P.
            (_, None) => {}
        }
    }
    if spec.checksums > 0
        && let Some(&depth) = spec.depth.iter().find(|&&depth| depth > 1)
    {
        // With a look-ahead of two, a column has panels that its checksums do not have yet.
        let at = At::param(Param::Depth, &draft.place(Param::Depth));
        return Err(at.out_of_range(depth, "0 or 1, with --ft abft"));
    }
    given_rates::settle(&mut spec, draft)?;
    if rules.is_mxp {
        c.warnings.extend(mxp::settle(&mut spec, draft)?);
    }
    let tests = spec.test_count();
    if tests > MAX_TESTS {
        let what = format!(
            "the lists make {tests} tests, each value of one with each of all others; legal: at \
             most {MAX_TESTS}"
        );
        return Err(ConfigError::in_file(rules.source, what));
    }
    let (checkpoint, launch) = (draft.checkpoint.clone(), draft.launch.clone());
    let grid_place = draft.place(Param::P);
    Ok(Checked { spec, warnings: c.warnings, checkpoint, launch, grid_place })
}

struct Checker<'a> {
    draft: &'a Draft,
    rules: &'a ValidationRules<'a>,
    warnings: Vec<Warning>,
}

impl Checker<'_> {
    /// The values of a parameter as given, or its default; none if that is in words.
    fn given(&self, info: &Row<Param>) -> Result<Vec<Value>, ConfigError> {
        let Some(values) = self.draft.values.get(&info.setting) else {
            if info.default.is_empty() {
                let what = format!("`{}` is missing; legal: {}", info.key, info.legal());
                return Err(ConfigError::in_file(self.rules.source, what));
            }
            let value = |text| Value { text, form: Form::Token, place: ValueSource::Default };
            return Ok(info.default_texts().into_iter().map(value).collect());
        };
        let at = || At::param(info.setting, &self.draft.place(info.setting));
        match values.len() {
            0 => Err(at().empty(&info.legal())),
            1 => Ok(values.clone()),
            got if !info.is_list => Err(at().error(format!("{got} values where one belongs"))),
            got if got > MAX_LIST => {
                Err(at().error(format!("{got} values; legal: 1 to {MAX_LIST}")))
            }
            _ => Ok(values.clone()),
        }
    }

    /// The values of a parameter, each a text that its field reads.
    fn texts(&mut self, row: &Row<Param>) -> Result<Vec<String>, ConfigError> {
        let values = self.given(row)?;
        let text = |value: &Value| match row.written {
            Written::Real => Ok(format!("{:?}", self.real(row, value)?)),
            Written::Text if row.choices.is_empty() => match value.text.as_str() {
                "" => Err(At::param(row.setting, &value.place).empty(&row.legal())),
                text => Ok(text.to_owned()),
            },
            _ => {
                let index = self.checked(row, value)?;
                Ok(row.choices.get(index).map_or_else(|| index.to_string(), |c| c[0].to_owned()))
            }
        };
        values.iter().map(text).collect()
    }

    fn wholes(&mut self, param: Param) -> Result<Vec<usize>, ConfigError> {
        self.given(param.info())?.iter().map(|value| self.checked(param.info(), value)).collect()
    }

    fn real(&mut self, row: &Row<Param>, value: &Value) -> Result<f64, ConfigError> {
        let error = match as_real(row, value) {
            Ok(real) => return Ok(real),
            Err(error) => error,
        };
        let text = format!("{:?}", atof(&value.text));
        match as_real(row, &Value { text, ..value.clone() }) {
            Ok(real) if is_of_dat(value) => {
                self.substituted(row, value, format!("{real:?}"), error)?;
                Ok(real)
            }
            _ => Err(error),
        }
    }

    /// Checks a whole number or a choice, and returns the number or the index.
    fn checked(&mut self, info: &Row<Param>, value: &Value) -> Result<usize, ConfigError> {
        let error = match as_index(info, value) {
            Ok(index) => return Ok(index),
            Err(error) => error,
        };
        if !is_of_dat(value) {
            return Err(error);
        }
        // C's `atoi` reads the text, then the reference checks the result.
        let text = atoi(&value.text).to_string();
        let read = Value { text, ..value.clone() };
        let substitute = info.dat.and_then(|dat| dat.substitute);
        let index = match (as_index(info, &read), substitute) {
            (Ok(index), _) => index,
            (Err(_), Some(substitute)) => substitute,
            (Err(_), None) => return Err(error),
        };
        let used = match info.choices.get(index) {
            Some(names) => format!("{index} ({})", names[0]),
            None => index.to_string(),
        };
        self.substituted(info, value, used, error)?;
        Ok(index)
    }

    /// Warns that `used` replaces an illegal value. Without leniency the error stays, and names the
    /// replacement.
    fn substituted(
        &mut self,
        info: &Row<Param>,
        value: &Value,
        used: String,
        error: ConfigError,
    ) -> Result<(), ConfigError> {
        if !self.rules.lenient {
            return Err(error.or_lenient(&used));
        }
        let text = shown(&value.text);
        let legal = info.legal_in_dat();
        let what =
            format!("`{text}` is not legal ({legal}); {used} is used, as the reference does");
        self.warnings.push(Warning { at: At::param(info.setting, &value.place), what });
        Ok(())
    }

    /// If P and Q are not given, the grid nearest to a square that holds all ranks.
    fn grids(&mut self) -> Result<Vec<(usize, usize)>, ConfigError> {
        let has = |param| self.draft.values.contains_key(&param);
        let (ps, qs) = match (has(Param::P), has(Param::Q), self.rules.ranks) {
            (false, false, Some(ranks)) => {
                let (p, q) = self.grid_of(ranks)?;
                (vec![p], vec![q])
            }
            (true, false, Some(ranks)) => {
                let ps = self.wholes(Param::P)?;
                let qs = self.other_side(Param::P, &ps, ranks)?;
                (ps, qs)
            }
            (false, true, Some(ranks)) => {
                let qs = self.wholes(Param::Q)?;
                (self.other_side(Param::Q, &qs, ranks)?, qs)
            }
            _ => (self.wholes(Param::P)?, self.wholes(Param::Q)?),
        };
        let p_at = At::param(Param::P, &self.draft.place(Param::P));
        let q_at = At::param(Param::Q, &self.draft.place(Param::Q));
        if ps.len() != qs.len() {
            return Err(ConfigError::Other(format!(
                "{p_at} has {} and {q_at} has {}; they pair up, one Q for each P",
                counted(ps.len(), "value"),
                qs.len()
            )));
        }
        if let Some((&p, &q)) = ps.iter().zip(&qs).find(|(p, q)| **p * **q > INT_MAX) {
            return Err(q_at.error(format!(
                "the {p} x {q} grid has more than {INT_MAX} processes; legal: P x Q below that"
            )));
        }
        Ok(ps.into_iter().zip(qs).collect())
    }

    /// The grid of all ranks with P at most Q that is nearest to a square.
    fn grid_of(&self, ranks: usize) -> Result<(usize, usize), ConfigError> {
        let checksums = checksum_columns(&self.draft.checkpoint);
        if checksums == 0 {
            return Ok(near_square(ranks));
        }
        let grids = (1..=ranks).filter(|p| ranks.is_multiple_of(*p) && ranks / p > checksums);
        let grids: Vec<_> = grids.map(|p| (p, ranks / p - checksums)).collect();
        let flat = grids.iter().rev().find(|(p, q)| p <= q);
        flat.or(grids.first()).copied().ok_or_else(|| {
            ConfigError::Other(format!(
                "--ft abft with {checksums} checksum column(s) needs a process column for data \
                 in addition to them, this job has {ranks} rank(s); start it on more, or take fewer \
                 --parities"
            ))
        })
    }

    /// The dimension of each grid that was not given, from the number of ranks.
    fn other_side(
        &self,
        given: Param,
        sides: &[usize],
        ranks: usize,
    ) -> Result<Vec<usize>, ConfigError> {
        let checksums = checksum_columns(&self.draft.checkpoint);
        let side = |&value: &usize| match given {
            Param::Q if ranks.is_multiple_of(value + checksums) => Ok(ranks / (value + checksums)),
            Param::P if ranks.is_multiple_of(value) && ranks / value > checksums => {
                Ok(ranks / value - checksums)
            }
            _ => {
                let what = format!(
                    "value {value} does not divide the {ranks} ranks; give both --p and --q"
                );
                Err(At::param(given, &self.draft.place(given)).error(what))
            }
        };
        sides.iter().map(side).collect()
    }
}

/// Parses a whole number with an optional sign, and nothing else. Numbers beyond 128 bits become
/// the smallest or the largest, which is out of any range as well.
pub(crate) fn parse_whole(text: &str) -> Option<i128> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let end = if text.starts_with('-') { i128::MIN } else { i128::MAX };
    Some(text.parse().unwrap_or(end))
}

/// Reads a text as `atoi` of the GNU C library does: its leading whole number, else 0, of which an
/// `int` keeps the last 32 bits.
pub(crate) fn atoi(text: &str) -> i32 {
    let sign = usize::from(text.starts_with(['+', '-']));
    let digits = text[sign..].bytes().take_while(u8::is_ascii_digit).count();
    let number = parse_whole(&text[..sign + digits]).unwrap_or(0);
    number.clamp(i64::MIN.into(), i64::MAX.into()) as i32
}

/// Reads a text as C's `atof` does: its leading number, else 0; the largest number for infinity.
fn atof(text: &str) -> f64 {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_hexadecimal = digits.get(..2).is_some_and(|start| start.eq_ignore_ascii_case("0x"));
    let number = if is_hexadecimal {
        let sign = if text.starts_with('-') { -1.0 } else { 1.0 };
        sign * leading_hexadecimal(&digits[2..])
    } else {
        // The text of a double is shorter; the bound keeps the search short.
        let ascii = text.bytes().take(64).take_while(u8::is_ascii).count();
        (1..=ascii).rev().find_map(|end| text[..end].parse().ok()).unwrap_or(0.0)
    };
    number.clamp(f64::MIN, f64::MAX)
}

/// The number at the beginning of what follows `0x`, else 0: `1.8p4` is 24.
fn leading_hexadecimal(text: &str) -> f64 {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_hexdigit).count();
    let (whole, rest) = text.split_at(digits(text));
    let fraction = rest.strip_prefix('.').map_or("", |rest| &rest[..digits(rest)]);
    let rest = rest.strip_prefix('.').map_or(rest, |rest| &rest[fraction.len()..]);
    let power = rest.strip_prefix(['p', 'P']).map_or(0, atoi);
    let value = whole.chars().chain(fraction.chars()).filter_map(|digit| digit.to_digit(16));
    let value = value.fold(0.0, |value, digit| value * 16.0 + f64::from(digit));
    value * f64::from(power.saturating_sub(4 * fraction.len() as i32)).exp2()
}

/// Whether a value is from HPL.dat, whose form the reference defines.
fn is_of_dat(value: &Value) -> bool {
    matches!(value.place, ValueSource::Dat { .. })
}

/// The legal values, as they are written where the value is.
fn legal_at(info: &Row<Param>, value: &Value) -> String {
    if is_of_dat(value) { info.legal_in_dat() } else { info.legal() }
}

fn out_of_range(info: &Row<Param>, value: &Value) -> ConfigError {
    At::param(info.setting, &value.place).out_of_range(shown(&value.text), legal_at(info, value))
}

fn not_understood(info: &Row<Param>, value: &Value, wanted: &'static str) -> ConfigError {
    let at = At::param(info.setting, &value.place);
    at.not_understood(&shown(&value.text), wanted, &legal_at(info, value))
}

/// Reads a whole number in its range, or a choice as its code.
fn as_index(info: &Row<Param>, value: &Value) -> Result<usize, ConfigError> {
    let number = match value.form {
        Form::Token | Form::Integer => parse_whole(&value.text),
        Form::Float | Form::Quoted | Form::Boolean => None,
    };
    match (number, info.range) {
        (Some(number), Some(range)) => {
            At::param(info.setting, &value.place).check(range, &value.text)?;
            Ok(number as usize)
        }
        (Some(code), None) if (0..info.choices.len() as i128).contains(&code) => Ok(code as usize),
        (Some(_), None) => Err(out_of_range(info, value)),
        (None, _) if info.choices.is_empty() || is_of_dat(value) => {
            Err(not_understood(info, value, "a whole number"))
        }
        (None, _) => {
            let is_named =
                |names: &&[&str]| names.iter().any(|name| name.eq_ignore_ascii_case(&value.text));
            let code = info.choices.iter().position(is_named);
            let code = code.filter(|_| value.form != Form::Float);
            code.ok_or_else(|| not_understood(info, value, "one of the choices"))
        }
    }
}

/// Reads a finite real number.
fn as_real(info: &Row<Param>, value: &Value) -> Result<f64, ConfigError> {
    let number = match value.form {
        Form::Token | Form::Integer | Form::Float => value.text.parse::<f64>().ok(),
        Form::Quoted | Form::Boolean => None,
    };
    match number {
        Some(number) if number.is_finite() => Ok(number),
        Some(_) => Err(out_of_range(info, value)),
        None => Err(not_understood(info, value, "a number")),
    }
}
