//! The fields of a line, and the numbers and units in them.

/// What tools write in place of a reading that they do not have; also words in brackets.
const NO_READINGS: [&str; 10] =
    ["", "-", "--", "N/A", "NA", "NaN", "null", "None", "unknown", "unavailable"];

/// What a unit measures, and so what its size is in: W, J or s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Measure {
    Power,
    Energy,
    Time,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Unit {
    pub measure: Measure,
    pub size: f64,
}

/// The units, and whether they are read in this case alone.
const UNITS: [(&str, bool, Measure, f64); 23] = [
    ("W", false, Measure::Power, 1.0),
    ("watt", false, Measure::Power, 1.0),
    ("watts", false, Measure::Power, 1.0),
    ("kW", false, Measure::Power, 1e3),
    ("kilowatt", false, Measure::Power, 1e3),
    ("kilowatts", false, Measure::Power, 1e3),
    ("mW", true, Measure::Power, 1e-3),
    ("MW", true, Measure::Power, 1e6),
    ("J", false, Measure::Energy, 1.0),
    ("joule", false, Measure::Energy, 1.0),
    ("joules", false, Measure::Energy, 1.0),
    ("kJ", false, Measure::Energy, 1e3),
    ("mJ", true, Measure::Energy, 1e-3),
    ("MJ", true, Measure::Energy, 1e6),
    ("uJ", false, Measure::Energy, 1e-6),
    ("Wh", false, Measure::Energy, 3600.0),
    ("kWh", false, Measure::Energy, 3.6e6),
    ("mWh", true, Measure::Energy, 3.6),
    ("MWh", true, Measure::Energy, 3.6e9),
    ("s", true, Measure::Time, 1.0),
    ("ms", true, Measure::Time, 1e-3),
    ("us", true, Measure::Time, 1e-6),
    ("ns", true, Measure::Time, 1e-9),
];

pub(super) fn unit(text: &str) -> Option<Unit> {
    let is_it =
        |name: &str, is_exact: bool| name == text || !is_exact && name.eq_ignore_ascii_case(text);
    let row = UNITS.iter().find(|(name, is_exact, ..)| is_it(name, *is_exact))?;
    Some(Unit { measure: row.2, size: row.3 })
}

impl Unit {
    pub(super) const JOULE: Self = Self { measure: Measure::Energy, size: 1.0 };
    pub(super) const WATT: Self = Self { measure: Measure::Power, size: 1.0 };

    /// Whether registers alone count in this unit: of meters in Wh, of processors in uJ.
    pub(super) fn is_of_registers(self) -> bool {
        [1e-6, 3.6, 3600.0, 3.6e6, 3.6e9].contains(&self.size)
    }
}

/// Whether a character may be between fields. Others, such as the no-break space, separate
/// thousands in some languages.
pub(super) fn is_blank(c: char) -> bool {
    c == ' ' || c == '\t'
}

/// A number in decimal digits; no sign, no exponent, nothing between thousands. It may have a
/// decimal point or, with `has_commas`, a decimal comma.
pub(super) fn number(text: &str, has_commas: bool) -> Option<f64> {
    let point = if has_commas && text.contains(',') { ',' } else { '.' };
    let (whole, fraction) = text.split_once(point).unwrap_or((text, "0"));
    let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    (are_digits(whole) && are_digits(fraction))
        .then(|| format!("{whole}.{fraction}").parse().ok())?
}

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
pub(super) struct Field<'a> {
    pub text: &'a str,
    /// The place of the first character, from 1.
    pub column: usize,
}

impl<'a> Field<'a> {
    /// The number at the beginning, and the unit after it.
    pub(super) fn number_and_unit(&self) -> (&'a str, &'a str) {
        let end = self.text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != ',');
        let (digits, unit) = self.text.split_at(end.unwrap_or(self.text.len()));
        (digits, unit.trim_start_matches(is_blank))
    }

    /// Whether the tool had no reading.
    pub(super) fn is_missing(&self) -> bool {
        let is_in =
            |open: char, close: char| self.text.starts_with(open) && self.text.ends_with(close);
        let is_word = NO_READINGS.iter().any(|no| no.eq_ignore_ascii_case(self.text));
        is_word || is_in('[', ']') || is_in('<', '>')
    }
}

/// The mark between the fields of a line; a blank stands for blanks and tabs.
pub(super) fn separator(line: &str, is_header: bool) -> char {
    // Without a header a tab separates fields only if there is a comma, which is a decimal one then.
    let is_it =
        |mark: &char| line.contains(*mark) && (*mark != '\t' || is_header || line.contains(','));
    ['|', ';', '\t', ','].into_iter().find(is_it).unwrap_or(' ')
}

/// Whether a comma within a field can only be a decimal one.
pub(super) fn leaves_commas(separator: char) -> bool {
    ['|', ';', '\t'].contains(&separator)
}

/// The fields of a line. Where blanks separate them, a unit belongs to the word before it, and so
/// do a time of day and a zone.
pub(super) fn fields(line: &str, separator: char) -> Vec<Field<'_>> {
    let has_blanks = separator == ' ';
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    let (mut begin, mut is_quoted) = (0, false);
    for (at, c) in line.char_indices().chain([(line.len(), separator)]) {
        is_quoted ^= c == '"';
        let is_end = c == separator || has_blanks && is_blank(c);
        if !is_end || is_quoted && at < line.len() {
            continue;
        }
        let text = &line[begin..at];
        match ranges.last_mut() {
            _ if has_blanks && text.is_empty() => {}
            Some(before) if has_blanks && is_part(&line[before.0..before.1], text) => before.1 = at,
            _ => ranges.push((begin, at)),
        }
        begin = at + c.len_utf8();
    }
    ranges.into_iter().map(|(from, to)| field(line, from, to)).collect()
}

/// Whether a word belongs to the text before it.
fn is_part(before: &str, word: &str) -> bool {
    let has_digit = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    let is_time_of_day = has_digit(word) && word.contains(':') && !before.contains(':');
    let is_zone = before.contains(':')
        && (word.starts_with(['+', '-']) || ["AM", "PM", "UTC", "GMT"].contains(&word));
    // A word such as `watts` is the name of a column, too.
    let is_unit = unit(word).is_some() && (has_digit(before) || word.len() <= 2);
    is_time_of_day || is_zone || is_unit || word.starts_with(['[', '('])
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
