//! The fields of a line, and what can be wrong with one.

use super::quantity::{is_blank, is_of_energy, watts_of};
use skt_terms::shown::shown;

/// The form of a reading, for messages.
pub(super) const FORM: &str = "a reading is a time and a power: `1700000000.5 412.5`, \
                               `1700000000.5,412.5`, `1700000000.5;0.4125 kW` or \
                               `2026-11-29T05:31:06Z,412.5 W`";

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

impl Field<'_> {
    /// The error that this field is, or names, energy.
    pub(crate) fn energy(&self) -> LineError {
        let what = format!(
            "`{}` is energy, and readings of power are needed, in W, kW, mW or MW",
            shown(self.text)
        );
        LineError { column: self.column, what }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Separator {
    Mark(char),
    /// Blanks and tabs.
    Blanks,
}

impl Separator {
    /// Whether a comma within a field can only be a decimal one.
    pub(crate) fn leaves_commas(self) -> bool {
        matches!(self, Self::Mark(';' | '\t'))
    }
}

/// The separator of a line without a header.
pub(super) fn separator(line: &str) -> Separator {
    match (line.contains(';'), line.contains(','), line.contains('\t')) {
        (true, ..) => Separator::Mark(';'),
        // The comma is a decimal one.
        (false, true, true) => Separator::Mark('\t'),
        (false, true, false) => Separator::Mark(','),
        (false, false, _) => Separator::Blanks,
    }
}

/// The separator of a header, and of the lines below it.
pub(super) fn header_separator(line: &str) -> Separator {
    let mark = [';', '\t', ','].into_iter().find(|mark| line.contains(*mark));
    mark.map_or(Separator::Blanks, Separator::Mark)
}

/// The fields of a line. Where blanks separate them, a unit belongs to the word before it, and so
/// do a time of day and a zone.
pub(super) fn fields(line: &str, separator: Separator) -> Vec<Field<'_>> {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for (begin, end) in parts(line, separator) {
        let text = &line[begin..end];
        match ranges.last_mut() {
            _ if separator == Separator::Blanks && text.is_empty() => {}
            Some(before)
                if separator == Separator::Blanks && is_part(&line[before.0..before.1], text) =>
            {
                before.1 = end;
            }
            _ => ranges.push((begin, end)),
        }
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
    let is_unit =
        (watts_of(word).is_some() || is_of_energy(word)) && (has_digit(before) || word.len() <= 2);
    is_time_of_day || is_zone || is_unit || word.starts_with(['[', '('])
}

/// The bytes between separators that are not in quotes.
fn parts(line: &str, separator: Separator) -> Vec<(usize, usize)> {
    let (mut parts, mut begin, mut is_quoted) = (Vec::new(), 0, false);
    for (at, c) in line.char_indices() {
        is_quoted ^= c == '"';
        let is_end = match separator {
            Separator::Mark(mark) => c == mark,
            Separator::Blanks => is_blank(c),
        };
        if is_end && !is_quoted {
            parts.push((begin, at));
            begin = at + c.len_utf8();
        }
    }
    parts.push((begin, line.len()));
    parts
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
