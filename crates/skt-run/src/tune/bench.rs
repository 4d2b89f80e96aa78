//! Trials on the ranks of a job, as the bench of the search.

use std::collections::BTreeMap;
use std::time::Instant;

use skt_host::exit::Exit;
use skt_host::units;

use super::parameter::Parameter;
use super::search::Bench;
use crate::events::RunEvents;
use crate::job::{End, JobError, Trials};
use crate::record::cores::CoreShares;
use crate::record::{MxpRecord, Outcome, TestRecord};
use skt_config::TestSpec;

/// Trials on all ranks, which rank 0 leads.
pub(crate) struct OnRanks<'a> {
    pub ranks: Trials<'a>,
    began: Instant,
    budget_seconds: f64,
    events: &'a mut dyn RunEvents,
    /// What the progress line shows for the next trials.
    pub doing: &'static str,
    /// Tests that have run.
    pub trials: usize,
    /// Tests from which other work took cores, and what the one had that lost most.
    pub disturbed: usize,
    pub worst: Option<CoreShares>,
    /// The data that goes from rank to rank by messages, by grid.
    by_messages: BTreeMap<(usize, usize), Vec<String>>,
}

impl<'a> OnRanks<'a> {
    /// Trials of a tuning that began at `began`.
    pub(crate) fn new(
        ranks: Trials<'a>,
        began: Instant,
        budget_seconds: f64,
        events: &'a mut dyn RunEvents,
    ) -> Self {
        Self {
            ranks,
            began,
            budget_seconds,
            events,
            doing: "",
            trials: 0,
            disturbed: 0,
            worst: None,
            by_messages: BTreeMap::new(),
        }
    }

    /// The data that goes from rank to rank by messages in a test of this grid; empty if none has
    /// run.
    pub(crate) fn by_messages(&self, test: &TestSpec) -> &[String] {
        self.by_messages.get(&(test.p, test.q)).map_or(&[], Vec::as_slice)
    }

    /// Ends the job on all ranks.
    pub(crate) fn end(self) -> Result<(), JobError> {
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

impl Bench for OnRanks<'_> {
    type Candidate = TestSpec;
    type Error = JobError;

    fn trial(&mut self, test: &TestSpec) -> Result<f64, JobError> {
        let line = self.line();
        self.events.step(self.elapsed_seconds(), &line);
        let record = self.ranks.lead(test)?;
        self.trials += 1;
        self.by_messages.insert((test.p, test.q), record.by_messages.clone());
        let gflops = rate(&record)?;
        if let Some(shares) = record.cores.filter(CoreShares::is_disturbed) {
            self.disturbed += 1;
            let lost = |shares: &CoreShares| shares.worst.used.lost_share();
            if self.worst.as_ref().is_none_or(|worst| lost(&shares) > lost(worst)) {
                self.worst = Some(shares);
            }
        }
        Ok(gflops)
    }

    fn elapsed_seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }
}

/// The rate of a test in Gflop/s, if its result is right.
fn rate(record: &TestRecord) -> Result<f64, JobError> {
    let why = match &record.outcome {
        Outcome::Passed { .. } => return Ok(record.gflops),
        Outcome::Failed { scaled_residual, .. } => match &record.mxp {
            Some(MxpRecord { has_converged: false, failure, steps, .. }) => {
                let steps = format!("the refinement did not converge in {} steps", steps.len());
                failure.clone().unwrap_or(steps)
            }
            _ => {
                let threshold = record.spec.threshold;
                format!("the scaled residual {scaled_residual:e} is not below {threshold}")
            }
        },
        Outcome::Broke { column, pivot } => format!("the pivot of column {column} is {pivot}"),
        Outcome::NotChecked => "the residual was not checked".to_owned(),
        Outcome::Skipped { reason } => return Err(JobError::refused(reason)),
    };
    let text = format!(
        "FAILED: {why}, in a trial with {}; a run with these values would be wrong",
        flags(&record.spec)
    );
    Err(JobError::new(End::Agreed { exit: Exit::ResidualFailed, sign: None }, text))
}

/// All flags of a trial.
fn flags(test: &TestSpec) -> String {
    let mut flags = format!("--n {}", test.n);
    flags.extend(test.mxp.map(|matrix| format!(" --matrix {matrix}")));
    flags.extend(test.gemm.is_rounded().then(|| format!(" --gemm {}", test.gemm)));
    format!("{flags} {}", Parameter::all_flags(test))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Norms;
    use skt_config::{Format, GemmPrecision, MxpMatrix, Refinement, parse};

    fn record(outcome: Outcome) -> TestRecord {
        let text = b"n = 300\nnb = 32\np = 1\nq = 2\n";
        let spec = parse(text, "t", Format::Toml, false).unwrap().spec.tests().remove(0);
        TestRecord { time_seconds: 1.0, gflops: 12.5, outcome, spec, ..TestRecord::default() }
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
            let end = End::Agreed { exit: Exit::ResidualFailed, sign: None };
            assert_eq!(error.end, end, "{error}");
            let message = error.to_string();
            assert!(
                message.contains(why) && message.contains("--n 300 --p 1 --q 2 --nb 32 "),
                "{message}"
            );
        }
        let skipped = Outcome::Skipped { reason: "no memory".into() };
        let error = rate(&record(skipped)).unwrap_err();
        assert_eq!(error.end, End::REFUSED, "{error}");
    }

    /// A residual below the threshold is no result where the refinement has not converged.
    #[test]
    fn a_refinement_that_does_not_converge_has_no_rate() {
        let mxp = MxpRecord {
            factor_seconds: 0.5,
            refine_seconds: 0.5,
            refinement: Refinement::Gmres,
            steps: Vec::new(),
            has_converged: false,
            failure: None,
        };
        let norms = Norms::default();
        let why = |mxp: &MxpRecord, scaled_residual| {
            let mut record = record(Outcome::Failed { scaled_residual, norms });
            (record.spec.mxp, record.spec.gemm) = (Some(MxpMatrix::Scaled), GemmPrecision::Bf16);
            record.mxp = Some(mxp.clone());
            rate(&record).unwrap_err().to_string()
        };
        let message = why(&mxp, 3.5);
        let want = "FAILED: the refinement did not converge in 0 steps, in a trial with --n 300 \
                    --matrix scaled --gemm bf16 --p 1 --q 2 --nb 32 --depth 1 --swap mix \
                    --swap-threshold 64 --bcast 1ringM; ";
        assert!(message.starts_with(want), "{message}");
        let failed = MxpRecord { failure: Some("x is not finite".into()), ..mxp.clone() };
        assert!(why(&failed, f64::NAN).starts_with("FAILED: x is not finite, in a trial with"));
        let message = why(&MxpRecord { has_converged: true, ..mxp }, 20.0);
        assert!(message.contains("the scaled residual 2e1 is not below 16"), "{message}");
    }
}
