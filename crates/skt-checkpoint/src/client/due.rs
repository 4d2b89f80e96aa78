//! When a checkpoint is due. This follows from its cost, from the mean time between failures, and
//! from the end of the job's time.

use std::time::Instant;

use skt_host::checkpoint_times::{SPARE, young_seconds};

/// Seconds for the application to end, and for delays of a busy machine.
const END_SECONDS: f64 = 1.0;

/// Whether it is time for a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Not yet.
    No,
    /// Now.
    Now,
    /// Now, and then the application should end: there is no time for another step and checkpoint.
    Last,
}

impl Due {
    const ALL: [Self; 3] = [Self::No, Self::Now, Self::Last];

    pub(super) fn number(self) -> u8 {
        self as u8
    }

    pub(super) fn from_number(number: u8) -> Self {
        Self::ALL[usize::from(number)]
    }
}

#[derive(Debug, Default)]
pub(super) struct MeasuredTimes {
    /// When the last checkpoint of this start was complete, and the seconds that it took.
    taken: Option<(Instant, f64)>,
    /// When the last step began: when the application asked what is due, or took a checkpoint.
    step: Option<Instant>,
    /// The longest step.
    step_seconds: f64,
}

pub(super) struct Limits {
    /// Mean time between failures of the whole job.
    pub mtbf_seconds: f64,
    /// Seconds up to the end of the job's time; infinite without one.
    pub seconds_left: f64,
    /// Seconds that the images of a checkpoint take.
    pub image_seconds: f64,
}

impl MeasuredTimes {
    /// Whether a checkpoint has been taken in this start.
    pub(crate) fn has_taken(&self) -> bool {
        self.taken.is_some()
    }

    pub(crate) fn note_taken(&mut self, now: Instant, seconds: f64) {
        self.taken = Some((now, seconds));
        self.step = self.step.map(|_| now);
    }

    /// What is due at `now`: a checkpoint at once in each start, to measure what one takes, then at
    /// Young's interval; the last one while there is time for it.
    pub(crate) fn due(&mut self, now: Instant, limits: &Limits) -> Due {
        if let Some(step) = self.step.replace(now) {
            self.step_seconds = self.step_seconds.max((now - step).as_secs_f64());
        }
        let took_seconds = self.taken.map_or(0.0, |(_, seconds)| seconds);
        let ahead_seconds = took_seconds + limits.image_seconds + self.step_seconds;
        if limits.seconds_left < SPARE * ahead_seconds + END_SECONDS {
            return Due::Last;
        }
        let is_over = |(since, seconds): (Instant, f64)| {
            (now - since).as_secs_f64() >= young_seconds(limits.mtbf_seconds, seconds)
        };
        if self.taken.is_none_or(is_over) { Due::Now } else { Due::No }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn limits(mtbf_seconds: f64, seconds_left: f64) -> Limits {
        Limits { mtbf_seconds, seconds_left, image_seconds: 0.0 }
    }

    #[test]
    fn a_checkpoint_is_due_at_once_and_then_at_youngs_interval() {
        let (mut measured, begin) = (MeasuredTimes::default(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        let endless = limits(5000.0, f64::INFINITY);
        assert_eq!(measured.due(at(0), &endless), Due::Now);
        measured.note_taken(at(1), 1.0);
        assert_eq!(measured.due(at(100), &endless), Due::No);
        assert_eq!(measured.due(at(101), &endless), Due::Now);
    }

    /// Steps, checkpoints and images of any length, each up to half as long again as the longest
    /// before: the last checkpoint is whole before the end, and not much earlier than it has to be.
    #[test]
    fn the_last_checkpoint_is_whole_before_the_end() {
        for (step, checkpoint, image) in
            [(1.0, 0.1, 0.0), (0.01, 2.0, 30.0), (60.0, 5.0, 0.0), (3.0, 1.0, 100.0)]
        {
            let (mut measured, begin, end) = (MeasuredTimes::default(), Instant::now(), 3600.0);
            let at = |seconds| begin + Duration::from_secs_f64(seconds);
            let (mut now, mut learned) = (0.0, 0.0);
            loop {
                let limits = Limits {
                    mtbf_seconds: 86400.0,
                    seconds_left: end - now,
                    image_seconds: learned,
                };
                match measured.due(at(now), &limits) {
                    Due::No => {}
                    Due::Now => {
                        now += checkpoint;
                        measured.note_taken(at(now), checkpoint);
                        learned = image;
                    }
                    Due::Last => break,
                }
                now += step;
            }
            let (whole, ahead) = (now + 1.4 * (checkpoint + image), step + checkpoint + image);
            assert!(whole <= end, "{step} s a step: whole at {whole}");
            assert!(now > end - 2.5 * ahead - END_SECONDS, "{step} s a step: stops at {now}");
        }
    }

    #[test]
    fn without_time_the_first_checkpoint_is_the_last() {
        assert_eq!(MeasuredTimes::default().due(Instant::now(), &limits(1.0, -5.0)), Due::Last);
        assert_eq!(MeasuredTimes::default().due(Instant::now(), &limits(1.0, 5.0)), Due::Now);
    }
}
