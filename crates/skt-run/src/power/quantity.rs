//! Numbers, units and powers in the text of a meter.

/// The units of power that are read in any case, and their watts.
const UNITS: [(&str, f64); 6] =
    [("W", 1.0), ("watt", 1.0), ("watts", 1.0), ("kW", 1e3), ("kilowatt", 1e3), ("kilowatts", 1e3)];
/// The units whose case decides, and their watts.
const EXACT_UNITS: [(&str, f64); 2] = [("mW", 1e-3), ("MW", 1e6)];
/// What tools write in place of a reading that they do not have, and words in brackets.
const NO_READINGS: [&str; 10] =
    ["", "-", "--", "N/A", "NA", "NaN", "null", "None", "unknown", "unavailable"];

/// Whether a character may be between fields. Others, such as the no-break space, separate
/// thousands in some languages.
pub(super) fn is_blank(c: char) -> bool {
    c == ' ' || c == '\t'
}

/// Whether this is a unit of energy: J, kJ, Joules, Wh, kWh.
pub(super) fn is_of_energy(unit: &str) -> bool {
    let unit = unit.to_lowercase();
    let without_prefix = unit.strip_prefix(['k', 'm', 'g', 'u', 'µ', 'n']).unwrap_or(&unit);
    ["j", "wh"].contains(&without_prefix) || unit.contains("joule")
}

pub(super) fn watts_of(unit: &str) -> Option<f64> {
    let any_case = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit));
    let exact = || EXACT_UNITS.iter().find(|(name, _)| *name == unit);
    any_case.or_else(exact).map(|(_, watts)| *watts)
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

/// What the field of a power has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Power {
    /// The tool had no reading.
    Missing,
    /// A number, and the watts of its unit if it has one.
    Number(f64, Option<f64>),
}

/// The number at the beginning of a text, and the unit after it.
pub(super) fn number_and_unit(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != ',');
    let (digits, unit) = text.split_at(end.unwrap_or(text.len()));
    (digits, unit.trim_start_matches(is_blank))
}

/// Reads a power; `None` if the text is none.
pub(super) fn power(text: &str, has_commas: bool) -> Option<Power> {
    let is_in_brackets = text.starts_with('[') && text.ends_with(']');
    if is_in_brackets || NO_READINGS.iter().any(|no| no.eq_ignore_ascii_case(text)) {
        return Some(Power::Missing);
    }
    let (digits, unit) = number_and_unit(text);
    let number = number(digits, has_commas)?;
    match unit {
        "" => Some(Power::Number(number, None)),
        unit => Some(Power::Number(number, Some(watts_of(unit)?))),
    }
}
