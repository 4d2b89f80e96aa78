//! Trials on the ranks of a job, as the bench of the search.

use std::collections::BTreeMap;
use std::time::Instant;

use skt_terms::units;

use super::TuneError;
use super::parameter::Parameter;
use super::search::Bench;
use crate::events::RunEvents;
use crate::job::{JobError, Trials};
use crate::record::{Outcome, TestRecord};
use skt_config::TestSpec;
use skt_solver::comm::Comm;

/// Trials on all ranks, which rank 0 leads.
pub struct OnRanks<'a, C: Comm> {
    pub ranks: Trials<'a, C>,
    began: Instant,
    budget_seconds: f64,
    events: &'a mut dyn RunEvents,
    /// What the progress line shows for the next trials.
    pub doing: &'static str,
    /// Tests that have run.
    pub trials: usize,
    /// The data that goes from rank to rank by messages, by grid.
    by_messages: BTreeMap<(usize, usize), Vec<String>>,
}

impl<'a, C: Comm> OnRanks<'a, C> {
    /// Trials of a tuning that began at `began`.
    pub fn new(
        ranks: Trials<'a, C>,
        began: Instant,
        budget_seconds: f64,
        events: &'a mut dyn RunEvents,
    ) -> Self {
        let (doing, trials, by_messages) = ("", 0, BTreeMap::new());
        Self { ranks, began, budget_seconds, events, doing, trials, by_messages }
    }

    /// The data that goes from rank to rank by messages in a test of this grid; empty if none has
    /// run.
    pub fn by_messages(&self, test: &TestSpec) -> &[String] {
        self.by_messages.get(&(test.p, test.q)).map_or(&[], Vec::as_slice)
    }

    /// Ends the job on all ranks.
    pub fn end(self) -> Result<(), JobError> {
        self.events.clear();
        self.ranks.end()
    }

    fn line(&self) -> String {
        let left_seconds = (self.budget_seconds - self.elapsed_seconds()).max(0.0);
        format!(
            "tune: {}, trial {}, {} of {}, ETA {} at most",
            self.doing,
            self.trials + 1,
            units::span(self.elapsed_seconds()),
            units::span(self.budget_seconds),
            units::span(left_seconds)
        )
    }
}

impl<C: Comm> Bench for OnRanks<'_, C> {
    type Candidate = TestSpec;
    type Error = TuneError;

    fn trial(&mut self, test: &TestSpec) -> Result<f64, TuneError> {
        let line = self.line();
        self.events.step(self.elapsed_seconds(), &line);
        let record = self.ranks.lead(test)?;
        self.trials += 1;
        self.by_messages.insert((test.p, test.q), record.by_messages.clone());
        rate(&record)
    }

    fn elapsed_seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }
}

/// The rate of a test in Gflop/s, if its result is right.
fn rate(record: &TestRecord) -> Result<f64, TuneError> {
    let why = match &record.outcome {
        Outcome::Passed { .. } => return Ok(record.gflops),
        Outcome::Failed { scaled_residual, .. } => {
            let threshold = record.spec.threshold;
            format!("the scaled residual {scaled_residual:e} is not below {threshold}")
        }
        Outcome::Broke { column, pivot } => format!("the pivot of column {column} is {pivot}"),
        Outcome::NotChecked => "the residual was not checked".to_owned(),
        Outcome::Skipped { reason } => return Err(JobError::Refused(reason.clone()).into()),
    };
    Err(TuneError::Wrong { parameters: flags(&record.spec), why })
}

/// All flags of a trial.
fn flags(test: &TestSpec) -> String {
    let flags = Parameter::ALL.map(|parameter| parameter.flags(test));
    format!("--n {} {}", test.n, flags.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Norms;
    use skt_config::{Format, parse};

    fn record(outcome: Outcome) -> TestRecord {
        let text = b"n = 300\nnb = 32\np = 1\nq = 2\n";
        let spec = parse(text, "t", Format::Toml, false).unwrap().spec.tests().remove(0);
        TestRecord { time_seconds: 1.0, gflops: 12.5, outcome, ..TestRecord::not_run(spec) }
    }

    #[test]
    fn only_a_right_result_has_a_rate() {
        let norms = Norms::default();
        let passed = Outcome::Passed { scaled_residual: 0.01, norms };
        assert_eq!(rate(&record(passed)).unwrap(), 12.5);
        let wrong = [
            (Outcome::Failed { scaled_residual: 1e9, norms }, "residual 1e9 is not below 16"),
            (Outcome::Broke { column: 7, pivot: "NaN".into() }, "column 7 is NaN"),
            (Outcome::NotChecked, "not checked"),
        ];
        for (outcome, why) in wrong {
            let error = rate(&record(outcome)).unwrap_err();
            assert!(matches!(error, TuneError::Wrong { .. }), "{error}");
            let message = error.to_string();
            assert!(
                message.contains(why) && message.contains("--n 300 --p 1 --q 2 --nb 32 "),
                "{message}"
            );
        }
        let skipped = Outcome::Skipped { reason: "no memory".into() };
        let error = rate(&record(skipped)).unwrap_err();
        assert!(matches!(error, TuneError::Job(JobError::Refused(_))), "{error}");
    }
}
