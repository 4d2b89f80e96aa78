//! The end of a job's time: of its allocation, or of `--time-limit`.
//!
//! A run that cannot finish in time stops at a cut, early enough that its last checkpoint, and
//! images of it on all levels, are complete when the time ends. How long they take is known from
//! those that this start has taken; so a start with a time limit takes the first ones early. Only
//! the wall clock of rank 0 decides. SIGUSR1 on any rank means that the time ends now.
//!
//! All ranks agree at a cut on whether to stop. A cut costs little, but not nothing. So there is
//! one before each panel only when little time is left; until then the next cut is so near that the
//! time does not end before it even if the run becomes `SLOWDOWN` times slower at once.
//!
//! ```text
//! now             last cut               end
//!  |--- panels ----|-- checkpoint, images --|-- spare --|
//! ```

use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::Signal;

use super::Levels;
use crate::grace;
use skt_host::checkpoint_times::SPARE;
use skt_solver::pgesv::SolveError;

/// A run continues to its end if the rest is predicted to take less than the time left, divided by
/// this.
const DOUBT: f64 = 1.5;
/// How many times slower a run may become at once, and still reads its clock before the time up to
/// the last cut has passed, or at the end of the panel in which it passes.
const SLOWDOWN: f64 = 100.0;
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
    pub step_seconds: f64,
    pub rest_seconds: f64,
    /// Seconds of a checkpoint and its images.
    pub save_seconds: f64,
}

/// Seconds that the job has left; infinite without a limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct TimeLeft(pub f64);

impl TimeLeft {
    /// Whether the run must stop here: after another step there would be no time left to save its
    /// state, and it cannot finish in time.
    pub(crate) fn is_over(self, ahead: &Ahead) -> bool {
        let Ahead { step_seconds, rest_seconds, save_seconds } = *ahead;
        self.0 < SPARE * (save_seconds + step_seconds) && DOUBT * rest_seconds > self.0
    }

    /// Seconds after which the run checks its time again, if it continues at the pace so far.
    pub(crate) fn look_after(self, ahead: &Ahead) -> f64 {
        (self.0 - SPARE * (ahead.save_seconds + ahead.step_seconds)) / SLOWDOWN
    }

    /// Seconds after which a start takes its first checkpoint, to measure its time.
    pub(crate) fn learn_after(self) -> f64 {
        LEARN * self.0
    }

    /// When the time ends, in words.
    fn format_end(self) -> String {
        match self.0 {
            f64::INFINITY => "the time ends".to_owned(),
            left @ 0.0.. => format!("the time ends in {left:.1} s"),
            left => format!("the time ended {:.1} s ago", -left),
        }
    }

    /// The error of a run that stops at `column` because its time ends. `whole` has whether its
    /// images on each level are complete.
    pub(crate) fn time_up(self, column: usize, levels: &Levels, whole: &[bool]) -> SolveError {
        let when = self.format_end();
        let of_whole = levels.0.iter().zip(whole).filter(|(_, is_whole)| **is_whole);
        let names: Vec<String> = of_whole.map(|(level, _)| level.name()).collect();
        let kept = if names.is_empty() {
            "in memory alone, which goes with the allocation".to_owned()
        } else {
            format!("in memory and in images on {}", names.join(", "))
        };
        SolveError::TimeUp(format!(
            "{when}: the run stands at column {column}, and is kept {kept}; the same command \
             resumes from there"
        ))
    }

    /// The error of a test without checkpoints that stops at `column` because its time ends.
    pub(crate) fn time_up_unsaved(self, column: usize) -> SolveError {
        let when = self.format_end();
        SolveError::TimeUp(format!(
            "{when}: the test stops at column {column}, and nothing of it is kept, as it has no \
             checkpoints; give the job more time"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run of a terabyte a rank: steps of 35 s, images of 15 minutes, 10 hours of work, 2 hours
    /// of time. It completes what it begins, if nothing takes half as long again as before.
    #[test]
    fn last_image_is_complete_before_the_time_ends() {
        for (step_seconds, save_seconds, slower) in
            [(35.0, 900.0, 1.0_f64), (35.0, 900.0, 1.4), (0.01, 0.1, 1.4), (100.0, 1.0, 1.2)]
        {
            let (mut now, mut looks) = (0.0, 0);
            loop {
                let rest_seconds = 36_000.0 - now;
                let ahead = Ahead { step_seconds, rest_seconds, save_seconds };
                let left = TimeLeft(7200.0 - now);
                if left.is_over(&ahead) {
                    break;
                }
                // The pace is that of the last stretch; the next one is slower.
                let seconds = left.look_after(&ahead);
                now += ((seconds / step_seconds).ceil().max(1.0) * step_seconds) * slower.min(1.2);
                looks += 1;
            }
            let whole = now + slower * save_seconds;
            assert!(whole <= 7200.0, "{step_seconds} s a step: whole at {whole}");
            assert!(now > 7200.0 - 2.0 * (save_seconds + 3.0 * step_seconds), "{now}");
            assert!(looks < 1500, "{looks} looks");
        }
    }

    /// From some moment on all takes many times longer, in a run that would end within its time or
    /// would not.
    #[test]
    fn slowed_run_is_late_by_one_panel_and_one_checkpoint_at_most() {
        let cases = (0..1000).flat_map(|from| [4.0, 40.0, 100.0].map(|slower| (from, slower)));
        let cases = cases.flat_map(|case| [1000, 5000].map(|panels| (case, panels)));
        for (((from, slower), panels), save_seconds) in
            cases.flat_map(|case| [0.0, 0.5].map(|save| (case, save)))
        {
            let (from, step_seconds) = (0.1 * f64::from(from), 0.05);
            let (mut now, mut pace, mut done) = (0.0, step_seconds, 0);
            while done < panels {
                let rest_seconds = f64::from(panels - done) * pace;
                let ahead = Ahead { step_seconds: pace, rest_seconds, save_seconds };
                let left = TimeLeft(100.0 - now);
                if left.is_over(&ahead) {
                    break;
                }
                let (begun, look) = (now, left.look_after(&ahead));
                let steps = ((look / pace).ceil() as i32).clamp(1, panels - done);
                for _ in 0..steps {
                    now += if now < from { step_seconds } else { slower * step_seconds };
                }
                (pace, done) = ((now - begun) / f64::from(steps), done + steps);
            }
            let late = now + slower * save_seconds - 100.0;
            let most = slower * (step_seconds + save_seconds);
            assert!(late <= most + 1e-6, "{slower} times from {from} s on: {late} s late");
        }
    }

    #[test]
    fn run_that_ends_within_its_time_is_not_stopped() {
        let ahead = |rest_seconds| Ahead { step_seconds: 1.0, rest_seconds, save_seconds: 100.0 };
        assert!(!TimeLeft(120.0).is_over(&ahead(60.0)), "it has twice the time");
        assert!(TimeLeft(120.0).is_over(&ahead(100.0)), "it may take longer than thought");
        assert!(!TimeLeft(200.0).is_over(&ahead(1e9)), "there is time for another step");
        let unlimited = TimeLeft(f64::INFINITY);
        assert!(!unlimited.is_over(&ahead(1e9)));
        assert_eq!(TimeLeft(1000.0).learn_after(), 125.0);
        assert!(unlimited.look_after(&ahead(1e9)).is_infinite());
    }

    #[test]
    fn levels_with_whole_images_are_named() {
        let levels = "local:/a,global:/b".parse::<Levels>().expect("two levels");
        let kept = |whole: [bool; 2]| TimeLeft(1.0).time_up(7, &levels, &whole).to_string();
        let of = |whole, names: &str| assert!(kept(whole).contains(names), "{}", kept(whole));
        of([true, false], "at column 7, and is kept in memory and in images on local:/a; ");
        of([true, true], "in images on local:/a, global:/b; ");
        of([false, false], "in memory alone, which goes with the allocation; ");
    }
}
