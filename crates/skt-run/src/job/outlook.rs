//! Which tests of a job will have checkpoints, as predicted before the first test.

use crate::protect::{self, Every, GuessedRates, Outlook, Settings};
use crate::tuning::TUNING;
use skt_checkpoint::checkpoint::decide::Resume;
use skt_checkpoint::checkpoint::group::PlacementError;
use skt_checkpoint::checkpoint::methods::Method;
use skt_comm::{Comm, CommError, collect};
use skt_config::{RunSpec, TestSpec};

/// What a start has measured, as the mean over ranks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct MeasuredRates {
    /// The rate of DGEMM on a core, in 10^9 operations a second.
    pub gflops_per_core: f64,
    /// Bytes a second at which a rank reads a matrix.
    pub rank_read_bytes: f64,
}

impl MeasuredRates {
    pub(crate) fn guess(&self, test: &TestSpec) -> GuessedRates {
        let &Self { gflops_per_core, rank_read_bytes } = self;
        GuessedRates { flops: guessed_rate(test, gflops_per_core), rank_read_bytes }
    }
}

/// The predicted rate of a test, in operations a second, when DGEMM reaches `gflops_per_core` 10^9
/// operations a second on a core. Products in single precision are twice as fast.
pub fn guessed_rate(test: &TestSpec, gflops_per_core: f64) -> f64 {
    let over_double = (size_of::<f64>() / test.element_bytes()) as f64;
    let cores = (test.ranks() * test.threads) as f64;
    TUNING.test_efficiency * 1e9 * gflops_per_core * over_double * cores
}

/// Predicts on rank 0 whether each test will have checkpoints. Returns the predictions on all
/// ranks; `None` for tests without protection. Collective.
pub(crate) fn outlooks(
    world: &Comm,
    tests: &[TestSpec],
    settings: &Settings,
    rates: MeasuredRates,
) -> Result<Vec<Option<Outlook>>, CommError> {
    let outlook = |test: &TestSpec| {
        let method = settings.method_for(test.ranks());
        match method {
            _ if test.n == 0 => None,
            Method::None => None,
            // Checksums are there however short the test is.
            Method::Abft => Some(Outlook::Due),
            _ => Some(protect::guessed_schedule(test, settings, rates.guess(test)).outlook()),
        }
    };
    let outlooks: Vec<Option<Outlook>> = tests.iter().map(outlook).collect();
    collect::broadcast_json(world, &outlooks, 0)
}

/// Refuses a job without protection, which can have left nothing, that is to resume.
pub(crate) fn nothing_to_resume(spec: &RunSpec, settings: &Settings) -> Option<String> {
    let tests = spec.tests();
    let is_protected = |test: &TestSpec| settings.method_for(test.ranks()) != Method::None;
    let resume = settings.resume;
    let must_resume = matches!(resume, Resume::Require | Resume::At(_));
    (must_resume && !tests.iter().any(is_protected)).then(|| {
        format!(
            "--resume {resume}: no test of this job is protected, so there is nothing to resume; \
             leave it out, or protect the job (--ft)"
        )
    })
}

/// Explains that the user's settings of checkpoints have no effect in a job too small for a group.
pub(crate) fn too_small(spec: &RunSpec, settings: &Settings) -> Option<String> {
    let default = Settings::none();
    let is_set = settings.every != default.every && settings.every != Every::Never
        || !settings.levels.0.is_empty();
    let ranks = spec.tests().iter().map(TestSpec::ranks).max()?;
    let is_without = settings.is_on() && settings.method_for(ranks) == Method::None;
    (is_set && is_without).then(|| {
        let (parities, least) = (settings.parities, 2 * settings.parities);
        format!("no: {}", PlacementError::TooFewRanks { ranks, parities, least })
    })
}

/// The note about tests that will have no checkpoint, if there are any.
pub fn note(settings: &Settings, outlooks: &[Option<Outlook>]) -> Option<String> {
    let is_without =
        |outlook: &&Option<Outlook>| matches!(outlook, Some(Outlook::NoneDue | Outlook::TooShort));
    let without = outlooks.iter().filter(is_without).count();
    if without == 0 || settings.every == Every::Never {
        return None;
    }
    let which = match outlooks.len() {
        1 => "the test".to_owned(),
        tests if tests == without => format!("any of the {tests} tests"),
        tests => format!("{without} of the {tests} tests"),
    };
    Some(format!(
        "no checkpoint is due before the end of {which}: a run that loses memory starts from \
         the beginning (--checkpoint-every TIME takes checkpoints)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use skt_config::{Format, parse};

    #[test]
    fn tests_without_a_checkpoint_are_reported() {
        let settings = Settings { method: Method::SelfCheckpoint, ..Settings::none() };
        let [due, later, brief] = [Outlook::Due, Outlook::NoneDue, Outlook::TooShort].map(Some);
        let which = |outlooks: &[Option<Outlook>]| {
            let note = note(&settings, outlooks)?;
            let (_, rest) = note.split_once("the end of ").expect(&note);
            Some(rest.split_once(": a run that loses").expect(rest).0.to_owned())
        };
        assert_eq!(which(&[due]), None);
        assert_eq!(which(&[None]), None, "not protected");
        assert_eq!(which(&[later]).as_deref(), Some("the test"));
        assert_eq!(which(&[brief, brief]).as_deref(), Some("any of the 2 tests"));
        assert_eq!(which(&[due, brief, later]).as_deref(), Some("2 of the 3 tests"));
        let never = Settings { every: Every::Never, ..settings.clone() };
        assert_eq!(note(&never, &[later]), None, "the user knows");
    }

    #[test]
    fn settings_without_effect_are_reported_in_small_jobs() {
        let spec = |q| {
            let text = format!("n = 100\nnb = 8\np = 1\nq = {q}\n");
            parse(text.as_bytes(), "f", Format::Toml, false).unwrap().spec
        };
        let settings = |parities, method_is_asked| Settings {
            method: Method::SelfCheckpoint,
            method_is_asked,
            parities,
            ..Settings::none()
        };
        let drills = |parities| Settings { every: Every::Drill(20), ..settings(parities, false) };
        let message = too_small(&spec(3), &drills(2)).unwrap();
        assert_eq!(message, "no: a group with 2 parities needs at least 4 ranks, not 3");
        assert_eq!(too_small(&spec(4), &drills(2)), None, "protected");
        assert_eq!(too_small(&spec(1), &settings(1, false)), None, "nothing is set");
        let required = Settings { resume: Resume::Require, ..settings(2, false) };
        assert!(nothing_to_resume(&spec(3), &required).is_some());
        assert!(nothing_to_resume(&spec(4), &required).is_none());
        assert!(nothing_to_resume(&spec(3), &settings(2, false)).is_none());
    }
}
