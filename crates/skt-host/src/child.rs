//! Waits for a child process, but not for ever.

use std::process::{Child, ExitStatus};
use std::time::Duration;

use crate::wait_clock::WaitClock;

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
}
