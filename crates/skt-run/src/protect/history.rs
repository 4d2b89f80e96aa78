//! The history of a test since its first start, for the reports.

use serde::{Deserialize, Serialize};

use crate::record::{Event, Restart, Sample};

/// The number of checkpoints that a history lists, the latest ones. They are in the header of each
/// segment.
pub(super) const TAKEN_KEPT: usize = 60;
/// The number of restarts that a report lists, the latest ones.
pub(super) const RESTARTS_KEPT: usize = 60;

/// A checkpoint that was taken. In JSON a list without names, to be short.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(from = "(f64, f64, u64, usize, u64)", into = "(f64, f64, u64, usize, u64)")]
pub(super) struct Taken {
    /// Seconds since the first start.
    pub start_seconds: f64,
    /// Seconds that the solver stood still for it; 0, like `bytes`, if it was the last before a
    /// restart, because its time is known only after it is complete.
    pub seconds: f64,
    /// The checkpoint's number.
    pub epoch: u64,
    /// Columns that had been factored.
    pub column: usize,
    /// Bytes of the matrix that this rank saved; the history of rank 0 is printed.
    pub bytes: u64,
}

impl From<(f64, f64, u64, usize, u64)> for Taken {
    fn from((start_seconds, seconds, epoch, column, bytes): (f64, f64, u64, usize, u64)) -> Self {
        Self { start_seconds, seconds, epoch, column, bytes }
    }
}

impl From<Taken> for (f64, f64, u64, usize, u64) {
    fn from(taken: Taken) -> Self {
        let Taken { start_seconds, seconds, epoch, column, bytes } = taken;
        (milli(start_seconds), milli(seconds), epoch, column, bytes)
    }
}

/// Rounds to a millisecond: more digits would only take space.
fn milli(seconds: f64) -> f64 {
    (seconds * 1e3).round() / 1e3
}

/// Adds a checkpoint or a restart, and drops the oldest ones beyond `max`.
pub(super) fn remember<T>(list: &mut Vec<T>, entry: T, max: usize) {
    list.push(entry);
    list.drain(..list.len().saturating_sub(max));
}

/// The history of a test since its first start.
#[derive(Serialize, Deserialize)]
pub(super) struct History {
    pub taken: Vec<Taken>,
    pub restarts: Vec<Restart>,
    /// Seconds from the first start to this one.
    pub before_seconds: f64,
}

impl History {
    /// All events of a test that took `time_seconds` up to the end of its `last_part`, ordered by
    /// time.
    pub(crate) fn events(&self, time_seconds: f64, last_part: &str) -> Vec<Event> {
        let mut events = vec![Event {
            kind: "start".into(),
            column: Some(0),
            detail: "first start".into(),
            ..Event::default()
        }];
        events.extend(self.taken.iter().map(checkpoint));
        events.extend(self.restarts.iter().flat_map(restart));
        events.push(Event {
            kind: "end".into(),
            start_seconds: time_seconds,
            detail: format!("end of the {last_part}"),
            ..Event::default()
        });
        for event in &mut events {
            event.start_seconds = milli(event.start_seconds);
        }
        events.sort_by(|a, b| a.start_seconds.total_cmp(&b.start_seconds));
        events
    }

    /// The progress over all starts: before this start from its checkpoints and restarts, in this
    /// start from its samples.
    pub(crate) fn progress(&self, of_this_start: &[Sample]) -> Vec<Sample> {
        let taken = self.taken.iter().map(|t| (t.start_seconds, t.column));
        let restarts = self.restarts.iter();
        let restarts = restarts.map(|r| (r.start_seconds + r.recover_seconds, r.column));
        let earlier = taken.chain(restarts).filter(|(at, _)| *at < self.before_seconds);
        let sample = |(elapsed_seconds, column)| Sample { elapsed_seconds, column };
        let mut samples: Vec<Sample> = earlier.map(sample).collect();
        samples.sort_by(|a, b| a.elapsed_seconds.total_cmp(&b.elapsed_seconds));
        samples.extend(of_this_start);
        samples
    }
}

fn checkpoint(taken: &Taken) -> Event {
    let Taken { start_seconds, seconds, epoch, column, bytes } = *taken;
    Event {
        kind: "checkpoint".into(),
        start_seconds,
        seconds,
        epoch: Some(epoch),
        column: Some(column),
        bytes: (seconds > 0.0 || bytes > 0).then_some(bytes),
        detail: format!("checkpoint {epoch} at column {column}"),
    }
}

/// The event of the failure, which takes the time that was lost, and the event of the recovery
/// after it.
fn restart(restart: &Restart) -> [Event; 2] {
    let Restart { epoch, column, start_seconds, lost_seconds, recover_seconds, .. } = *restart;
    let event = |kind: &str, start_seconds: f64, seconds: f64, detail: String| Event {
        kind: kind.into(),
        start_seconds,
        seconds,
        epoch: Some(epoch).filter(|&epoch| epoch > 0),
        column: Some(column),
        bytes: None,
        detail,
    };
    let failed_seconds = (start_seconds - lost_seconds).max(0.0);
    let lost = "lost work, and the time until the restart".to_owned();
    [
        event("failure", failed_seconds, lost_seconds, lost),
        event("recovery", start_seconds, recover_seconds, restart.words()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(epoch: u64) -> Taken {
        let at = epoch as f64;
        Taken { start_seconds: 10.0 * at, seconds: 0.5, epoch, column: 100, bytes: 1 << 20 }
    }

    fn restarted() -> History {
        let restart = Restart {
            epoch: 1,
            column: 100,
            rebuilt_ranks: vec![3],
            start_seconds: 18.0,
            lost_seconds: 8.0,
            recover_seconds: 2.0,
            ..Restart::default()
        };
        History { taken: vec![taken(1), taken(3)], restarts: vec![restart], before_seconds: 21.0 }
    }

    #[test]
    fn a_restart_without_a_checkpoint_names_none() {
        let mut history = restarted();
        history.restarts[0].epoch = 0;
        let events = history.events(40.0, "back substitution");
        let of = |kind: &str| events.iter().find(|event| event.kind == kind).expect(kind);
        assert_eq!(of("recovery").detail, "at column 100; ranks rebuilt: [3]");
        assert_eq!(of("recovery").epoch, None);
    }

    #[test]
    fn events_come_in_the_order_of_time() {
        let events = restarted().events(40.0, "back substitution");
        let kinds: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
        assert_eq!(kinds, ["start", "checkpoint", "failure", "recovery", "checkpoint", "end"]);
        let failure = &events[2];
        assert_eq!((failure.start_seconds, failure.seconds), (10.0, 8.0));
        assert!(events[3].detail.ends_with("ranks rebuilt: [3]"));
        assert_eq!(events[5].start_seconds, 40.0);
    }

    #[test]
    fn checkpoint_of_negligible_time_is_recorded() {
        let kept =
            |taken: Taken| checkpoint(&Taken::from(<(f64, f64, u64, usize, u64)>::from(taken)));
        let short = kept(Taken { seconds: 3e-4, ..taken(1) });
        assert_eq!((short.seconds, short.bytes), (0.0, Some(1 << 20)));
        let last = kept(Taken { seconds: 0.0, bytes: 0, ..taken(1) });
        assert_eq!(last.bytes, None);
    }

    #[test]
    fn progress_spans_all_starts() {
        let sample = |elapsed_seconds, column| Sample { elapsed_seconds, column };
        let progress = restarted().progress(&[sample(22.0, 200), sample(40.0, 500)]);
        let want = [sample(10.0, 100), sample(20.0, 100), sample(22.0, 200), sample(40.0, 500)];
        assert_eq!(progress, want);
    }

    #[test]
    fn the_list_is_bounded_and_short() {
        let mut list = Vec::new();
        for epoch in 1..500 {
            let taken = Taken { start_seconds: 123_456.789_123, ..taken(epoch) };
            remember(&mut list, Taken { bytes: 1 << 38, column: 10_000_000, ..taken }, TAKEN_KEPT);
        }
        assert_eq!((list.len(), list[0].epoch, list[59].epoch), (60, 440, 499));
        let json = serde_json::to_string(&list).unwrap();
        assert!(json.len() < 60 * 60, "{}", json.len());
        let read: Vec<Taken> = serde_json::from_str(&json).unwrap();
        assert_eq!((read[0].epoch, read[0].start_seconds), (440, 123_456.789));
    }
}
