//! Checkpoints on several levels: in memory, and as images in files.
//!
//! Source: Benoit, Cavelan, Le Fèvre, Robert, Sun, "Towards Optimal Multi-Level Checkpointing",
//! IEEE TC 66(7), 2017. Failures of level l come at the rate 1/M_l and destroy everything that
//! lower levels hold, so a run continues from a checkpoint of level l or above. To first order in
//! T_l/M_l the levels separate: each costs what it would cost alone, and is best at Young's period,
//! where it takes sqrt(2 C_l/M_l) of the time.
//!
//! Derived here, beyond the paper: an image is written while the work continues, so C is only what
//! the work loses during it, an image can be restored W seconds after the state that it holds, and
//! periods shorter than W are impossible. An image is made of a checkpoint in memory, so its period
//! is a whole number of their periods. The failure-free waste and the waste of failures are
//! composed instead of added, as failures strike the time of checkpoints, too.
//!
//! Left out: two failures in one period ([`Validity`] describes where they count); the additional
//! image of the first checkpoint after a restart (at most C_l per failure of any level); that a
//! failure of level l may find a newer image on a level above.

mod planned;

pub use planned::{PlannedLevel, Storage, StoredIn};

use crate::ModelError;
use crate::error::{non_negative, positive};
use crate::tang::interval::young_seconds;

/// First-order formulas hold for periods up to this share of the MTBF: two failures in one period
/// then have a probability below 0.005 (Bosilca et al., INRIA RR-7950, section 3.2).
pub const VALID_PERIOD_SHARE: f64 = 0.1;

/// Whether a first-order formula holds for a period T.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Validity {
    /// T has room for the checkpoints, and is at most a tenth of the MTBF.
    Valid,
    /// T is above a tenth of the MTBF: several failures in one period are not negligible.
    FirstOrderDoubtful,
    /// The checkpoints do not fit into T.
    NoPeriod,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Level {
    /// C: seconds of work lost to one checkpoint of the level.
    pub cost_seconds: f64,
    /// W: seconds from the state that a checkpoint holds until it can be restored, while the work
    /// continues; 0 for a checkpoint that the work stops for.
    pub write_seconds: f64,
    /// V: seconds that a failure costs besides lost work: detection, relaunch, restoring.
    pub outage_seconds: f64,
    /// M: mean time between failures that need this level and none above it.
    pub mtbf_seconds: f64,
}

impl Level {
    pub(crate) fn validate(&self) -> Result<(), ModelError> {
        non_negative("cost_seconds", self.cost_seconds)?;
        non_negative("write_seconds", self.write_seconds)?;
        non_negative("outage_seconds", self.outage_seconds)?;
        positive("mtbf_seconds", self.mtbf_seconds)?;
        Ok(())
    }

    /// From one checkpoint of the level to the next: `T = max(sqrt(2 M C), W)`. The waste falls up
    /// to the root and rises after it, so W is best if it is longer.
    pub fn best_period_seconds(&self) -> Result<f64, ModelError> {
        self.validate()?;
        Ok(young_seconds(self.mtbf_seconds, self.cost_seconds)?.max(self.write_seconds))
    }

    /// The share of the time that failures of this level take: `(V + W + T/2) / M`. The newest
    /// whole checkpoint is W to W + T seconds old.
    fn failure_share(&self, period_seconds: f64) -> f64 {
        (self.outage_seconds + self.write_seconds + 0.5 * period_seconds) / self.mtbf_seconds
    }

    /// The share of the time that the level takes, with its failures: `C/T + (V + W + T/2) / M`.
    pub(crate) fn loss_share(&self, period_seconds: f64) -> f64 {
        self.cost_seconds / period_seconds + self.failure_share(period_seconds)
    }

    /// Holds for `C <= T`, `W <= T`, and if what a failure destroys is at most a tenth of M.
    pub(crate) fn validity(&self, period_seconds: f64) -> Validity {
        let shortest_seconds = self.cost_seconds.max(self.write_seconds);
        if period_seconds < shortest_seconds * (1.0 - 1e-9) {
            return Validity::NoPeriod;
        }
        let destroyed_seconds = period_seconds + self.write_seconds + self.outage_seconds;
        if destroyed_seconds > VALID_PERIOD_SHARE * self.mtbf_seconds * (1.0 + 1e-9) {
            Validity::FirstOrderDoubtful
        } else {
            Validity::Valid
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// Seconds of work from one checkpoint in memory to the next.
    pub work_seconds: f64,
    /// For each level of images, the number of checkpoints in memory per image.
    pub every: Vec<usize>,
}

/// The levels of a run, the nearest first.
#[derive(Debug, Clone, PartialEq)]
pub struct Levels {
    pub memory: Level,
    /// Levels of images of these checkpoints.
    pub images: Vec<Level>,
}

impl Levels {
    pub fn validate(&self) -> Result<(), ModelError> {
        self.memory.validate()?;
        self.images.iter().try_for_each(Level::validate)
    }

    /// From one checkpoint to the next, memory first: `T_0 = w + C_0 + sum C_l/k_l`, `T_l = k_l
    /// T_0`.
    pub fn periods_seconds(&self, schedule: &Schedule) -> Vec<f64> {
        assert_eq!(self.images.len(), schedule.every.len(), "a number for each level of images");
        let pairs = || self.images.iter().zip(&schedule.every);
        let of_images: f64 = pairs().map(|(level, &k)| level.cost_seconds / k as f64).sum();
        let shortest_seconds = schedule.work_seconds + self.memory.cost_seconds + of_images;
        let images = schedule.every.iter().map(|&k| k as f64 * shortest_seconds);
        [shortest_seconds].into_iter().chain(images).collect()
    }

    /// The share of the time that is not useful work: `1 - (1 - sum C_l/T_l) (1 - sum (V_l + W_l +
    /// T_l/2) / M_l)`, at most 1.
    pub fn waste(&self, schedule: &Schedule) -> f64 {
        let periods = self.periods_seconds(schedule);
        let levels = || [&self.memory].into_iter().chain(&self.images).zip(&periods);
        let free: f64 = levels().map(|(level, period)| level.cost_seconds / period).sum();
        let failing: f64 = levels().map(|(level, period)| level.failure_share(*period)).sum();
        1.0 - (1.0 - free) * (1.0 - failing).max(0.0)
    }

    /// The worst of any level.
    pub fn validity(&self, schedule: &Schedule) -> Validity {
        let levels = [&self.memory].into_iter().chain(&self.images);
        let each = levels.zip(self.periods_seconds(schedule));
        let validities: Vec<Validity> =
            each.map(|(level, period)| level.validity(period)).collect();
        let worst = [Validity::NoPeriod, Validity::FirstOrderDoubtful];
        worst.into_iter().find(|one| validities.contains(one)).unwrap_or(Validity::Valid)
    }

    /// The images of least waste if a checkpoint in memory follows each `work_seconds` of work: for
    /// each level, the whole number next to `T_l/T_0`, below or above it, that loses less.
    pub fn best_images(&self, work_seconds: f64) -> Result<Schedule, ModelError> {
        self.validate()?;
        positive("work_seconds", work_seconds)?;
        let shortest_seconds = work_seconds + self.memory.cost_seconds;
        let every = |level: &Level| {
            let best = level.best_period_seconds()? / shortest_seconds;
            let fewest = (level.write_seconds / shortest_seconds).ceil().max(1.0);
            let loses = |k: f64| level.loss_share(k * shortest_seconds);
            let (below, above) = (best.floor().max(fewest), best.ceil().max(fewest));
            Ok((if loses(below) <= loses(above) { below } else { above }) as usize)
        };
        let every = self.images.iter().map(every).collect::<Result<_, ModelError>>()?;
        Ok(Schedule { work_seconds, every })
    }

    /// Young's period in memory, and the best images of these checkpoints.
    pub fn best_schedule(&self) -> Result<Schedule, ModelError> {
        self.validate()?;
        let cost_seconds = positive("memory.cost_seconds", self.memory.cost_seconds)?;
        let period_seconds = young_seconds(self.memory.mtbf_seconds, cost_seconds)?;
        // Checkpoints that take longer than the period follow each other at once; `validity`
        // reports it.
        self.best_images((period_seconds - cost_seconds).max(1e-6 * cost_seconds))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOUR: f64 = 3600.0;

    fn level(cost_seconds: f64, write_seconds: f64, mtbf_seconds: f64) -> Level {
        Level { cost_seconds, write_seconds, outage_seconds: 0.0, mtbf_seconds }
    }

    /// Two levels by hand: checkpoints of 10 s every 1,000 s, with failures once in 50,000 s;
    /// images of 40 s of every fifth checkpoint, needed once in a million seconds.
    #[test]
    fn waste_by_hand() {
        let memory = Level { outage_seconds: 90.0, ..level(10.0, 0.0, 5e4) };
        let images = vec![Level { outage_seconds: 300.0, ..level(40.0, 200.0, 1e6) }];
        let levels = Levels { memory, images };
        let schedule = Schedule { work_seconds: 982.0, every: vec![5] };
        assert_eq!(levels.periods_seconds(&schedule), [1000.0, 5000.0]);
        let free = 10.0 / 1000.0 + 40.0 / 5000.0;
        let failing = (90.0 + 500.0) / 5e4 + (300.0 + 200.0 + 2500.0) / 1e6;
        let by_hand = 1.0 - (1.0 - free) * (1.0 - failing);
        assert!((levels.waste(&schedule) - by_hand).abs() < 1e-12);
        assert_eq!(levels.validity(&schedule), Validity::Valid);
        let often = Schedule { every: vec![1], ..schedule.clone() };
        assert_eq!(levels.validity(&often), Validity::Valid);
        let slow = Levels { images: vec![level(40.0, 1200.0, 1e6)], ..levels.clone() };
        assert_eq!(slow.validity(&often), Validity::NoPeriod);
        let seldom = Schedule { every: vec![200], ..schedule };
        assert_eq!(levels.validity(&seldom), Validity::FirstOrderDoubtful);
    }

    /// One level without images: Young's formula, and the waste that Benoit et al. derive for it.
    #[test]
    fn alone_it_is_young() {
        let memory = level(20.0, 0.0, 100.0 * HOUR);
        let levels = Levels { memory, images: vec![] };
        let best = levels.best_schedule().unwrap();
        let period = (2.0 * 20.0 * 100.0 * HOUR).sqrt();
        assert!((levels.periods_seconds(&best)[0] / period - 1.0).abs() < 1e-12);
        let of_paper = (2.0 * 20.0 / (100.0 * HOUR)).sqrt();
        assert!((memory.loss_share(period) / of_paper - 1.0).abs() < 1e-12);
    }

    #[test]
    fn levels_that_cannot_be_are_refused() {
        let refused = |level: Level, name: &str| {
            let why = level.best_period_seconds().unwrap_err().to_string();
            assert!(why.starts_with(name), "{why}");
        };
        refused(level(-1.0, 0.0, 1.0), "cost_seconds = -1");
        refused(level(1.0, f64::NAN, 1.0), "write_seconds = NaN");
        refused(level(1.0, 0.0, 0.0), "mtbf_seconds = 0");
        let free = Levels { memory: level(0.0, 0.0, 1.0), images: vec![] };
        assert!(free.best_schedule().is_err());
    }

    proptest! {
        /// The best period for the cost of an image and the rate at which it is needed: never
        /// shorter than an image takes, longer for images that cost more or are needed less, and
        /// with no greater loss than any other period.
        #[test]
        fn the_best_period_of_a_level(
            cost in 0.0..1e4f64, write in 0.0..1e5f64, mtbf in 1.0..1e9f64, factor in 0.01..100.0f64,
        ) {
            let image = level(cost, write, mtbf);
            let best = image.best_period_seconds().unwrap();
            prop_assert!(best >= write);
            prop_assert!(best == write || best == (2.0 * cost * mtbf).sqrt());
            let dearer = level(2.0 * cost, write, mtbf).best_period_seconds().unwrap();
            let rarer = level(cost, write, 2.0 * mtbf).best_period_seconds().unwrap();
            prop_assert!(dearer >= best && rarer >= best);
            let other = (factor * best).max(write);
            if other > 0.0 && best > 0.0 {
                prop_assert!(image.loss_share(best) <= image.loss_share(other) * (1.0 + 1e-12));
            }
        }

        /// The best of all whole numbers is taken, and none too small for an image to be done.
        #[test]
        fn the_best_images_of_checkpoints(
            cost in 0.0..1e3f64, write in 0.0..1e4f64, mtbf in 1e4..1e8f64, work in 10.0..1e4f64,
        ) {
            let memory = level(5.0, 0.0, 1e5);
            let image = level(cost, write, mtbf);
            let levels = Levels { memory, images: vec![image] };
            let best = levels.best_images(work).unwrap().every[0];
            let period = work + 5.0;
            prop_assert!(best >= 1 && best as f64 * period >= write);
            let loses = |k: usize| image.loss_share(k as f64 * period);
            for other in [best.saturating_sub(1), best + 1, 2 * best] {
                if other >= 1 && other as f64 * period >= write {
                    prop_assert!(loses(best) <= loses(other) * (1.0 + 1e-12));
                }
            }
        }
    }
}
