use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use skt_checkpoint::checkpoint::hook::StepPattern;

/// A fault that a user asks for. `[RANK@]WHAT` kills a rank, with WHAT a step of the protocol,
/// `column:J`, `time:SECONDS`, or `back` (in the back substitution or the refinement of HPL-MxP).
/// `flip:RANK@column:J` flips a bit of its matrix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Inject {
    text: String,
    /// The process that dies, by its rank in the launcher's order.
    pub process: usize,
    pub what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    Step(StepPattern),
    /// When this column is eliminated.
    Column(usize),
    /// This number of milliseconds after the start of the factorization.
    Milliseconds(u64),
    /// At the beginning of the back substitution, or of the refinement of HPL-MxP.
    Back,
    /// The rank does not die: when this column is eliminated, a bit of the matrix flips.
    Flip(usize),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}`: {why}; write [RANK@]STEP, [RANK@]column:J, [RANK@]time:SECONDS, [RANK@]back or flip:RANK@column:J"
)]
pub struct BadInject {
    text: String,
    why: String,
}

impl Inject {
    /// The fault as the user has written it.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl FromStr for Inject {
    type Err = BadInject;

    fn from_str(text: &str) -> Result<Self, BadInject> {
        let bad = |why: String| BadInject { text: text.to_owned(), why };
        let (is_flip, fault) = text.strip_prefix("flip:").map_or((false, text), |f| (true, f));
        let (process, what) = fault.split_once('@').unwrap_or(("0", fault));
        let process = process.parse().map_err(|_| bad(format!("`{process}` is no rank")))?;
        let number = |number: &str| -> Result<f64, BadInject> {
            let value: f64 = number.parse().map_err(|_| bad(format!("`{number}` is no number")))?;
            if (0.0..1e12).contains(&value) { Ok(value) } else { Err(bad("out of range".into())) }
        };
        let what = match what.split_once(':') {
            Some(("column", column)) if is_flip => What::Flip(number(column)? as usize),
            _ if is_flip => return Err(bad("a bit flips at a column".into())),
            Some(("column", column)) => What::Column(number(column)? as usize),
            Some(("time", seconds)) => What::Milliseconds((number(seconds)? * 1e3) as u64),
            None if what == "back" => What::Back,
            // `recover:rebuild` is another name of `recover-rebuild`.
            Some(("recover", step)) => What::Step(parse_step(&format!("recover-{step}"), &bad)?),
            _ => What::Step(parse_step(what, &bad)?),
        };
        Ok(Self { text: text.to_owned(), process, what })
    }
}

fn parse_step(text: &str, bad: &impl Fn(String) -> BadInject) -> Result<StepPattern, BadInject> {
    text.parse().map_err(|error| bad(format!("{error}")))
}

impl TryFrom<String> for Inject {
    type Error = BadInject;
    fn try_from(text: String) -> Result<Self, BadInject> {
        text.parse()
    }
}

impl From<Inject> for String {
    fn from(inject: Inject) -> String {
        inject.text
    }
}

impl fmt::Display for Inject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_and_written() {
        for (text, process, what) in [
            ("3@column:4096", 3, What::Column(4096)),
            ("time:1.5", 0, What::Milliseconds(1500)),
            ("2@back", 2, What::Back),
            ("1@encode:3", 1, What::Step("encode:3".parse().unwrap())),
            ("recover:rebuild", 0, What::Step("recover-rebuild".parse().unwrap())),
            ("flip:2@column:512", 2, What::Flip(512)),
            ("flip:column:512", 0, What::Flip(512)),
            ("flush:tile=7", 0, What::Step("flush:band=7".parse().unwrap())),
        ] {
            let inject: Inject = text.parse().unwrap();
            assert_eq!((inject.process, &inject.what), (process, &what), "{text}");
            let json = serde_json::to_string(&inject).unwrap();
            assert_eq!(serde_json::from_str::<Inject>(&json).unwrap(), inject);
        }
        for text in
            ["", "x@back", "column:x", "time:-1", "explode", "1@encode:x", "flip:1@back", "flip:"]
        {
            assert!(text.parse::<Inject>().is_err(), "{text}");
        }
    }
}
