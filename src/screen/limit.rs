//! The time by which a rank's waits must be over, so that a rank that dies or hangs holds up no
//! other for longer.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::hpl::comm::mpi::FailureWatch;

/// A point in time that the waits of a rank look at.
#[derive(Debug, Clone, Default)]
pub struct Limit(Arc<Mutex<Option<Instant>>>);

impl Limit {
    /// Lets waits end `seconds` from now.
    pub fn set(&self, seconds: f64) {
        // A day is as good as for ever, and does not overflow the system's time.
        let time = Duration::from_secs_f64(seconds.clamp(0.0, LONGEST_SECONDS));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + time);
    }

    /// Whether the time has come.
    pub fn is_over(&self) -> bool {
        let until = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| Instant::now() > until)
    }

    /// Ends the waits of a group of MPI ranks when the time has come.
    pub fn watch(&self) -> FailureWatch {
        let limit = self.clone();
        Arc::new(move || Ok(limit.is_over().then(|| "no answer in time".to_owned())))
    }
}

/// The longest time that can be set.
pub const LONGEST_SECONDS: f64 = 86_400.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_end_once_the_time_has_come() {
        let limit = Limit::default();
        let watch = limit.watch();
        assert_eq!(watch().unwrap(), None);
        limit.set(f64::INFINITY);
        assert_eq!(watch().unwrap(), None);
        limit.set(0.0);
        std::thread::sleep(Duration::from_millis(1));
        assert!(limit.is_over() && watch().unwrap().is_some());
    }
}
