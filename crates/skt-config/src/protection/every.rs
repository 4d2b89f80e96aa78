use std::str::FromStr;

use serde::{Deserialize, Serialize};
use skt_host::units::{BadQuantity, parse_seconds};

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Every {
    /// Daly's optimum from the cost of the last checkpoint and the MTBF.
    Auto,
    Seconds(f64),
    Panels(usize),
    /// This many panels, and at the end of the factorization. All of these are taken, whether or
    /// not they pay off: a drill.
    Drill(usize),
    Never,
}

impl FromStr for Every {
    type Err = BadQuantity;

    fn from_str(text: &str) -> Result<Self, BadQuantity> {
        let bad = || {
            let legal =
                "interval: write auto, never, a time (10min), or panels (20p; 20p! takes each)";
            BadQuantity::new(text, legal)
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
