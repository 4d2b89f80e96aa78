//! Quantities in units that people read.

use std::error::Error;
use std::fmt;

/// Formats bytes with a binary prefix and three or four digits: `512 B`, `12.3 GiB`.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1024.0;
    let mut unit = 0;
    // A value of 1023.95 would print as 1024.0.
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// Formats a number of things, of which one is called `one`: `1 rank`, `2 parities`.
pub fn counted(count: usize, one: &str) -> String {
    match one.strip_suffix('y') {
        _ if count == 1 => format!("1 {one}"),
        Some(stem) => format!("{count} {stem}ies"),
        None => format!("{count} {one}s"),
    }
}

/// Formats `count` bytes in a short unit, unless that would hide the difference from `other`.
pub fn bytes_unlike(count: u64, other: u64) -> String {
    let short = bytes(count);
    if short == bytes(other) { format!("{count} B") } else { short }
}

/// Parses bytes per second from text such as `200MB/s` or `1.5GiB/s`; `None` if the text is not a
/// rate, or the rate is not above zero.
pub fn parse_bytes_per_second(text: &str) -> Option<f64> {
    const UNITS: [(&str, f64); 8] = [
        ("kB", 1e3),
        ("MB", 1e6),
        ("GB", 1e9),
        ("TB", 1e12),
        ("KiB", (1u64 << 10) as f64),
        ("MiB", (1u64 << 20) as f64),
        ("GiB", (1u64 << 30) as f64),
        ("TiB", (1u64 << 40) as f64),
    ];
    let text = text.strip_suffix("/s")?;
    let (number, bytes) =
        UNITS.iter().find_map(|(unit, bytes)| Some((text.strip_suffix(unit)?, bytes)))?;
    let rate = number.trim().parse::<f64>().ok()? * bytes;
    (rate.is_finite() && rate > 0.0).then_some(rate)
}

/// Text that is no quantity of some kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadQuantity {
    text: String,
    legal: &'static str,
}

impl BadQuantity {
    /// `text` is none of what is `legal`: the kind of the quantity, and examples.
    pub fn new(text: &str, legal: &'static str) -> Self {
        Self { text: text.to_owned(), legal }
    }
}

impl fmt::Display for BadQuantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is no {}", self.text, self.legal)
    }
}

impl Error for BadQuantity {}

/// Parses seconds from texts such as `90`, `90s`, `10min`, `24h`, `3d`.
pub fn parse_seconds(text: &str) -> Result<f64, BadQuantity> {
    const UNITS: [(&str, f64); 6] =
        [("ms", 1e-3), ("min", 60.0), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86400.0)];
    let bad = || BadQuantity::new(text, "time: use 90 or 90s, 10min, 24h or 3d");
    let (number, unit) = UNITS
        .iter()
        .find_map(|(name, seconds)| Some((text.strip_suffix(name)?, *seconds)))
        .unwrap_or((text, 1.0));
    let seconds = number.trim().parse::<f64>().map_err(|_| bad())? * unit;
    if seconds.is_finite() && seconds > 0.0 { Ok(seconds) } else { Err(bad()) }
}

/// Formats a rate given in Gflop/s, with the prefix that keeps it short.
pub fn rate(gflops: f64) -> String {
    if !gflops.is_finite() {
        return "- Gflop/s".to_string();
    }
    if gflops < 0.1 {
        format!("{:.2} Mflop/s", gflops * 1e3)
    } else if gflops < 999.95 {
        format!("{gflops:.1} Gflop/s")
    } else if gflops < 999_950.0 {
        format!("{:.2} Tflop/s", gflops / 1e3)
    } else if gflops < 999_950_000.0 {
        format!("{:.2} Pflop/s", gflops / 1e6)
    } else {
        format!("{:.3} Eflop/s", gflops / 1e9)
    }
}

/// Formats a duration: `42 s`, `3 min 05 s`, `2 h 07 min`, `3 d 04 h`.
pub fn span(seconds: f64) -> String {
    if !seconds.is_finite() || seconds < 0.0 {
        return "-".to_string();
    }
    let whole = seconds.round() as u64;
    let (days, hours, minutes) = (whole / 86_400, whole / 3600 % 24, whole / 60 % 60);
    if whole < 60 {
        format!("{whole} s")
    } else if whole < 3600 {
        format!("{minutes} min {:02} s", whole % 60)
    } else if days == 0 {
        format!("{hours} h {minutes:02} min")
    } else {
        format!("{days} d {hours:02} h")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_is_counted_in_the_singular() {
        let texts = [(0, "rank"), (1, "parity"), (2, "parity"), (2, "data block")];
        let texts = texts.map(|(count, one)| counted(count, one));
        assert_eq!(texts, ["0 ranks", "1 parity", "2 parities", "2 data blocks"]);
    }

    #[test]
    fn bytes_change_units_where_digits_run_out() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1_048_575, "1.0 MiB"),
            (13_207_024_435, "12.3 GiB"),
            (1 << 50, "1.0 PiB"),
            (u64::MAX, "16.0 EiB"),
        ];
        for (count, text) in cases {
            assert_eq!(bytes(count), text);
        }
    }

    #[test]
    fn bytes_a_second_are_read_with_their_unit() {
        let cases = [("200MB/s", 2e8), ("1.5 GiB/s", 1.5 * 1073741824.0), ("3e3kB/s", 3e6)];
        for (text, rate) in cases {
            assert_eq!(parse_bytes_per_second(text), Some(rate), "{text}");
        }
        let none =
            ["", "200", "200MB", "200mb/s", "/s", "MB/s", "0MB/s", "-1MB/s", "infMB/s", "nanMB/s"];
        for text in none {
            assert_eq!(parse_bytes_per_second(text), None, "{text}");
        }
    }

    #[test]
    fn seconds_are_read_with_their_unit() {
        for (text, seconds) in [("10min", 600.0), ("1.5h", 5400.0), ("90", 90.0), ("250ms", 0.25)] {
            assert_eq!(parse_seconds(text), Ok(seconds), "{text}");
        }
        for text in ["", "0", "-1s", "1 week", "nan", "inf", "1e999"] {
            let bad = parse_seconds(text).expect_err(text).to_string();
            assert_eq!(bad, format!("`{text}` is no time: use 90 or 90s, 10min, 24h or 3d"));
        }
    }

    #[test]
    fn rates() {
        let cases = [
            (0.0, "0.00 Mflop/s"),
            (0.0123, "12.30 Mflop/s"),
            (92.34, "92.3 Gflop/s"),
            (999.96, "1.00 Tflop/s"),
            (1_102_000.0, "1.10 Pflop/s"),
            (1_353_000_000.0, "1.353 Eflop/s"),
            (f64::NAN, "- Gflop/s"),
        ];
        for (gflops, text) in cases {
            assert_eq!(rate(gflops), text);
        }
    }

    #[test]
    fn spans() {
        let cases = [
            (0.4, "0 s"),
            (59.6, "1 min 00 s"),
            (185.0, "3 min 05 s"),
            (7620.0, "2 h 07 min"),
            (273_700.0, "3 d 04 h"),
            (f64::INFINITY, "-"),
            (-1.0, "-"),
        ];
        for (seconds, text) in cases {
            assert_eq!(span(seconds), text);
        }
    }
}
