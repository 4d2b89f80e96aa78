//! How often to take a checkpoint, and whether one still pays.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Interval between checkpoints, as a user says it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Every {
    /// Daly's optimum from the cost of the last checkpoint and the MTBF.
    Auto,
    /// So many seconds.
    Seconds(f64),
    /// So many panels.
    Panels(usize),
    /// Never.
    Never,
}

/// A time or an interval that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no {1}")]
pub struct BadInterval(String, &'static str);

/// Seconds of a text such as `90`, `90s`, `10min`, `24h`, `3d`.
///
/// # Errors
/// When it is none, or not above zero.
pub fn parse_seconds(text: &str) -> Result<f64, BadInterval> {
    const UNITS: [(&str, f64); 6] =
        [("ms", 1e-3), ("min", 60.0), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86400.0)];
    let bad = || BadInterval(text.to_owned(), "time: say 90s, 10min, 24h or 3d");
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
            let legal = "interval: say auto, never, a time (10min), or panels (20p)";
            BadInterval(text.to_owned(), legal)
        };
        match (text, text.strip_suffix('p')) {
            ("auto", _) => Ok(Self::Auto),
            ("never", _) => Ok(Self::Never),
            (_, Some(panels)) => match panels.parse() {
                Ok(panels @ 1..) => Ok(Self::Panels(panels)),
                _ => Err(bad()),
            },
            _ => parse_seconds(text).map(Self::Seconds).map_err(|_| bad()),
        }
    }
}

/// Daly's higher-order optimum of the time between checkpoints that take
/// `cost_seconds` each (J. T. Daly, Future Generation Computer Systems 22, 2006;
/// Tang et al., TPDS 2018, eq. 9):
///
/// ```text
/// tau = sqrt(2 M d) (1 + 1/3 sqrt(d / 2M) + 1/9 (d / 2M)) - d      d < 2M
/// tau = M                                                         else
/// ```
pub fn daly_interval_seconds(cost_seconds: f64, mtbf_seconds: f64) -> f64 {
    let ratio = cost_seconds / (2.0 * mtbf_seconds);
    if ratio >= 1.0 {
        return mtbf_seconds;
    }
    (2.0 * mtbf_seconds * cost_seconds).sqrt() * (1.0 + ratio.sqrt() / 3.0 + ratio / 9.0)
        - cost_seconds
}

/// Whether a checkpoint pays: what it is expected to save, the work at risk
/// times the chance of a failure in the time that remains, against its cost.
pub fn pays(cost: f64, at_risk: f64, remaining: f64, mtbf: f64) -> bool {
    at_risk * -(-remaining / mtbf).exp_m1() > cost
}

/// Operations of panel `k`: `2 jb (n-j)^2`, as good as exact for this purpose.
pub fn panel_flops(k: usize, n: usize, nb: usize) -> f64 {
    let j = (k * nb).min(n) as f64;
    let (n, jb) = (n as f64, ((k + 1) * nb).min(n) as f64 - j);
    2.0 * jb * (n - j) * (n - j)
}

/// The panel before which `seconds` from panel `from` on are over, at `rate`
/// operations a second; at least one panel on.
pub fn panel_after(from: usize, seconds: f64, rate: f64, n: usize, nb: usize) -> usize {
    let (panels, mut left) = (n.div_ceil(nb), seconds * rate);
    let mut k = from;
    while k < panels && (left > 0.0 || k == from) {
        left -= panel_flops(k, n, nb);
        k += 1;
    }
    k
}

/// Seconds for panels `from..` at `rate` operations a second.
pub fn seconds_left(from: usize, rate: f64, n: usize, nb: usize) -> f64 {
    let m = n.saturating_sub(from * nb) as f64;
    2.0 / 3.0 * m * m * m / rate
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn intervals_are_read() {
        for (text, want) in [
            ("auto", Every::Auto),
            ("never", Every::Never),
            ("20p", Every::Panels(20)),
            ("10min", Every::Seconds(600.0)),
            ("1.5h", Every::Seconds(5400.0)),
            ("90", Every::Seconds(90.0)),
            ("250ms", Every::Seconds(0.25)),
        ] {
            assert_eq!(text.parse::<Every>(), Ok(want), "{text}");
        }
        for text in ["", "0", "0p", "-1s", "p", "1 week", "nan", "inf", "1e999", "20pp"] {
            assert!(text.parse::<Every>().is_err(), "{text}");
        }
    }

    #[test]
    fn daly_is_between_young_and_the_mtbf() {
        // One minute of checkpoint a day of MTBF: Young's sqrt(2 M d) is 3220 s.
        let tau = daly_interval_seconds(60.0, 86400.0);
        assert!((tau - 3180.1).abs() < 0.5, "{tau}");
        assert_eq!(daly_interval_seconds(300.0, 100.0), 100.0);
    }

    proptest! {
        #[test]
        fn cuts_go_forward_and_end(n in 1usize..5000, nb in 1usize..300, s in 0.0..1e3f64) {
            let panels = n.div_ceil(nb);
            let mut k = 0;
            while k < panels {
                let next = panel_after(k, s, 1e9, n, nb);
                prop_assert!(next > k && next <= panels);
                k = next;
            }
        }

        #[test]
        fn panels_add_up_to_the_whole(n in 100usize..5000, nb in 1usize..30) {
            let sum: f64 = (0..n.div_ceil(nb)).map(|k| panel_flops(k, n, nb)).sum();
            let whole = seconds_left(0, 1.0, n, nb);
            prop_assert!((sum / whole - 1.0).abs() < 3.0 * nb as f64 / n as f64, "{sum} {whole}");
        }
    }
}
