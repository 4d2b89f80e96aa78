//! Legal ranges of flags that are numbers: a value outside is refused with its flag before it is
//! converted to another unit.

/// Parses a number that satisfies `is_legal`; `legal` describes the range.
fn parse(text: &str, legal: &str, is_legal: impl Fn(f64) -> bool) -> Result<f64, String> {
    let refused = || format!("legal is {legal}");
    text.parse().ok().filter(|&value| is_legal(value)).ok_or_else(refused)
}

/// Parses a finite number above 0.
pub fn above_zero(text: &str) -> Result<f64, String> {
    parse(text, "a number above 0", |value| value > 0.0 && value.is_finite())
}

/// Parses a finite number, of either sign.
pub fn finite(text: &str) -> Result<f64, String> {
    parse(text, "a finite number", f64::is_finite)
}

/// Parses a number above 0, or `inf`.
pub fn above_zero_or_infinite(text: &str) -> Result<f64, String> {
    parse(text, "a number above 0, or inf", |value| value > 0.0)
}

/// Parses a finite number, 0 or above.
pub fn zero_or_above(text: &str) -> Result<f64, String> {
    parse(text, "0 or a number above", |value| value >= 0.0 && value.is_finite())
}

/// Parses a number from 0 to 1.
pub fn share(text: &str) -> Result<f64, String> {
    parse(text, "a number from 0 to 1", |value| (0.0..=1.0).contains(&value))
}

/// Parses a number between 0 and 1, both excluded.
pub fn share_between(text: &str) -> Result<f64, String> {
    parse(text, "between 0 and 1", |value| value > 0.0 && value < 1.0)
}

/// Parses a number above 0, at most 1.
pub fn share_above_zero(text: &str) -> Result<f64, String> {
    parse(text, "more than 0, at most 1", |value| value > 0.0 && value <= 1.0)
}
