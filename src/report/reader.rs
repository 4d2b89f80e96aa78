//! A report as JSON: what is written is read by the same types.
//!
//! Unknown fields are kept or ignored, and most may be missing, so that reports of older and newer
//! versions can be compared. Parts that only other programs read are plain JSON.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use skt_host::norms::any_number;
use skt_host::phases::PhaseTable;
use skt_host::shown::{shown, shown_message};

use skt_config::{ConfigText, Fact, Pmap, TestSpec};
use skt_health::slow::SlowRank;
use skt_health::slow::links::SlowLink;
use skt_host::infile;
use skt_run::record::Event;
use skt_run::record::energy::EnergyReading;

pub(super) const FORMAT: &str = "skt-hpl report";
pub(super) const NO_REPORT: &str = "no JSON report of skt-hpl (written by --json)";
/// More than a report of the largest machine has.
const BYTES_MAX: u64 = 1 << 30;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunReport {
    pub format: String,
    #[serde(default)]
    pub format_version: u32,
    #[serde(default)]
    pub program: Option<Program>,
    #[serde(default)]
    pub command_line: Vec<String>,
    #[serde(default)]
    pub configuration: Option<ConfigText>,
    #[serde(default)]
    pub start: Option<String>,
    #[serde(default)]
    pub end: Option<String>,
    #[serde(default)]
    pub finished: bool,
    #[serde(default)]
    pub parameters: Value,
    #[serde(default)]
    pub environment: Value,
    #[serde(default)]
    pub dgemm_self_test: Value,
    #[serde(default)]
    pub counts: Value,
    pub tests: Vec<Test>,
    #[serde(default)]
    pub text_report: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Program {
    pub name: String,
    pub version: String,
    #[serde(default)]
    pub compiler: Option<String>,
}

/// A test. Values that were not measured or are not finite are null.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Test {
    #[serde(default)]
    pub variant: String,
    pub parameters: TestSpec,
    /// `passed`, `failed`, `not-checked`, `broke` or `skipped`.
    pub status: String,
    #[serde(default)]
    pub time_seconds: Option<f64>,
    #[serde(default)]
    pub gflops: Option<f64>,
    #[serde(default)]
    pub efficiency: Option<f64>,
    #[serde(default)]
    pub start: Option<String>,
    #[serde(default)]
    pub end: Option<String>,
    /// End of the timed part, in seconds since 1970 with their fraction.
    #[serde(default)]
    pub end_unix_seconds: Option<f64>,
    #[serde(default)]
    pub generate_seconds: Option<f64>,
    #[serde(default)]
    pub check_seconds: Option<f64>,
    #[serde(default)]
    pub phases_seconds: Option<PhaseTable>,
    #[serde(default)]
    pub progress: Vec<Progress>,
    #[serde(default)]
    pub events: Vec<Event>,
    #[serde(default)]
    pub power: Vec<EnergyReading>,
    #[serde(default)]
    pub slow: Option<Slow>,
    #[serde(default)]
    pub slow_links: Option<Vec<SlowLink>>,
    /// What else the test has, with what its status has.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct ProcessColumn {
    pub blocks: usize,
    pub rate: f64,
    pub waited_seconds: f64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Slow {
    pub named: Vec<SlowRank>,
    pub columns: Vec<usize>,
    pub ranks: Vec<SlowRankRates>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SlowRankRates {
    pub host: String,
    pub rank: usize,
    /// A number that ranks with the same kind of processor have in common.
    pub kind: usize,
    /// The rate of a thread in each window, in Gflop/s; `-` where nothing was measured. One text:
    /// each number would otherwise have a line.
    pub gflops_a_thread: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Progress {
    pub elapsed_seconds: f64,
    pub column: usize,
    pub fraction: f64,
    pub gflops: f64,
}

impl Test {
    /// Whether the test is one of HPL and not of HPL-MxP, whose rates do not compare.
    pub(crate) fn is_of_hpl(&self) -> bool {
        self.parameters.mxp.is_none()
    }

    pub(crate) fn scaled_residual(&self) -> Option<f64> {
        any_number::deserialize(self.rest.get("scaled_residual")?).ok()
    }

    /// Number of cores that compute: ranks, with those of checksum columns, times threads.
    pub(crate) fn cores(&self) -> usize {
        let TestSpec { p, q, checksums, threads, .. } = self.parameters;
        p.saturating_mul(q.saturating_add(checksums)).saturating_mul(threads.max(1))
    }
}

/// The name of a variant, e.g. `WR11C2R4`: mapping, DEPTH, BCAST, RFACT, NDIV, PFACT, NBMIN.
/// HPL-MxP has none of the last four: `WR11MXP`.
pub fn variant_name(spec: &TestSpec) -> String {
    let pmap = match spec.pmap {
        Pmap::RowMajor => 'R',
        Pmap::ColumnMajor => 'C',
    };
    let begin = format!("W{pmap}{}{}", spec.depth, spec.bcast.code());
    if spec.mxp.is_some() {
        return format!("{begin}MXP");
    }
    format!(
        "{begin}{}{}{}{}",
        fact_letter(spec.rfact),
        spec.ndiv,
        fact_letter(spec.pfact),
        spec.nbmin
    )
}

fn fact_letter(fact: Fact) -> char {
    match fact {
        Fact::Left => 'L',
        Fact::Crout => 'C',
        Fact::Right => 'R',
    }
}

/// The orders of these tests, each with the best rate of its tests in Gflop/s.
pub(crate) fn best_rates<'t>(tests: impl Iterator<Item = &'t Test>) -> Vec<(f64, f64)> {
    let mut best: BTreeMap<usize, f64> = BTreeMap::new();
    for test in tests {
        let (rate, entry) = (test.gflops.unwrap_or(0.0), best.entry(test.parameters.n));
        entry.and_modify(|known| *known = known.max(rate)).or_insert(rate);
    }
    best.into_iter().map(|(n, rate)| (n as f64, rate)).collect()
}

/// The text of a report; a launcher may have put anything between its lines.
pub(crate) fn read_text(path: &Path) -> Result<String, String> {
    let bytes = infile::read(path, BYTES_MAX)
        .map_err(|why| format!("cannot read the report '{}': {why}", path.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

impl RunReport {
    pub(crate) fn parse_from(path: &Path, text: &str) -> Result<Self, String> {
        let file = path.display();
        Self::parse(text).map_err(|reason| format!("'{file}' is {NO_REPORT}: {reason}"))
    }

    pub fn parse(text: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Head {
            format: String,
        }
        let wrong = |error: serde_json::Error| {
            if text.lines().any(|line| line.starts_with("HPLinpack ")) {
                return "it is the text of HPL, which has neither threads nor hosts nor phases; \
                        `skt-hpl report` reads it"
                    .to_owned();
            }
            shown_message(&error.to_string())
        };
        let Head { format } = serde_json::from_str(text).map_err(wrong)?;
        if format != FORMAT {
            return Err(format!("its \"format\" is \"{}\", not \"{FORMAT}\"", shown(&format)));
        }
        let report: Self = serde_json::from_str(text).map_err(wrong)?;
        report.check_numbers()?;
        Ok(report)
    }

    /// Checks that no quantity is negative: all that follows from it would be wrong.
    fn check_numbers(&self) -> Result<(), String> {
        for (number, test) in (1..).zip(&self.tests) {
            let of_test = [
                ("time_seconds", test.time_seconds),
                ("gflops", test.gflops),
                ("scaled_residual", test.scaled_residual()),
                ("end_unix_seconds", test.end_unix_seconds),
                ("generate_seconds", test.generate_seconds),
                ("check_seconds", test.check_seconds),
            ];
            let of_power = test.power.iter().flat_map(|reading| {
                [
                    ("joules", Some(reading.joules)),
                    ("mean_watts", Some(reading.mean_watts)),
                    ("measured_seconds", Some(reading.measured_seconds)),
                    ("gflops_per_watt", reading.gflops_per_watt),
                ]
            });
            for (key, value) in of_test.into_iter().chain(of_power) {
                if let Some(value) = value.filter(|value| *value < 0.0) {
                    return Err(format!("test {number}: \"{key}\" is {value}, and not 0 or above"));
                }
            }
        }
        Ok(())
    }

    /// A text or a number of the environment or of another part, at this place.
    pub(crate) fn text_at(part: &Value, place: &str) -> Option<String> {
        match part.pointer(place)? {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        }
    }

    pub(crate) fn host_ranks(&self) -> Vec<usize> {
        let hosts = self.environment.get("hosts").and_then(Value::as_array);
        let ranks = |host: &Value| host.get("ranks").and_then(Value::as_u64).unwrap_or(0) as usize;
        hosts.map_or(Vec::new(), |hosts| hosts.iter().map(ranks).collect())
    }

    /// The tests that ended with a time and a rate, and did not fail.
    pub(crate) fn completed(&self) -> impl Iterator<Item = &Test> {
        self.tests.iter().filter(|test| {
            test.gflops.is_some()
                && test.time_seconds.is_some()
                && matches!(test.status.as_str(), "passed" | "not-checked")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_refused_by_name() {
        const SPEC: &str = r#""parameters": {"n": 9, "nb": 3, "p": 1, "q": 1}"#;
        let whole = format!(r#"{{"status": "passed", {SPEC}}}"#);
        for (test, why) in [
            (format!(r#"{{{SPEC}}}"#), "missing field `status`"),
            (r#"{"status": "passed"}"#.to_owned(), "missing field `parameters`"),
            (whole.replace(r#""n": 9, "#, ""), "missing field `n`"),
            (whole.replace("\"q\": 1", r#""q": 1, "bcast": "star""#), "unknown variant `star`"),
            (
                whole.replace("\"passed\"", r#""passed", "time_seconds": -1.5"#),
                "test 2: \"time_seconds\" is -1.5, and not 0 or above",
            ),
            (
                whole.replace("\"passed\"", r#""passed", "scaled_residual": -0.1"#),
                "test 2: \"scaled_residual\" is -0.1",
            ),
            (
                whole.replace("\"passed\"", r#""passed", "power": [{}, {"mean_watts": -4}]"#),
                "test 2: \"mean_watts\" is -4",
            ),
        ] {
            let text = format!(r#"{{"format": "skt-hpl report", "tests": [{whole}, {test}]}}"#);
            let message = RunReport::parse(&text).err().unwrap_or_default();
            assert!(message.starts_with(why), "{message}");
        }
        assert!(RunReport::parse("{}").unwrap_err().starts_with("missing field `format`"));
    }
}
