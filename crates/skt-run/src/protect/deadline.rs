//! The end of a job's time: of its allocation, or of `--time-limit`.
//!
//! A run that cannot finish in time stops at a cut, early enough that its last checkpoint, and
//! images of it on all levels, are complete when the time ends. How long they take is known from
//! those that this start has taken; so a start with a time limit takes the first ones early. Only
//! the wall clock of rank 0 decides. SIGUSR1 on any rank means that the time ends now.
//!
//! ```text
//! now             last cut               end
//!  |--- panels ----|-- checkpoint, images --|-- spare --|
//! ```

use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::Signal;

use super::{LevelSettings, Levels};
use crate::grace;
use skt_solver::pgesv::SolveError;
use skt_terms::checkpoint_times::SPARE;

/// A run continues to its end if the rest is predicted to take less than the time left, divided by
/// this.
const DOUBT: f64 = 1.5;
/// The share of the time up to the last cut after which a run checks its time again.
const LOOK_AGAIN: f64 = 0.8;
/// The share of the time left after which a start takes its first checkpoint, to measure its time.
const LEARN: f64 = 1.0 / 8.0;

/// Whether SIGUSR1 has arrived.
static ASKED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_: libc::c_int) {
    ASKED.store(true, Ordering::Relaxed);
}

/// Installs a handler by which SIGUSR1 means that the time ends now, unless the signal is ignored.
/// Called once MPI has loaded its libraries, and again once the setup has loaded others, as a
/// library may replace the handler.
pub fn listen() {
    // SAFETY: the handler only stores a word, which is allowed in signal context.
    unsafe { grace::handle(Signal::SIGUSR1, note) };
}

/// Whether SIGUSR1 has arrived at this process.
pub(crate) fn is_asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}

/// The predicted times of a run at a cut.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Ahead {
    /// Seconds of the next step.
    pub step_seconds: f64,
    /// Seconds of the rest of the run.
    pub rest_seconds: f64,
    /// Seconds of a checkpoint and its images.
    pub save_seconds: f64,
}

/// The end of the time of a start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Deadline {
    /// The end, in seconds since 1970, if the time is limited.
    pub end_unix: Option<f64>,
}

impl Deadline {
    /// Seconds left at `now_unix`; infinite without a limit.
    pub(crate) fn seconds_left(&self, now_unix: f64) -> f64 {
        self.end_unix.map_or(f64::INFINITY, |end| end - now_unix)
    }

    /// Whether the run must stop here: after another step there would be no time left to save its
    /// state, and it cannot finish in time.
    pub(crate) fn is_over(&self, now_unix: f64, ahead: &Ahead) -> bool {
        let left = self.seconds_left(now_unix);
        let Ahead { step_seconds, rest_seconds, save_seconds } = *ahead;
        left < SPARE * (save_seconds + step_seconds) && DOUBT * rest_seconds > left
    }

    /// Seconds after which the run checks its time again; with `learns`, after which it takes a
    /// checkpoint.
    pub(crate) fn look_after(&self, now_unix: f64, ahead: &Ahead, learns: bool) -> f64 {
        let left = self.seconds_left(now_unix);
        let up_to_cut = LOOK_AGAIN * (left - SPARE * (ahead.save_seconds + ahead.step_seconds));
        if learns { up_to_cut.min(LEARN * left) } else { up_to_cut }
    }
}

/// The error of a run that stops at `column` because its time ends in `left` seconds. `whole` has
/// whether its images on each level are complete.
pub(super) fn time_up(column: usize, levels: &Levels, whole: &[bool], left: f64) -> SolveError {
    let names = levels.0.iter().map(LevelSettings::name);
    let levels: Vec<_> = names.zip(whole.iter().copied()).collect();
    let when = match left {
        f64::INFINITY => "the time ends".to_owned(),
        0.0.. => format!("the time ends in {left:.1} s"),
        _ => format!("the time ended {:.1} s ago", -left),
    };
    SolveError::TimeUp { column, kept: format_kept(&levels), when }
}

/// Describes what is kept of a run that stops because its time ends. `levels` has their names, and
/// whether images of the last epoch are complete there.
fn format_kept(levels: &[(String, bool)]) -> String {
    let names = |is_whole: bool| {
        let of = levels.iter().filter(|(_, whole)| *whole == is_whole);
        of.map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ")
    };
    match [names(true), names(false)].each_ref().map(String::as_str) {
        ["", ""] => "in memory alone, which goes with the allocation".to_owned(),
        ["", not] => format!("in memory alone: the images on {not} are not whole"),
        [whole, ""] => format!("in memory and in images on {whole}"),
        [whole, not] => {
            format!("in memory and in images on {whole} (those on {not} are not whole)")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run of a terabyte a rank: steps of 35 s, images of 15 minutes, 10 hours of work, 2 hours
    /// of time. It completes what it begins, if nothing takes half as long again as before.
    #[test]
    fn last_image_is_complete_before_the_time_ends() {
        let deadline = Deadline { end_unix: Some(7200.0) };
        for (step_seconds, save_seconds, slower) in
            [(35.0, 900.0, 1.0_f64), (35.0, 900.0, 1.4), (0.01, 0.1, 1.4), (100.0, 1.0, 1.2)]
        {
            let (mut now, mut looks) = (0.0, 0);
            loop {
                let rest_seconds = 36_000.0 - now;
                let ahead = Ahead { step_seconds, rest_seconds, save_seconds };
                if deadline.is_over(now, &ahead) {
                    break;
                }
                // The pace is that of the last stretch; the next one is slower.
                let seconds = deadline.look_after(now, &ahead, false);
                now += ((seconds / step_seconds).ceil().max(1.0) * step_seconds) * slower.min(1.2);
                looks += 1;
            }
            let whole = now + slower * save_seconds;
            assert!(whole <= 7200.0, "{step_seconds} s a step: whole at {whole}");
            assert!(now > 7200.0 - 2.0 * (save_seconds + 3.0 * step_seconds) - 300.0, "{now}");
            assert!(looks < 100, "{looks} looks");
        }
    }

    #[test]
    fn run_that_ends_within_its_time_is_not_stopped() {
        let deadline = Deadline { end_unix: Some(1000.0) };
        let ahead = |rest_seconds| Ahead { step_seconds: 1.0, rest_seconds, save_seconds: 100.0 };
        assert!(!deadline.is_over(880.0, &ahead(60.0)), "it has twice the time");
        assert!(deadline.is_over(880.0, &ahead(100.0)), "it may take longer than thought");
        assert!(!deadline.is_over(800.0, &ahead(1e9)), "there is time for another step");
        let unlimited = Deadline { end_unix: None };
        assert!(!unlimited.is_over(1e12, &ahead(1e9)));
        assert_eq!(deadline.look_after(0.0, &ahead(1e9), true), 125.0);
        assert!(unlimited.look_after(0.0, &ahead(1e9), true).is_infinite());
    }

    #[test]
    fn kept_data_is_reported_level_by_level() {
        let level = |name: &str, is_whole| (name.to_owned(), is_whole);
        assert!(format_kept(&[]).contains("goes with the allocation"));
        let both = [level("local:/a", true), level("global:/b", false)];
        let words = "in memory and in images on local:/a (those on global:/b are not whole)";
        assert_eq!(format_kept(&both), words);
        assert_eq!(format_kept(&both[..1]), "in memory and in images on local:/a");
        assert!(format_kept(&both[1..]).contains("global:/b are not whole"));
    }
}
