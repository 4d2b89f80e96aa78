//! The time by which a rank's waits must be over, so that a rank that dies or hangs holds up no
//! other for longer. Time in which this process stands still does not count, also while it
//! computes: the ranks of a job that is suspended are not late.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use skt_host::wait_clock::WaitClock;

use skt_comm::CommError;
use skt_comm::mpi::FailureWatch;

/// The period at which the clock of a rank that computes is read.
const TICK: Duration = Duration::from_millis(20);
/// A limit of which a 64th, the most that counts between two looks, is some ticks.
const COUNTED: Duration = Duration::from_secs(10);

/// A point in time that ends the waits of a rank.
#[derive(Debug, Clone)]
pub struct Limit(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// The time that this process has run.
    clock: WaitClock,
    until: Option<Duration>,
}

impl Default for Limit {
    fn default() -> Self {
        let state = State { clock: WaitClock::new(COUNTED), until: None };
        let limit = Self(Arc::new(Mutex::new(state)));
        let ticks = Arc::downgrade(&limit.0);
        let tick = move || {
            while let Some(state) = ticks.upgrade() {
                Self(state).now();
                thread::sleep(TICK);
            }
        };
        // Where no thread starts, neither do those that measure, which is a separate error.
        let _ = thread::Builder::new().name("time limit".to_owned()).spawn(tick);
        limit
    }
}

impl Limit {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time that this process has run since the limit was made.
    pub(crate) fn now(&self) -> Duration {
        self.state().clock.poll()
    }

    /// The time `seconds` from now.
    pub(crate) fn after(&self, seconds: f64) -> Duration {
        // A day is practically unlimited, and does not overflow.
        self.now() + Duration::from_secs_f64(seconds.clamp(0.0, LONGEST_SECONDS))
    }

    pub(crate) fn seconds_to(&self, until: Duration) -> f64 {
        until.saturating_sub(self.now()).as_secs_f64()
    }

    /// Lets waits end `seconds` from now.
    pub(crate) fn set(&self, seconds: f64) {
        let until = self.after(seconds);
        self.state().until = Some(until);
    }

    pub fn is_over(&self) -> bool {
        let mut state = self.state();
        let now = state.clock.poll();
        state.until.is_some_and(|until| now > until)
    }

    /// Ends the waits of a group of MPI ranks when the time has come.
    pub fn watch(&self) -> FailureWatch {
        let limit = self.clone();
        let late = || Err(CommError::aborted("no answer in time"));
        Arc::new(move || if limit.is_over() { late() } else { Ok(()) })
    }
}

/// The longest time that can be set.
pub const LONGEST_SECONDS: f64 = 86_400.0;

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn waits_end_once_the_time_has_come() {
        let limit = Limit::default();
        let watch = limit.watch();
        assert_eq!(watch(), Ok(()));
        limit.set(f64::INFINITY);
        assert_eq!(watch(), Ok(()));
        limit.set(0.0);
        std::thread::sleep(Duration::from_millis(1));
        assert!(limit.is_over() && watch().is_err());
    }

    /// The time of a rank that computes counts, although it does not check the limit.
    #[test]
    fn time_without_a_look_counts() {
        let (begun, limit) = (Instant::now(), Limit::default());
        let before = limit.now();
        while limit.state().clock.waited() < before + Duration::from_millis(500) {
            assert!(begun.elapsed() < Duration::from_secs(60), "the clock stands still");
            std::thread::sleep(TICK);
        }
        assert!(limit.now() <= begun.elapsed());
    }
}
