//! The clock of a loop that waits. Time in which the loop itself stood still does not count.
//!
//! A whole job may be stopped for any time: by `scontrol suspend`, gang scheduling, a frozen
//! container, a machine that swaps. The clocks of the system continue then, but the processes that
//! are waited for stood still, too. A loop sees that as a long time between two polls.

use std::time::{Duration, Instant};

/// Minimum number of polls in a wait: each counts for at most this part of the limit.
pub const MIN_POLLS: u32 = 64;

/// The time that a loop has waited, as far as it has polled.
///
/// The time between two polls counts for a 64th of the limit at most. So a wait ends after 64 polls
/// at the earliest, and one that was stopped has all the time left that it had before, but for a
/// 64th of the limit. A process that polls all the time counts all of it, so it still finds another
/// one that alone stands still.
#[derive(Debug, Clone)]
pub struct WaitClock {
    limit: Duration,
    waited: Duration,
    last: Instant,
}

impl WaitClock {
    pub fn new(limit: Duration) -> Self {
        Self { limit, waited: Duration::ZERO, last: Instant::now() }
    }

    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// The time waited up to the last poll.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// Changes the limit; the time that has been waited stays.
    pub fn set_limit(&mut self, limit: Duration) {
        self.limit = limit;
    }

    pub fn restart(&mut self) {
        *self = Self::new(self.limit);
    }

    /// Notes a poll. Returns the time waited so far.
    pub fn poll(&mut self) -> Duration {
        self.poll_at(Instant::now())
    }

    /// Notes a poll. Returns whether the limit is reached.
    pub fn is_over(&mut self) -> bool {
        self.poll() >= self.limit
    }

    /// Notes a poll. Returns how much of the time since the last one does not count.
    pub fn skip(&mut self) -> Duration {
        let (last, before) = (self.last, self.waited);
        let waited = self.poll();
        self.last.saturating_duration_since(last).saturating_sub(waited - before)
    }

    fn poll_at(&mut self, now: Instant) -> Duration {
        let since = now.saturating_duration_since(std::mem::replace(&mut self.last, now));
        self.waited += since.min(self.limit / MIN_POLLS);
        self.waited
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(64);

    #[test]
    fn time_between_polls_counts_and_a_stop_does_not() {
        let begin = Instant::now();
        let at = |milliseconds| begin + Duration::from_millis(milliseconds);
        let mut clock = WaitClock { limit: LIMIT, waited: Duration::ZERO, last: begin };
        for milliseconds in 1..=40_000 {
            assert_eq!(clock.poll_at(at(milliseconds)), Duration::from_millis(milliseconds));
        }
        // A day later the wait has a second less.
        assert_eq!(clock.poll_at(at(86_440_000)), Duration::from_secs(41));
        assert_eq!(clock.poll_at(at(86_440_500)), Duration::from_millis(41_500));
    }

    #[test]
    fn zero_time_limit_is_over_at_once() {
        let mut clock = WaitClock::new(Duration::ZERO);
        assert!(clock.is_over());
        clock.set_limit(LIMIT);
        assert!(!clock.is_over());
    }

    proptest! {
        /// Whatever the times between polls: a wait counts no more than passes, and all of it where
        /// polls are close; after any poll at least the limit less a 64th of it is left for each
        /// stop.
        #[test]
        fn wait_counts_its_polls(
            gaps in prop::collection::vec(prop_oneof![0u64..900, 0u64..100_000_000], 1..200),
        ) {
            let mut now = Instant::now();
            let mut clock = WaitClock { limit: LIMIT, waited: Duration::ZERO, last: now };
            let (mut least, mut most) = (Duration::ZERO, Duration::ZERO);
            for gap in gaps.into_iter().map(Duration::from_millis) {
                now += gap;
                let slice = LIMIT / MIN_POLLS;
                let before = clock.waited;
                let waited = clock.poll_at(now);
                prop_assert!(waited - before <= slice);
                most += gap;
                least += if gap < slice { gap } else { Duration::ZERO };
                prop_assert!(least <= waited && waited <= most);
            }
        }
    }
}
