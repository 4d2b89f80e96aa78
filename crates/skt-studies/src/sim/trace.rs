use std::cmp::Ordering;
use std::sync::Arc;

use skt_host::shown::shown;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("failure trace, line {line}: {reason}")]
pub struct BadTrace {
    /// The line, from 1; 0 for the file as a whole.
    line: usize,
    /// What is wrong, and what is expected.
    reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Failure {
    /// Seconds from the start of the run.
    pub at_seconds: f64,
    /// The position in the job, 0 to nodes - 1.
    pub node: usize,
}

impl Eq for Failure {}

impl Ord for Failure {
    /// Reversed, so that a heap yields the earliest failure; ties are ordered by node.
    fn cmp(&self, other: &Self) -> Ordering {
        other.at_seconds.total_cmp(&self.at_seconds).then(other.node.cmp(&self.node))
    }
}

impl PartialOrd for Failure {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Recorded failures of a machine, cheap to clone.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    failures: Arc<[Failure]>,
    span_seconds: f64,
}

impl Trace {
    /// Lines of `time_seconds node`, separated by blanks, a comma or a semicolon; `#` starts a
    /// comment. Times count from the start of the record and may come in any order. `span_seconds`
    /// is the length of the record; by default, it is the time of the last failure plus the mean
    /// distance between failures. A run enters the trace at a random time and wraps around at its
    /// end.
    pub fn parse(text: &str, span_seconds: Option<f64>) -> Result<Self, BadTrace> {
        let mut failures = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let content = line.split('#').next().unwrap_or_default().trim();
            if !content.is_empty() {
                failures.push(parse_line(content, index + 1)?);
            }
        }
        // `Failure` orders the latest first, for the heap.
        failures.sort_by(|a, b| b.cmp(a));
        let Some(last) = failures.last() else {
            return Err(BadTrace {
                line: 0,
                reason: "no failure in it; expected lines of `time_seconds node`".into(),
            });
        };
        let mean_gap_seconds = last.at_seconds / failures.len() as f64;
        let span_seconds = span_seconds.unwrap_or(last.at_seconds + mean_gap_seconds);
        if !(span_seconds > last.at_seconds && span_seconds.is_finite()) {
            return Err(BadTrace {
                line: 0,
                reason: format!(
                    "its span of {span_seconds} s ends before its last failure at {} s",
                    last.at_seconds
                ),
            });
        }
        Ok(Self { failures: failures.into(), span_seconds })
    }

    pub(crate) fn span_seconds(&self) -> f64 {
        self.span_seconds
    }

    pub fn len(&self) -> usize {
        self.failures.len()
    }

    pub fn is_empty(&self) -> bool {
        false
    }

    /// Mean time between failures of the whole machine, in seconds.
    pub fn system_mtbf_seconds(&self) -> f64 {
        self.span_seconds / self.failures.len() as f64
    }

    pub(super) fn check_nodes(&self, nodes: usize) -> Result<(), BadTrace> {
        match self.failures.iter().find(|f| f.node >= nodes) {
            None => Ok(()),
            Some(failure) => Err(BadTrace {
                line: 0,
                reason: format!("it names node {}, the job has {nodes} (from 0)", failure.node),
            }),
        }
    }

    /// The first failure after `entered_seconds`, and the offset to add to recorded times.
    pub(super) fn enter(&self, entered_seconds: f64) -> (usize, f64) {
        (self.failures.partition_point(|f| f.at_seconds < entered_seconds), -entered_seconds)
    }

    /// Returns the failure at `next`, and moves `next` to the one after it.
    pub(super) fn step(&self, next: &mut usize, offset_seconds: &mut f64) -> Failure {
        if *next == self.failures.len() {
            *next = 0;
            *offset_seconds += self.span_seconds;
        }
        let recorded = self.failures[*next];
        *next += 1;
        Failure { at_seconds: recorded.at_seconds + *offset_seconds, node: recorded.node }
    }
}

fn parse_line(content: &str, line: usize) -> Result<Failure, BadTrace> {
    let bad = |reason: String| BadTrace { line, reason };
    let fields: Vec<&str> =
        content.split([' ', '\t', ',', ';']).filter(|field| !field.is_empty()).collect();
    let [time, node] = fields[..] else {
        return Err(bad(format!("\"{}\": expected `time_seconds node`", shown(content))));
    };
    let at_seconds =
        time.parse::<f64>().ok().filter(|t| *t >= 0.0 && t.is_finite()).ok_or_else(|| {
            bad(format!("time \"{}\": expected seconds, 0 or above", shown(time)))
        })?;
    let node = node
        .parse()
        .map_err(|_| bad(format!("node \"{}\": expected a number from 0", shown(node))))?;
    Ok(Failure { at_seconds, node })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::random::Stream;
    use crate::sim::{Ages, Law};

    #[test]
    fn reads_blanks_commas_and_comments_in_any_order() {
        let trace = Trace::parse("# machine\n30 2\n10,1 # psu\n\n20;0\n", Some(40.0)).unwrap();
        assert_eq!(trace.len(), 3);
        assert_eq!(trace.failures[0], Failure { at_seconds: 10.0, node: 1 });
        assert!((trace.system_mtbf_seconds() - 40.0 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn names_the_line_that_is_wrong() {
        for (text, want) in [
            ("1 0\n2", 2),
            ("1 0\n\n-3 1", 3),
            ("x 0", 1),
            ("1 -1", 1),
            ("1 2 3", 1),
            ("# nothing", 0),
        ] {
            match Trace::parse(text, None) {
                Err(BadTrace { line, .. }) => assert_eq!(line, want, "{text:?}"),
                other => panic!("{text:?}: {other:?}"),
            }
        }
        assert!(Trace::parse("10 0", Some(5.0)).is_err());
    }

    #[test]
    fn wraps_around_and_keeps_every_failure() {
        let trace = Trace::parse("10 0\n20 1\n30 2", Some(40.0)).unwrap();
        let law = Law::Trace(trace);
        let mut source = law.source(3, Ages::Steady, Stream::new(9)).unwrap();
        let times: Vec<Failure> = (0..9).map(|_| source.pop()).collect();
        // Nine failures are three whole rounds, so equal nodes are 40 s apart.
        for i in 0..6 {
            assert_eq!(times[i].node, times[i + 3].node);
            assert!((times[i + 3].at_seconds - times[i].at_seconds - 40.0).abs() < 1e-9);
        }
    }

    #[test]
    fn a_node_beyond_the_job_is_an_error() {
        let law = Law::Trace(Trace::parse("10 7", None).unwrap());
        let error = law.source(7, Ages::Steady, Stream::new(9)).unwrap_err();
        assert!(error.to_string().contains("node 7"), "{error}");
    }
}
