//! The lines of a power meter: exactly the forms that the user guide lists.
//!
//! A number that is read wrong gives a wrong figure in a submission, so whatever could be read in
//! two ways (decimal commas, separators of thousands, other units) is refused.

use skt_terms::shown::shown;

/// The form of a reading, for messages.
const FORM: &str = "a reading is seconds since 1970 and a power, with decimal points: \
                    `1700000000.5 412.5`, `1700000000.5,412.5` or `1700000000.5;0.4125 kW`";
/// The form of a header, for messages.
const HEADER: &str = "a header names the columns `time` and `power`, e.g. `time,power [kW],volts`; \
                      other lines that are no readings begin with `#`";
/// The units of power, and their watts.
const UNITS: [(&str, f64); 2] = [("W", 1.0), ("kW", 1000.0)];

/// What is wrong with a line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: {what}")]
pub(super) struct LineError {
    /// The character at which the line is wrong, from 1.
    pub column: usize,
    pub what: String,
}

/// A part of a line between two separators.
#[derive(Debug, Clone, Copy)]
struct Field<'a> {
    text: &'a str,
    /// The place of the first character, from 1.
    column: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Separator {
    Mark(char),
    /// Blanks and tabs.
    Blanks,
}

/// The columns of the lines.
#[derive(Debug, Clone, Copy)]
struct Columns {
    /// `None` without a header: then each line has its own.
    separator: Option<Separator>,
    count: usize,
    time: usize,
    power: usize,
    /// Watts of the unit in the header, if it has one.
    unit_watts: Option<f64>,
}

impl Columns {
    const WITHOUT_HEADER: Self =
        Self { separator: None, count: 2, time: 0, power: 1, unit_watts: None };
}

/// Reads the lines of a meter, of which the first may be a header.
#[derive(Debug, Clone, Default)]
pub(super) struct MeterLines {
    columns: Option<Columns>,
}

impl MeterLines {
    /// The time and the watts of the next line; `None` for a header, a comment, or an empty line.
    ///
    /// # Errors
    /// The line has none of the forms that the user guide lists.
    pub fn read(&mut self, line: &str) -> Result<Option<(f64, f64)>, LineError> {
        let begin = line.trim_start_matches(is_blank);
        if begin.trim_end_matches(['\r', '\n']).is_empty() || begin.starts_with('#') {
            return Ok(None);
        }
        let line = line.trim_end_matches(['\r', '\n']);
        let is_header = begin.trim_start_matches('"').starts_with(|c: char| c.is_alphabetic());
        if self.columns.is_none() && is_header {
            self.columns = Some(header(line)?);
            return Ok(None);
        }
        reading(line, self.columns.get_or_insert(Columns::WITHOUT_HEADER)).map(Some)
    }
}

/// Whether a character may be between fields. Others, such as the no-break space, separate
/// thousands in some languages.
fn is_blank(c: char) -> bool {
    c == ' ' || c == '\t'
}

fn reading(line: &str, columns: &Columns) -> Result<(f64, f64), LineError> {
    let fields = fields(line, columns.separator.unwrap_or_else(|| separator(line)));
    if fields.len() != columns.count {
        let column = fields.get(columns.count).map_or(line.chars().count() + 1, |it| it.column);
        let what = format!("{} fields in place of {}; {FORM}", fields.len(), columns.count);
        return Err(LineError { column, what });
    }
    let bad = |field: &Field<'_>, is_no: &str| LineError {
        column: field.column,
        what: format!("`{}` is no {is_no}; {FORM}", shown(field.text)),
    };
    let (time, power) = (&fields[columns.time], &fields[columns.power]);
    let seconds = number(time.text).ok_or_else(|| bad(time, "time"))?;
    let (digits, unit) = match power.text.split_once(is_blank) {
        Some((digits, unit)) => (digits, Some(unit.trim_start_matches(is_blank))),
        None => (power.text, None),
    };
    let unit_watts = match (unit, columns.unit_watts) {
        (None, of_header) => of_header.or(Some(1.0)),
        (Some(unit), None) => watts_of(unit),
        // The header has a unit already.
        (Some(_), Some(_)) => None,
    };
    let watts = number(digits).zip(unit_watts).map(|(number, unit)| number * unit);
    Ok((seconds, watts.ok_or_else(|| bad(power, "power in W or kW"))?))
}

/// A number in decimal digits, which may have a decimal point; no sign, no exponent.
fn number(text: &str) -> Option<f64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if are_digits(whole) && are_digits(fraction) { text.parse().ok() } else { None }
}

fn watts_of(unit: &str) -> Option<f64> {
    UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).map(|(_, watts)| *watts)
}

fn separator(line: &str) -> Separator {
    line.chars().find(|c| matches!(c, ',' | ';')).map_or(Separator::Blanks, Separator::Mark)
}

/// The fields of a line. Where blanks separate them, a unit belongs to the word before it.
fn fields(line: &str, separator: Separator) -> Vec<Field<'_>> {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    let mut begin = 0;
    let is_end = |c: char| match separator {
        Separator::Mark(mark) => c == mark,
        Separator::Blanks => is_blank(c),
    };
    for part in line.split_inclusive(is_end) {
        let text = part.strip_suffix(is_end).unwrap_or(part);
        let range = (begin, begin + text.len());
        begin += part.len();
        let is_unit = text.starts_with(['[', '(']) || watts_of(text).is_some();
        match ranges.last_mut() {
            _ if separator == Separator::Blanks && text.is_empty() => {}
            Some(before) if separator == Separator::Blanks && is_unit => before.1 = range.1,
            _ => ranges.push(range),
        }
    }
    if matches!(separator, Separator::Mark(_)) && line.ends_with(is_end) {
        ranges.push((line.len(), line.len()));
    }
    ranges.into_iter().map(|(from, to)| field(line, from, to)).collect()
}

/// The field in these bytes of a line, without blanks and quotes around it.
fn field(line: &str, from: usize, to: usize) -> Field<'_> {
    let whole = &line[from..to];
    let begin = whole.trim_start_matches(is_blank);
    let text = begin.trim_end_matches(is_blank);
    let column = line[..to - begin.len()].chars().count() + 1;
    match text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
        Some(text) => Field { text, column: column + 1 },
        None => Field { text, column },
    }
}

fn header(line: &str) -> Result<Columns, LineError> {
    let separator = match separator(line) {
        Separator::Blanks if line.contains('\t') => Separator::Mark('\t'),
        separator => separator,
    };
    let fields = fields(line, separator);
    let (mut time, mut power) = (None, None);
    for (index, field) in fields.iter().enumerate() {
        let bad = |what: &str| LineError {
            column: field.column,
            what: format!("`{}`: {what}; {HEADER}", shown(field.text)),
        };
        if field.text.contains('"') {
            return Err(bad("quotes are only around a whole field"));
        }
        let (name, unit) = match watts_of(field.text) {
            Some(_) => ("power", Some(field.text)),
            None => name_and_unit(field.text),
        };
        match (name.to_ascii_lowercase().as_str(), unit) {
            ("time" | "timestamp" | "seconds", None | Some("s")) if time.is_none() => {
                time = Some(index);
            }
            ("time" | "timestamp" | "seconds", None | Some("s")) => {
                return Err(bad("a second column of times"));
            }
            ("time" | "timestamp" | "seconds", _) => return Err(bad("the unit of time is s")),
            ("power" | "watts", _) if power.is_some() => {
                return Err(bad("a second column of power"));
            }
            // One of the other columns may have the unit.
            ("power", None) if fields.len() > 2 => {
                return Err(bad("beside other columns the power needs its unit, W or kW"));
            }
            ("power" | "watts", None) => power = Some((index, None)),
            ("power", Some(unit)) => {
                let watts = watts_of(unit).ok_or_else(|| bad("the unit of power is W or kW"))?;
                power = Some((index, Some(watts)));
            }
            ("watts", Some(_)) => return Err(bad("watts have no other unit")),
            _ => {}
        }
    }
    let (Some(time), Some((power, unit_watts))) = (time, power) else {
        let what = format!("neither a reading nor a header; {FORM}; {HEADER}");
        return Err(LineError { column: fields.first().map_or(1, |field| field.column), what });
    };
    Ok(Columns { separator: Some(separator), count: fields.len(), time, power, unit_watts })
}

/// The name and the unit of a column: `power [kW]`, `power (kW)`, `power kW`, `power_kW`.
fn name_and_unit(text: &str) -> (&str, Option<&str>) {
    let within = |open: char, close: char| text.strip_suffix(close)?.split_once(open);
    let is_unit = |unit: &str| unit == "s" || watts_of(unit).is_some();
    let behind = || text.rsplit_once([' ', '_']).filter(|(_, unit)| is_unit(unit));
    match within('[', ']').or_else(|| within('(', ')')).or_else(behind) {
        Some((name, unit)) => (name.trim_end_matches(is_blank), Some(unit)),
        None => (text, None),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The last reading of these lines, or the line, the column and the text of an error.
    fn read(text: &str) -> Result<Option<(f64, f64)>, (usize, usize, String)> {
        let mut lines = MeterLines::default();
        let mut last = None;
        for (line, text) in (1..).zip(text.lines()) {
            last = lines.read(text).map_err(|why| (line, why.column, why.what))?.or(last);
        }
        Ok(last)
    }

    #[test]
    fn documented_forms_are_read() {
        for (text, watts) in [
            ("5 412.5", 412.5),
            (" 5\t412.5 ", 412.5),
            ("5,412.5\r\n", 412.5),
            ("5 , 412.5", 412.5),
            ("5;412.5", 412.5),
            ("\"5\",\"412.5\"", 412.5),
            ("5 412.5 W", 412.5),
            ("5,0.4125 kW", 412.5),
            ("5\t0.4125\tkW", 412.5),
            ("# Zähler 3\n\ntime,power\n5,412.5\n", 412.5),
            ("time watts\n5 412.5", 412.5),
            ("time power [kW]\n5 0.4125", 412.5),
            ("Time (s);Volts;Power (kW);note\n5;230,1;0.4125;a b", 412.5),
            ("\"timestamp\",\"power_kW\",\"power factor\"\n5,0.4125,\"0.98\"", 412.5),
            ("time\tpower [W]\ttotal energy\n5\t412.5\t1", 412.5),
            ("volts,watts,seconds\n230,412.5,5", 412.5),
            ("time;kW\n5;0.4125", 412.5),
            ("time power [W] volts\n5 412.5 230", 412.5),
        ] {
            assert_eq!(read(text), Ok(Some((5.0, watts))), "{text:?}");
        }
        assert_eq!(read("time,power\n# begin\n\n"), Ok(None));
    }

    #[test]
    fn ambiguous_text_is_refused_at_its_place() {
        for (text, line, column, why) in [
            ("5,5\t412,5", 1, 9, "3 fields in place of 2"),
            ("5,500,412,5", 1, 7, "4 fields in place of 2"),
            ("5,1,234.5", 1, 5, "3 fields in place of 2"),
            ("5;412,5", 1, 3, "`412,5` is no power"),
            ("5\t412,5", 1, 1, "`5\\t412` is no time"),
            ("5 1 234.5", 1, 5, "3 fields"),
            ("5 1\u{a0}234.5", 1, 3, "is no power in W or kW"),
            ("5,\"1,234.5\"", 1, 6, "3 fields"),
            ("5,412.5 kVA", 1, 3, "`412.5 kVA` is no power in W or kW"),
            ("5 412.5 kVA", 1, 9, "3 fields"),
            ("5 412.5 \"kW\"", 1, 10, "3 fields"),
            ("5 412.5 [kW]", 1, 3, "`412.5 [kW]` is no power"),
            ("5,412.5,W", 1, 9, "3 fields"),
            ("5,412.5kW", 1, 3, "is no power"),
            ("5,412.5 MW", 1, 3, "is no power"),
            ("5,-3", 1, 3, "`-3` is no power"),
            ("+5,3", 1, 1, "is no time"),
            ("5,4e2", 1, 3, "is no power"),
            ("5,0x10", 1, 3, "is no power"),
            ("5,1_000", 1, 3, "is no power"),
            ("5,.5", 1, 3, "is no power"),
            ("5,5.", 1, 3, "is no power"),
            ("5,nan", 1, 3, "`nan` is no power"),
            ("inf,5", 1, 1, "neither a reading nor a header"),
            ("2026-11-28T10:00:00,412", 1, 1, "is no time"),
            ("5", 1, 2, "1 fields"),
            ("5,", 1, 3, "`` is no power"),
            ("5,,7", 1, 4, "3 fields"),
            ("Acme meter 3\ntime,power", 1, 1, "neither a reading nor a header"),
            ("time,power\ntime,power", 2, 1, "`time` is no time"),
            ("5,412\ntime,power", 2, 1, "is no time"),
            ("time,power\n5,412,5", 2, 7, "3 fields in place of 2"),
            ("time;power\n5,412", 2, 6, "1 fields in place of 2"),
            ("time,watts,volts\n5,412", 2, 6, "2 fields in place of 3"),
            ("time,power [kW]\n5,0.4 W", 2, 3, "is no power"),
            ("time,power [kVA]\n5,4", 1, 6, "`power [kVA]`: the unit of power is W or kW"),
            ("time,power_kVA\n5,4", 1, 1, "neither a reading nor a header"),
            ("time [ms],power", 1, 1, "the unit of time is s"),
            ("time,watts [kW]", 1, 6, "watts have no other unit"),
            ("time,watts,power", 1, 12, "a second column of power"),
            ("time,power,unit\n5,0.4125,kW", 1, 6, "the power needs its unit, W or kW"),
            ("time,seconds,watts", 1, 6, "a second column of times"),
            ("time,\"power, kW\"", 1, 6, "quotes are only around a whole field"),
        ] {
            let (at_line, at_column, what) = read(text).expect_err(text);
            assert_eq!((at_line, at_column), (line, column), "{text:?}: {what}");
            assert!(what.contains(why), "{text:?}: {what}");
        }
    }

    /// A separate grammar of the forms without a header: what the reader is compared with.
    fn is_documented(line: &str) -> bool {
        let is_number = |text: &str| {
            let digits =
                |text: &str| !text.is_empty() && text.chars().all(|c| "0123456789".contains(c));
            match text.split('.').collect::<Vec<_>>()[..] {
                [whole] => digits(whole),
                [whole, fraction] => digits(whole) && digits(fraction),
                _ => false,
            }
        };
        let is_power = |text: &str| {
            let words: Vec<&str> =
                text.split([' ', '\t']).filter(|word| !word.is_empty()).collect();
            let is_unit = |unit: &str| ["w", "kw"].contains(&unit.to_lowercase().as_str());
            matches!(words[..], [watts] if is_number(watts))
                || matches!(words[..], [watts, unit] if is_number(watts) && is_unit(unit))
        };
        let line = line.trim_matches([' ', '\t']);
        let apart = [',', ';'].into_iter().find_map(|mark| line.split_once(mark));
        apart.or_else(|| line.split_once([' ', '\t'])).is_some_and(|(time, power)| {
            is_number(time.trim_matches([' ', '\t'])) && is_power(power)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None,
            ..Default::default() })]

        #[test]
        fn a_line_is_read_if_and_only_if_it_is_documented(
            pieces in prop::collection::vec(prop::sample::select(vec![
                "5", "12", "0", ".", ",", ";", " ", "\t", "W", "kW", "mW", "VA", "-", "+", "e3",
                "_", "\u{a0}", "'", "x", "nan", "5,412.5", "5 0.25 kW", "5;7",
            ]), 0..7),
        ) {
            let line = pieces.concat();
            let is_empty = line.trim_matches([' ', '\t']).is_empty();
            let found = MeterLines::default().read(&line);
            let is_legal = is_empty || is_documented(&line);
            prop_assert_eq!(found.is_ok(), is_legal, "{:?}: {:?}", line, found);
        }

        #[test]
        fn numbers_are_read_with_their_value(
            time in 0u32..2_000_000_000, milliwatts in 0u32.., kilo: bool, mark in "[,;]|[ \t]{1,3}",
        ) {
            let unit = if kilo { " kW" } else { "" };
            let watts = f64::from(milliwatts) / 1e3;
            let line = format!("{time}{mark}{}{unit}", watts);
            let (seconds, read) = MeterLines::default().read(&line).unwrap().unwrap();
            prop_assert_eq!(seconds, f64::from(time));
            prop_assert_eq!(read, if kilo { watts * 1000.0 } else { watts });
        }

        /// With a header, a line is read if and only if it has as many fields, and numbers in the
        /// two that count.
        #[test]
        fn a_line_below_a_header_has_its_fields(
            fields in prop::collection::vec("[0-9]{1,3}|[0-9]{1,2}\\.[0-9]|x|", 1..5),
        ) {
            let mut lines = MeterLines::default();
            lines.read("volts,power [kW],time").unwrap();
            let is_number = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
            let line = fields.join(",");
            prop_assume!(!line.is_empty());
            let is_legal = fields.len() == 3 && is_number(&fields[1]) && is_number(&fields[2]);
            prop_assert_eq!(lines.read(&line).is_ok(), is_legal, "{:?}", line);
        }
    }
}
