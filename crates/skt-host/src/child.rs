//! Waits for a child process, but not for ever.

use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use crate::wait_clock::{MIN_POLLS, WaitClock};

/// Pause between two polls of the child.
const POLL_PAUSE: Duration = Duration::from_millis(5);

/// Waits for the end of `child`. `None` if it was killed, as it had not ended after `patience`.
pub fn wait(child: &mut Child, patience: Duration) -> std::io::Result<Option<ExitStatus>> {
    if until(patience, || Ok(child.try_wait()?.is_some()))? {
        return child.wait().map(Some);
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

/// Polls until `child` has ended or `is_done`, but not for longer than `patience`; the time does
/// not count for which one of its threads was ready to run and had no core. Returns whether that
/// was so. `is_done` is called once more after the end.
pub fn until_while_served(
    child: &mut Child,
    patience: Duration,
    mut is_done: impl FnMut() -> std::io::Result<bool>,
) -> std::io::Result<bool> {
    // The longest delay so far: threads that have ended are not listed.
    let (mut last, mut delay, mut served) = (Instant::now(), Duration::ZERO, Served::default());
    loop {
        let has_ended = child.try_wait()?.is_some();
        if is_done()? || has_ended {
            return Ok(true);
        }
        let (now, delayed) = (Instant::now(), delay.max(longest_delay(child.id())));
        // As in [`WaitClock`], a poll counts for a part only, so a stop of all does not count.
        let since = now.duration_since(last).min(patience / MIN_POLLS);
        if served.add(since, delayed - delay) > patience {
            return Ok(false);
        }
        (last, delay) = (now, delayed);
        std::thread::sleep(POLL_PAUSE);
    }
}

/// The time for which a process had what it needed.
#[derive(Default)]
struct Served {
    sure: Duration,
    /// The time since Linux last counted a delay, which it does when the delay has ended.
    open: Duration,
}

impl Served {
    /// Adds the time `since` the last poll and the `delay` that was counted in it, which may have
    /// begun before. Returns the sum.
    fn add(&mut self, since: Duration, delay: Duration) -> Duration {
        self.open += since;
        if !delay.is_zero() {
            self.sure += self.open.saturating_sub(delay);
            self.open = Duration::ZERO;
        }
        self.sure + self.open
    }
}

/// The longest time for which a thread of a process was ready to run and had no core; none where
/// Linux does not count it.
fn longest_delay(process: u32) -> Duration {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let delay = |task: std::fs::DirEntry| {
        // Nanoseconds on a core, nanoseconds of waiting for one, and the number of turns.
        let counters = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        counters.split(' ').nth(1)?.parse().ok()
    };
    Duration::from_nanos(tasks.filter_map(delay).max().unwrap_or(0))
}

/// Polls until `is_done` is true. Returns whether that was so within `patience`.
pub fn until(
    patience: Duration,
    mut is_done: impl FnMut() -> std::io::Result<bool>,
) -> std::io::Result<bool> {
    let mut clock = WaitClock::new(patience);
    loop {
        if is_done()? {
            return Ok(true);
        }
        if clock.is_over() {
            return Ok(false);
        }
        std::thread::sleep(POLL_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn ended_child_is_reported_and_a_hanging_one_killed() {
        let mut child = Command::new("sh").args(["-c", "exit 7"]).spawn().unwrap();
        let status = wait(&mut child, Duration::from_secs(600)).unwrap();
        assert_eq!(status.unwrap().code(), Some(7));
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        assert_eq!(wait(&mut child, Duration::from_millis(20)).unwrap(), None);
        assert!(child.try_wait().unwrap().is_some(), "it is dead");
    }

    #[test]
    fn a_delay_that_is_counted_at_its_end_is_taken_off_whole() {
        let [poll, none] = [5, 0].map(Duration::from_millis);
        let mut served = Served::default();
        for _ in 0..20 {
            served.add(poll, none);
        }
        // Of the 105 ms, the process was without a core for 100.
        assert_eq!(served.add(poll, 20 * poll), poll);
        assert_eq!(served.add(poll, none), 2 * poll);
    }

    #[test]
    fn a_child_that_sleeps_or_spins_is_not_waited_for() {
        for [program, flag, argument] in
            [["sleep", "--", "600"], ["sh", "-c", "while :; do :; done"]]
        {
            let mut child = Command::new(program).args([flag, argument]).spawn().unwrap();
            // A 64th of it is more than the pause between two polls: with less, one that spins has
            // almost never been served where others spin, too.
            let patience = Duration::from_millis(500);
            let in_time = until_while_served(&mut child, patience, || Ok(false)).unwrap();
            assert!(!in_time, "{program}");
            assert!(until_while_served(&mut child, patience, || Ok(true)).unwrap());
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let mut child = Command::new("sh").args(["-c", "exit 7"]).spawn().unwrap();
        assert!(until_while_served(&mut child, Duration::from_secs(600), || Ok(false)).unwrap());
        assert_eq!(child.try_wait().unwrap().unwrap().code(), Some(7));
    }
}
