//! Which tests of a job will have checkpoints, as predicted before the first test.

use crate::checkpoint::methods::Method;
use crate::config::TestSpec;
use crate::hpl::comm::{Comm, CommError, collect};
use crate::machine::tuning::TUNING;
use crate::run::protect::{self, Every, Outlook, Settings};

/// The predicted rate of a test, in operations a second, when DGEMM reaches `gflops_per_core` 10^9
/// operations a second on a core.
pub fn guessed_rate(test: &TestSpec, gflops_per_core: f64) -> f64 {
    TUNING.test_efficiency * 1e9 * gflops_per_core * (test.ranks() * test.threads) as f64
}

/// Predicts on rank 0 whether each test will have checkpoints. Returns the predictions on all
/// ranks; `None` for tests without protection. Collective.
///
/// # Errors
/// When a rank is lost.
pub fn outlooks<C: Comm>(
    world: &C,
    tests: &[TestSpec],
    settings: &Settings,
    gflops_per_core: f64,
) -> Result<Vec<Option<Outlook>>, CommError> {
    const ALL: [Option<Outlook>; 4] =
        [None, Some(Outlook::Due), Some(Outlook::NoneDue), Some(Outlook::TooShort)];
    let outlook = |test: &TestSpec| {
        let method = settings.method_for(test.ranks());
        match method {
            _ if test.n == 0 => None,
            Method::None => None,
            // Checksums are there however short the test is.
            Method::Abft => Some(Outlook::Due),
            _ => {
                let rate = guessed_rate(test, gflops_per_core);
                Some(protect::guessed_schedule(test, settings, rate).outlook())
            }
        }
    };
    let code = |test: &TestSpec| {
        let outlook = outlook(test);
        ALL.iter().position(|&other| other == outlook).expect("one of all") as u8
    };
    let mut codes: Vec<u8> = tests.iter().map(code).collect();
    collect::broadcast(world, &mut codes, 0)?;
    Ok(codes.into_iter().map(|code| ALL[usize::from(code)]).collect())
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

    #[test]
    fn tests_without_a_checkpoint_are_told() {
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
}
