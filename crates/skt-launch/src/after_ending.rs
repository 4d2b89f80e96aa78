//! Decides what to do when a job has ended, as a pure function of what is known.

use super::state::{Failure, SupervisorState};
use skt_checkpoint::heartbeat::CHANGED;
use skt_terms::exit::Exit;

/// This number of failures at one column, while all nodes are well, is no accident.
const SAME_FAILURES_MAX: usize = 3;
const BACKOFF_MAX_SECONDS: f64 = 60.0;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum AfterEnding {
    /// The job is done and reported; no data of the run is needed any more.
    Finished(Exit),
    /// More ranks are lost than the code can rebuild.
    Lost,
    /// The job ended by its own decision without a whole report, and has printed why; data of
    /// earlier starts stays.
    JobRefused,
    /// The run stops; the segments stay.
    Stopped,
    /// The nodes are probed and the job starts again after a pause, unless [`give_up`] decides
    /// otherwise.
    Restart,
}

/// What follows the end of a job that has reported the code `exit`, which counts, and not the
/// launcher's.
pub(crate) fn next(exit: Option<Exit>, state: &SupervisorState, stop_asked: bool) -> AfterEnding {
    match exit {
        Some(exit @ (Exit::Passed | Exit::ResidualFailed)) => AfterEnding::Finished(exit),
        Some(Exit::BadInput) if state.is_reported => AfterEnding::Finished(Exit::BadInput),
        Some(Exit::BadInput) if state.is_refused => AfterEnding::Lost,
        Some(Exit::BadInput) if state.is_changed && stop_asked => AfterEnding::Stopped,
        Some(Exit::BadInput) if state.is_changed => AfterEnding::Restart,
        Some(Exit::BadInput) => AfterEnding::JobRefused,
        Some(Exit::Interrupted) if state.is_time_up => AfterEnding::Stopped,
        Some(Exit::Interrupted) | None if stop_asked => AfterEnding::Stopped,
        Some(Exit::Interrupted | Exit::OfProgram(_)) | None => AfterEnding::Restart,
    }
}

/// Whether data of an earlier start was still in use, which resolves without action.
fn was_held(failure: &Failure) -> bool {
    failure.phase == CHANGED
}

/// Why to give up after the failures `past`, oldest first; `None` if the job starts again.
/// `resolution_columns` is the distance at which two columns count as the same; a `place` is a
/// column, or a checkpoint of a program.
pub(crate) fn give_up(
    past: &[Failure],
    place: &str,
    resolution_columns: usize,
    restarts_max: usize,
) -> Option<String> {
    let unexplained = past.iter().rev().take_while(|failure| !failure.node_lost);
    let unexplained: Vec<&Failure> = unexplained.filter(|failure| !was_held(failure)).collect();
    if unexplained.len() >= SAME_FAILURES_MAX {
        let newest = &unexplained[..SAME_FAILURES_MAX];
        if newest.iter().all(|failure| !failure.lived) {
            return Some(format!(
                "the job gave no sign of life in {SAME_FAILURES_MAX} starts, with all nodes well"
            ));
        }
        let column = newest[0].column;
        let near = |failure: &&Failure| {
            failure.lived && failure.column.abs_diff(column) <= resolution_columns
        };
        if newest.iter().all(near) {
            return Some(format!(
                "the job failed {SAME_FAILURES_MAX} times at {place} {column}, with all nodes well"
            ));
        }
    }
    (past.len() > restarts_max)
        .then(|| format!("the job failed {} times (--max-restarts {restarts_max})", past.len()))
}

/// The pause before the next start, in seconds: none when a lost node explains the failure, else 1,
/// 2, 4, ... up to 60.
pub(crate) fn backoff_seconds(past: &[Failure]) -> f64 {
    match past.iter().rev().take_while(|failure| !failure.node_lost).count() {
        0 => 0.0,
        count => 2f64.powi(count.min(30) as i32 - 1).min(BACKOFF_MAX_SECONDS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(column: usize) -> Failure {
        Failure { lived: true, column, ..Failure::default() }
    }

    #[test]
    fn the_code_of_the_job_and_what_it_has_reported_decide() {
        use AfterEnding::{Finished, JobRefused, Lost, Restart, Stopped};
        let none = SupervisorState::default;
        let timed = || SupervisorState { is_time_up: true, ..none() };
        let changed = || SupervisorState { is_changed: true, ..none() };
        let passed = Finished(Exit::Passed);
        for (code, state, stop_asked, want) in [
            // The launcher's code 0 alone is no success.
            (None, none(), false, Restart),
            (Some(0), none(), false, passed.clone()),
            (Some(1), none(), false, Finished(Exit::ResidualFailed)),
            (Some(75), none(), false, Restart),
            (None, none(), true, Stopped),
            (Some(75), none(), true, Stopped),
            // It was faster.
            (Some(0), none(), true, passed),
            (Some(75), timed(), false, Stopped),
            // It was lost on its way out.
            (None, timed(), false, Restart),
            (Some(2), none(), false, JobRefused),
            (Some(2), SupervisorState { is_refused: true, ..none() }, false, Lost),
            (Some(2), changed(), false, Restart),
            (Some(2), changed(), true, Stopped),
            (
                Some(2),
                SupervisorState { is_reported: true, ..none() },
                false,
                Finished(Exit::BadInput),
            ),
        ] {
            let found = next(code.map(Exit::from_code), &state, stop_asked);
            assert_eq!(found, want, "{code:?} {stop_asked} {state:?}");
        }
    }

    #[test]
    fn three_failures_in_one_place_end_the_run() {
        let same = [failed(512), failed(520), failed(512)];
        assert!(give_up(&same[..2], "column", 16, 50).is_none());
        let why = give_up(&same, "column", 16, 50).unwrap();
        assert_eq!(why, "the job failed 3 times at column 512, with all nodes well");
        assert!(give_up(&same, "column", 4, 50).is_none(), "not the same place");
        let lost = Failure { node_lost: true, ..failed(512) };
        assert!(
            give_up(&[failed(512), lost.clone(), failed(512), failed(512)], "column", 16, 50)
                .is_none()
        );
        assert!(give_up(&vec![lost; 20], "column", 16, 50).is_none(), "the spares bound it");
    }

    #[test]
    fn start_with_data_in_use_is_retried_with_longer_pauses() {
        let held = Failure { phase: CHANGED.to_owned(), ..failed(0) };
        assert!(give_up(&vec![held.clone(); 20], "column", 16, 50).is_none());
        assert_eq!(backoff_seconds(&vec![held.clone(); 4]), 8.0);
        assert!(
            give_up(&vec![held.clone(); 51], "column", 16, 50)
                .unwrap()
                .contains("--max-restarts 50")
        );
        let same = [failed(512), held.clone(), failed(512), held, failed(512)];
        assert!(give_up(&same, "column", 16, 50).is_some(), "they hide nothing");
    }

    #[test]
    fn the_pause_doubles_until_a_node_explains_the_failure() {
        let past = [failed(1), failed(2), failed(3)];
        let pauses: Vec<f64> = (0..=3).map(|count| backoff_seconds(&past[..count])).collect();
        assert_eq!(pauses, [0.0, 1.0, 2.0, 4.0]);
        assert_eq!(backoff_seconds(&vec![failed(1); 500]), 60.0);
        assert_eq!(backoff_seconds(&[failed(1), Failure { node_lost: true, ..failed(2) }]), 0.0);
    }
}
