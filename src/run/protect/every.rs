//! How often a user wants a checkpoint.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The interval between checkpoints that a user asks for.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Every {
    /// Daly's optimum from the cost of the last checkpoint and the MTBF.
    Auto,
    /// This many seconds.
    Seconds(f64),
    /// This many panels.
    Panels(usize),
    /// This many panels, and at the end of the factorization. All of these are taken, whether or
    /// not they pay off: a drill.
    Drill(usize),
    /// No checkpoints.
    Never,
}

/// A text that is no time or no interval.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no {1}")]
pub struct BadInterval(String, &'static str);

/// Parses seconds from texts such as `90`, `90s`, `10min`, `24h`, `3d`.
///
/// # Errors
/// When the text is no time, or not above zero.
pub fn parse_seconds(text: &str) -> Result<f64, BadInterval> {
    const UNITS: [(&str, f64); 6] =
        [("ms", 1e-3), ("min", 60.0), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86400.0)];
    let bad = || BadInterval(text.to_owned(), "time: say 90 or 90s, 10min, 24h or 3d");
    let (number, unit) = UNITS
        .iter()
        .find_map(|(name, seconds)| Some((text.strip_suffix(name)?, *seconds)))
        .unwrap_or((text, 1.0));
    let seconds = number.trim().parse::<f64>().map_err(|_| bad())? * unit;
    if seconds.is_finite() && seconds > 0.0 { Ok(seconds) } else { Err(bad()) }
}

impl FromStr for Every {
    type Err = BadInterval;

    fn from_str(text: &str) -> Result<Self, BadInterval> {
        let bad = || {
            let legal =
                "interval: say auto, never, a time (10min), or panels (20p; 20p! takes each)";
            BadInterval(text.to_owned(), legal)
        };
        let panels = |text: &str| match text.parse() {
            Ok(panels @ 1..) => Ok(panels),
            _ => Err(bad()),
        };
        match (text, text.strip_suffix('p'), text.strip_suffix("p!")) {
            ("auto", ..) => Ok(Self::Auto),
            ("never", ..) => Ok(Self::Never),
            (_, Some(text), _) => panels(text).map(Self::Panels),
            (_, _, Some(text)) => panels(text).map(Self::Drill),
            _ => parse_seconds(text).map(Self::Seconds).map_err(|_| bad()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_read() {
        for (text, want) in [
            ("auto", Every::Auto),
            ("never", Every::Never),
            ("20p", Every::Panels(20)),
            ("20p!", Every::Drill(20)),
            ("10min", Every::Seconds(600.0)),
            ("1.5h", Every::Seconds(5400.0)),
            ("90", Every::Seconds(90.0)),
            ("250ms", Every::Seconds(0.25)),
        ] {
            assert_eq!(text.parse::<Every>(), Ok(want), "{text}");
        }
        for text in
            ["", "0", "0p", "-1s", "p", "1 week", "nan", "inf", "1e999", "20pp", "p!", "0p!"]
        {
            assert!(text.parse::<Every>().is_err(), "{text}");
        }
    }
}
