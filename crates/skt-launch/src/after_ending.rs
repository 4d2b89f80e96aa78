//! Decides what to do when a job has ended, as a pure function of what is known.

use skt_terms::exit::Exit;

/// This number of failures at one column, while all nodes are well, is no accident.
const SAME_FAILURES_MAX: usize = 3;
const BACKOFF_MAX_SECONDS: f64 = 60.0;

#[derive(Debug, Clone, PartialEq)]
pub struct Ending {
    /// The exit code that the job itself reported, if it did.
    pub completion: Option<u8>,
    pub is_reported: bool,
    /// Why the job refused the checkpoint that it found, if it did.
    pub refusal: Option<RefusedResume>,
    /// Whether the job stopped because its time is up.
    pub is_time_up: bool,
    pub stop_requested: bool,
}

/// Why a job does not continue from the checkpoint that it found, where the supervisor can do
/// something about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusedResume {
    /// More ranks are lost or damaged than the code can rebuild.
    Lost,
    /// A process of an earlier start was still running.
    Changed,
}

/// An earlier failure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Past {
    pub lived: bool,
    /// The column of the last heartbeat.
    pub column: usize,
    /// Whether a node was lost, which explains the failure.
    pub node_lost: bool,
    /// Whether data of an earlier start was still in use, which resolves without action.
    pub was_held: bool,
}

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

pub(crate) fn next(ending: &Ending) -> AfterEnding {
    match ending.completion.map(Exit::from_code) {
        // The code that the job reports counts, not the launcher's.
        Some(exit @ (Exit::Passed | Exit::ResidualFailed)) => AfterEnding::Finished(exit),
        Some(Exit::BadInput) if ending.is_reported => AfterEnding::Finished(Exit::BadInput),
        Some(Exit::BadInput) => match ending.refusal {
            Some(RefusedResume::Lost) => AfterEnding::Lost,
            Some(RefusedResume::Changed) if ending.stop_requested => AfterEnding::Stopped,
            Some(RefusedResume::Changed) => AfterEnding::Restart,
            None => AfterEnding::JobRefused,
        },
        Some(Exit::Interrupted) if ending.is_time_up => AfterEnding::Stopped,
        Some(Exit::Interrupted) | None if ending.stop_requested => AfterEnding::Stopped,
        Some(Exit::Interrupted | Exit::OfProgram(_)) | None => AfterEnding::Restart,
    }
}

/// Why to give up after the failures `past`, oldest first; `None` if the job starts again.
/// `resolution_columns` is the distance at which two columns count as the same; a `place` is a
/// column, or a checkpoint of a program.
pub fn give_up(
    past: &[Past],
    place: &str,
    resolution_columns: usize,
    restarts_max: usize,
) -> Option<String> {
    let unexplained = past.iter().rev().take_while(|failure| !failure.node_lost);
    let unexplained: Vec<&Past> = unexplained.filter(|failure| !failure.was_held).collect();
    if unexplained.len() >= SAME_FAILURES_MAX {
        let newest = &unexplained[..SAME_FAILURES_MAX];
        if newest.iter().all(|failure| !failure.lived) {
            return Some(format!(
                "the job gave no sign of life in {SAME_FAILURES_MAX} starts, with all nodes well"
            ));
        }
        let column = newest[0].column;
        let near = |failure: &&Past| {
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
pub(crate) fn backoff_seconds(past: &[Past]) -> f64 {
    match past.iter().rev().take_while(|failure| !failure.node_lost).count() {
        0 => 0.0,
        count => 2f64.powi(count.min(30) as i32 - 1).min(BACKOFF_MAX_SECONDS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ending(completion: Option<u8>) -> Ending {
        let (is_reported, is_time_up, stop_requested) = (false, false, false);
        Ending { completion, is_reported, refusal: None, is_time_up, stop_requested }
    }

    fn failed(column: usize) -> Past {
        Past { lived: true, column, node_lost: false, was_held: false }
    }

    #[test]
    fn exit_of_the_job_overrides_that_of_the_launcher() {
        assert_eq!(next(&ending(None)), AfterEnding::Restart, "exit code 0 alone is no success");
        assert_eq!(next(&ending(Some(0))), AfterEnding::Finished(Exit::Passed));
        assert_eq!(next(&ending(Some(1))), AfterEnding::Finished(Exit::ResidualFailed));
        assert_eq!(next(&ending(Some(75))), AfterEnding::Restart);
        let stopped = |completion| next(&Ending { stop_requested: true, ..ending(completion) });
        assert_eq!(stopped(None), AfterEnding::Stopped);
        assert_eq!(stopped(Some(75)), AfterEnding::Stopped);
        assert_eq!(stopped(Some(0)), AfterEnding::Finished(Exit::Passed), "it was faster");
        let timed = |completion| next(&Ending { is_time_up: true, ..ending(completion) });
        assert_eq!(timed(Some(75)), AfterEnding::Stopped);
        assert_eq!(timed(None), AfterEnding::Restart, "it was lost on its way out");
    }

    #[test]
    fn unreported_run_is_not_finished() {
        let after_refusal = |refusal| next(&Ending { refusal, ..ending(Some(2)) });
        assert_eq!(after_refusal(None), AfterEnding::JobRefused);
        assert_eq!(after_refusal(Some(RefusedResume::Lost)), AfterEnding::Lost);
        assert_eq!(after_refusal(Some(RefusedResume::Changed)), AfterEnding::Restart);
        let skipped = Ending { is_reported: true, ..ending(Some(2)) };
        assert_eq!(next(&skipped), AfterEnding::Finished(Exit::BadInput));
    }

    #[test]
    fn three_failures_in_one_place_end_the_run() {
        let same = [failed(512), failed(520), failed(512)];
        assert!(give_up(&same[..2], "column", 16, 50).is_none());
        let why = give_up(&same, "column", 16, 50).unwrap();
        assert_eq!(why, "the job failed 3 times at column 512, with all nodes well");
        assert!(give_up(&same, "column", 4, 50).is_none(), "not the same place");
        let lost = Past { node_lost: true, ..failed(512) };
        assert!(
            give_up(&[failed(512), lost, failed(512), failed(512)], "column", 16, 50).is_none()
        );
        assert!(give_up(&[lost; 20], "column", 16, 50).is_none(), "the spares bound it");
    }

    #[test]
    fn start_with_data_in_use_is_retried_with_longer_pauses() {
        let held = Past { was_held: true, ..failed(0) };
        assert!(give_up(&[held; 20], "column", 16, 50).is_none());
        assert_eq!(backoff_seconds(&[held; 4]), 8.0);
        assert!(give_up(&[held; 51], "column", 16, 50).unwrap().contains("--max-restarts 50"));
        let same = [failed(512), held, failed(512), held, failed(512)];
        assert!(give_up(&same, "column", 16, 50).is_some(), "they hide nothing");
    }

    #[test]
    fn the_pause_doubles_until_a_node_explains_the_failure() {
        let past = [failed(1), failed(2), failed(3)];
        let pauses: Vec<f64> = (0..=3).map(|count| backoff_seconds(&past[..count])).collect();
        assert_eq!(pauses, [0.0, 1.0, 2.0, 4.0]);
        assert_eq!(backoff_seconds(&[failed(1); 500]), 60.0);
        assert_eq!(backoff_seconds(&[failed(1), Past { node_lost: true, ..failed(2) }]), 0.0);
    }
}
