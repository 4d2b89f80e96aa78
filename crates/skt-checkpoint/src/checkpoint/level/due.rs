use std::time::Instant;

use bytemuck::{Pod, Zeroable};
use skt_host::checkpoint_times::young_seconds;

/// The cost of a rank's last image on a level.
#[derive(Debug, Clone, Copy, Default, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct ImageCost {
    /// Seconds from its first operation to its last.
    pub write_seconds: f64,
    /// Seconds that the rank has waited for it.
    pub wait_seconds: f64,
    /// Seconds of a core that its writer has used.
    pub cpu_seconds: f64,
}

impl ImageCost {
    /// The larger cost of two ranks, in each respect.
    pub fn max(self, other: Self) -> Self {
        Self {
            write_seconds: self.write_seconds.max(other.write_seconds),
            wait_seconds: self.wait_seconds.max(other.wait_seconds),
            cpu_seconds: self.cpu_seconds.max(other.cpu_seconds),
        }
    }
}

/// Reads the seconds of the run so far from a state of the application.
pub type StateSeconds = fn(&[u8]) -> f64;

/// How often images of a level are written.
#[derive(Debug, Clone, Copy)]
pub enum ImagesEvery {
    /// At least this many seconds apart; 0 for an image of each epoch.
    Seconds(f64),
    /// At an interval that follows from their cost. Until that is known, one image is written: of
    /// the first epoch of a start or, if a user asks for an interval, that long after the last one.
    Cost {
        /// The interval that a user asks for.
        asked_seconds: Option<f64>,
        /// What an image may cost.
        limits: CostLimits,
    },
}

/// What images may cost, and what their cost is counted by.
#[derive(Debug, Clone, Copy)]
pub struct CostLimits {
    /// The rank's threads, whose cores the writer of images uses.
    pub threads: usize,
    /// Whether it does.
    pub shares: bool,
    /// The largest share of the run's time that images of a level may cost.
    pub share_max: f64,
    /// Mean seconds between failures that need an image.
    pub mtbf_seconds: f64,
}

impl ImagesEvery {
    /// The seconds between two images of this `cost`. The work loses the time that the rank waits,
    /// and the time that the writer takes on its cores, which the threads share.
    ///
    /// The interval that a user asks for is stretched, if images would cost more than `share_max`
    /// of the time. Without one it is the interval that costs least, `max(sqrt(2 M C), W)` (Benoit
    /// et al., IEEE TC 2017; `skt_model::levels` derives it).
    pub fn interval_seconds(&self, cost: &ImageCost) -> f64 {
        let (asked_seconds, limits) = match *self {
            Self::Seconds(seconds) => return seconds,
            Self::Cost { asked_seconds, limits } => (asked_seconds, limits),
        };
        let cpu_seconds = if limits.shares { cost.cpu_seconds } else { 0.0 };
        let cost_seconds = cost.wait_seconds + cpu_seconds / limits.threads as f64;
        match asked_seconds {
            Some(asked_seconds) => asked_seconds.max(cost_seconds / limits.share_max),
            None => young_seconds(limits.mtbf_seconds, cost_seconds).max(cost.write_seconds),
        }
    }
}

/// The seconds of the run so far: those of the last saved state, plus the time since then. If
/// states do not contain the time, the seconds of this start.
pub(super) struct RunClock {
    of_state: Option<StateSeconds>,
    /// The seconds in the last state, and when it was saved.
    saved: (f64, Instant),
}

impl RunClock {
    pub(crate) fn new(of_state: Option<StateSeconds>) -> Self {
        Self { of_state, saved: (0.0, Instant::now()) }
    }

    pub(crate) fn note_saved(&mut self, state: &[u8]) {
        if let Some(of_state) = self.of_state {
            self.saved = (of_state(state), Instant::now());
        }
    }

    pub(crate) fn seconds(&self) -> f64 {
        let (seconds, at) = self.saved;
        seconds + at.elapsed().as_secs_f64()
    }
}

/// When the next image of a level is due. Rank 0 decides by it, in seconds of the run.
#[derive(Debug)]
pub(super) struct NextImage {
    every: ImagesEvery,
    /// When the last image was due, or the run began.
    last_seconds: f64,
    /// The cost of this rank's last image of this start, once it is known.
    cost: Option<ImageCost>,
    /// The largest cost of any rank, as of the last barrier; zero if none is known.
    cost_of_ranks: ImageCost,
    /// Since when an image is being written, if one is.
    under_way: Option<Instant>,
}

impl NextImage {
    /// For a start that has found images due at `last_seconds`; 0 if it has found none.
    pub(crate) fn new(every: ImagesEvery, last_seconds: f64) -> Self {
        let cost_of_ranks = ImageCost::default();
        Self { every, last_seconds, cost: None, cost_of_ranks, under_way: None }
    }

    /// The cost of the last image, of the rank for which it is largest as far as this rank knows.
    pub(crate) fn cost(&self) -> Option<ImageCost> {
        let is_known = self.cost.is_some() || self.cost_of_ranks != ImageCost::default();
        is_known.then(|| self.cost.unwrap_or_default().max(self.cost_of_ranks))
    }

    /// The cost of this rank's last image; zero if it is not known.
    pub(crate) fn own_cost(&self) -> ImageCost {
        self.cost.unwrap_or_default()
    }

    pub(crate) fn note_cost(&mut self, of_ranks: ImageCost) {
        self.cost_of_ranks = of_ranks;
    }

    pub(crate) fn interval_by_cost(&self) -> Option<f64> {
        let ImagesEvery::Cost { asked_seconds, .. } = self.every else { return None };
        let seconds = self.every.interval_seconds(&self.cost()?);
        asked_seconds.is_none_or(|asked| seconds > asked).then_some(seconds)
    }

    /// The seconds between two images that a user asks for, and the longer ones that their cost
    /// makes of these, if it does.
    pub(crate) fn stretched(&self) -> Option<(f64, f64)> {
        let ImagesEvery::Cost { asked_seconds, .. } = self.every else { return None };
        Some((asked_seconds?, self.interval_by_cost()?))
    }

    pub(crate) fn is_due(&self, now_seconds: f64) -> bool {
        let is_over = |seconds| now_seconds - self.last_seconds >= seconds;
        match (self.every, self.cost()) {
            // The cost is known when the first image is done.
            (ImagesEvery::Cost { asked_seconds, .. }, None) => {
                self.under_way.is_none() && is_over(asked_seconds.unwrap_or(0.0))
                    || self.last_seconds.is_infinite()
            }
            (every, cost) => is_over(every.interval_seconds(&cost.unwrap_or_default())),
        }
    }

    pub(crate) fn make_due(&mut self) {
        self.last_seconds = f64::NEG_INFINITY;
    }

    /// Notes that an image was due at `now_seconds`, and is being written from now on.
    pub(crate) fn begin(&mut self, now_seconds: f64) {
        (self.last_seconds, self.under_way) = (now_seconds, Some(Instant::now()));
    }

    pub(crate) fn seconds_under_way(&self) -> Option<f64> {
        self.under_way.map(|since| since.elapsed().as_secs_f64())
    }

    /// Notes that no image is being written any more; `cost` is `None` if it was not begun.
    pub(crate) fn end(&mut self, cost: Option<ImageCost>) {
        self.under_way = None;
        self.cost = cost.or(self.cost);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn by_cost() -> NextImage {
        NextImage::new(every_by_cost(None), 0.0)
    }

    fn every_by_cost(asked_seconds: Option<f64>) -> ImagesEvery {
        let limits =
            CostLimits { threads: 1, shares: true, share_max: 0.25, mtbf_seconds: 86400.0 };
        ImagesEvery::Cost { asked_seconds, limits }
    }

    fn waits_for(wait_seconds: f64) -> ImageCost {
        ImageCost { wait_seconds, ..ImageCost::default() }
    }

    proptest! {
        /// The interval for all costs of an image and all times between failures.
        #[test]
        fn the_interval_between_images(
            write in 0.0..1e4f64, wait in 0.0..1e3f64, cpu in 0.0..1e3f64,
            threads in 1usize..128, mtbf in 1.0..1e9f64,
        ) {
            let interval = |cost: &ImageCost, mtbf_seconds| {
                let limits = CostLimits { threads, shares: true, share_max: 0.1, mtbf_seconds };
                ImagesEvery::Cost { asked_seconds: None, limits }.interval_seconds(cost)
            };
            let cost =
                ImageCost { write_seconds: write, wait_seconds: wait, cpu_seconds: cpu };
            let seconds = interval(&cost, mtbf);
            prop_assert!(seconds >= write, "one is written at a time");
            let young = (2.0 * mtbf * (wait + cpu / threads as f64)).sqrt();
            prop_assert!((seconds - young.max(write)).abs() <= 1e-9 * seconds);
            prop_assert!(interval(&cost, 2.0 * mtbf) >= seconds);
            let dearer = ImageCost { wait_seconds: wait + 1.0, ..cost };
            prop_assert!(interval(&dearer, mtbf) >= seconds);
        }
    }

    #[test]
    fn given_interval_is_stretched_by_the_slowest_rank() {
        let mut next = NextImage::new(every_by_cost(Some(60.0)), 1000.0);
        assert!(!next.is_due(1059.0) && next.is_due(1060.0));
        next.begin(1060.0);
        assert!(!next.is_due(1e9), "its cost is not known yet");
        next.end(Some(waits_for(0.01)));
        assert_eq!((next.stretched(), next.interval_by_cost()), (None, None), "as asked");
        assert!(!next.is_due(1119.0) && next.is_due(1120.0));
        next.note_cost(waits_for(900.0));
        assert_eq!(next.stretched(), Some((60.0, 3600.0)));
        assert!(!next.is_due(1120.0) && next.is_due(4660.0));
        next.make_due();
        assert!(next.is_due(0.0));
        // A rank that has written nothing itself decides by the others' cost, too.
        let mut other = NextImage::new(every_by_cost(Some(60.0)), 0.0);
        other.note_cost(waits_for(1800.0));
        assert!(!other.is_due(7199.0) && other.is_due(7200.0));
    }

    #[test]
    fn the_first_epoch_has_an_image_and_then_its_cost_decides() {
        let mut next = by_cost();
        assert!(next.is_due(0.0) && next.interval_by_cost().is_none());
        next.begin(100.0);
        assert!(!next.is_due(1e9), "before the first is done no other is due");
        next.end(Some(ImageCost { write_seconds: 7200.0, ..ImageCost::default() }));
        assert_eq!(next.interval_by_cost(), Some(7200.0));
        assert!(!next.is_due(7299.0) && next.is_due(7300.0));
        next.end(Some(ImageCost::default()));
        assert!(next.is_due(100.0), "what costs nothing is always due");
    }

    #[test]
    fn unstarted_image_leaves_its_cost_unknown() {
        let mut next = by_cost();
        next.begin(0.0);
        next.end(None);
        assert!(next.is_due(0.0));
    }

    #[test]
    fn given_interval_counts_from_the_last_image_or_the_start() {
        let mut next = NextImage::new(ImagesEvery::Seconds(3600.0), 1000.0);
        assert!(!next.is_due(4599.0) && next.is_due(4600.0));
        next.begin(5000.0);
        assert!(!next.is_due(8599.0) && next.interval_by_cost().is_none());
        assert!(NextImage::new(ImagesEvery::Seconds(3600.0), 0.0).is_due(3600.0));
        next.make_due();
        assert!(next.is_due(0.0));
    }

    #[test]
    fn clock_continues_from_the_saved_state() {
        let of_state: StateSeconds = |state| 3600.0 * state.len() as f64;
        let mut clock = RunClock::new(Some(of_state));
        clock.note_saved(b"two");
        assert!((10_800.0..14_400.0).contains(&clock.seconds()));
        let mut silent = RunClock::new(None);
        silent.note_saved(b"two");
        assert!(silent.seconds() < 3600.0, "of this start");
    }
}
