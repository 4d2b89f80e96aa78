//! Text for people, SVG and CSV: numbers, labels, escapes.

/// The text with entities in place of the characters that XML and HTML reserve.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Formats one line of CSV (RFC 4180).
pub(super) fn csv_row(fields: &[&str]) -> String {
    let quoted: Vec<String> = fields
        .iter()
        .map(|field| {
            if field.contains([',', '"', '\n']) {
                format!("\"{}\"", field.replace('"', "\"\""))
            } else {
                (*field).to_string()
            }
        })
        .collect();
    quoted.join(",") + "\n"
}

/// Formats a number with at most ten significant digits, and no more than it needs.
pub(super) fn csv_number(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    let rounded: f64 = format!("{value:.9e}").parse().expect("a formatted float is a float");
    if (1e-4..1e15).contains(&rounded.abs()) { rounded.to_string() } else { format!("{rounded:e}") }
}

/// Formats a tick label: plain if that is short, else as a power of ten.
pub(super) fn tick_label(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude == 0.0 {
        return "0".into();
    }
    if (1e-3..1e5).contains(&magnitude) {
        // Ticks are sums of steps such as 0.1, so the twelfth digit is noise.
        let rounded: f64 = format!("{value:.11e}").parse().expect("a formatted float is a float");
        return rounded.to_string();
    }
    let exponent = magnitude.log10().floor() as i32;
    let mantissa = value / 10f64.powi(exponent);
    let power = format!("10{}", superscript(exponent));
    if (mantissa - 1.0).abs() < 1e-9 {
        power
    } else {
        format!("{}\u{b7}{power}", (mantissa * 1e3).round() / 1e3)
    }
}

fn superscript(exponent: i32) -> String {
    exponent
        .to_string()
        .chars()
        .map(|c| match c {
            '-' => '\u{207b}',
            '1' => '\u{b9}',
            '2' => '\u{b2}',
            '3' => '\u{b3}',
            digit => char::from_u32(0x2070 + digit as u32 - '0' as u32)
                .expect("superscript digits are consecutive"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_short() {
        for (value, want) in [
            (0.0, "0"),
            (0.1 + 0.2, "0.3"),
            (10000.0, "10000"),
            (1e5, "10\u{2075}"),
            (2e-6, "2\u{b7}10\u{207b}\u{2076}"),
        ] {
            assert_eq!(tick_label(value), want);
        }
        assert_eq!(csv_number(1.0 / 3.0), "0.3333333333");
        assert_eq!(csv_number(1e-7), "1e-7");
    }
}
