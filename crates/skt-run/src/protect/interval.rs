//! How often to take a checkpoint, and whether another one saves more than it costs.

use serde::{Deserialize, Serialize};
use std::ops::Range;

use crate::ptest::refining::RefinementLeft;
use crate::tuning::TUNING;
use skt_config::TestSpec;
use skt_config::protection::{Every, Settings};
use skt_model::tang::interval::daly_seconds;

/// A test that is [`Outlook::TooShort`] has no checkpoint due before its end even if it is this
/// many times slower than predicted.
const SLOWER: f64 = 10.0;

/// The largest share of a run's time that checkpoints cost at an interval that a user gives as a
/// time.
const CHECKPOINTS_SHARE_MAX: f64 = 0.1;

/// The corrections that a refinement is predicted to take until it has shown what one gains: four
/// are enough for factors in single precision.
const CORRECTIONS_GUESS: f64 = 4.0;

/// How often a correction passes over the matrix: once over A, which is computed again, and once
/// over L and U.
const PASSES_OF_CORRECTION: f64 = 2.0;

/// The rates that are predicted for a test, from what its start has measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GuessedRates {
    /// Operations a second of the whole job.
    pub flops: f64,
    /// Bytes a second at which a rank reads its part of the matrix; infinite where this time does
    /// not count.
    pub rank_read_bytes: f64,
}

/// The rates and times that determine when checkpoints of a test are taken.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckpointSchedule {
    every: Every,
    mtbf_seconds: f64,
    /// Seconds that the job has, if its time is limited.
    time_seconds: Option<f64>,
    n: usize,
    nb: usize,
    /// Operations a second of the whole job: predicted, then measured.
    pub rate: f64,
    /// Seconds of the last checkpoint: predicted, then measured.
    pub cost_seconds: f64,
    /// Predicted seconds in which a rank reads its part of the matrix.
    pass_seconds: f64,
    is_refined: bool,
}

/// Whether a test will have checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outlook {
    /// The test will have at least one.
    Due,
    /// The test will have none, unless it is slower than predicted.
    NoneDue,
    /// The test would have none even if it were ten times slower than predicted.
    TooShort,
}

impl CheckpointSchedule {
    /// The schedule of a test predicted to run at these rates, with at most `rank_bytes` of the
    /// matrix on a rank.
    pub(crate) fn guess(
        spec: &TestSpec,
        settings: &Settings,
        rates: GuessedRates,
        rank_bytes: usize,
    ) -> Self {
        let &TestSpec { n, nb, .. } = spec;
        let &Settings { every, mtbf_seconds, time_limit, .. } = settings;
        let matrix_bytes = n as f64 * n as f64 * spec.element_bytes() as f64;
        Self {
            every,
            mtbf_seconds,
            time_seconds: time_limit.seconds(),
            n,
            nb,
            rate: rates.flops,
            cost_seconds: rank_bytes as f64 / TUNING.checkpoint_bytes_per_second,
            pass_seconds: matrix_bytes / spec.ranks() as f64 / rates.rank_read_bytes,
            is_refined: spec.mxp.is_some(),
        }
    }

    fn panels(&self) -> usize {
        self.n.div_ceil(self.nb)
    }

    /// Notes that the panels in `range` took these seconds.
    pub(crate) fn measure(&mut self, range: Range<usize>, seconds: f64) {
        let flops = self.flops(range);
        if flops > 0.0 && seconds > 0.0 {
            self.rate = flops / seconds;
        }
    }

    /// Operations of the panels in `range`.
    pub(crate) fn flops(&self, range: Range<usize>) -> f64 {
        range.map(|k| panel_flops(k, self.n, self.nb)).sum()
    }

    /// Whether a checkpoint before panel `next` is worth its time, if the last one was before panel
    /// `saved`.
    pub(crate) fn is_worth_it(&self, saved: usize, next: usize) -> bool {
        let (_, remaining) = self.seconds_ahead(next);
        match self.every {
            Every::Never => false,
            Every::Drill(_) => true,
            // A user who gives an interval wants checkpoints, but not where the rest of the run
            // takes less time than the checkpoint.
            Every::Panels(_) | Every::Seconds(_) if next < self.panels() => {
                remaining > self.cost_seconds
            }
            // At the end of the factorization little is left to do, but all work is at risk.
            Every::Auto | Every::Panels(_) | Every::Seconds(_) => {
                let at_risk = self.flops(saved..next) / self.rate;
                pays(self.cost_seconds, at_risk, remaining, self.mtbf_seconds)
            }
        }
    }

    /// Whether a checkpoint between two steps of a refinement is due and worth its time,
    /// `since_seconds` after the last one.
    pub(crate) fn is_worth_it_in_refinement(
        &self,
        since_seconds: f64,
        left: &RefinementLeft,
    ) -> bool {
        let &Self { every, cost_seconds, mtbf_seconds, .. } = self;
        let corrections = left.corrections.unwrap_or(CORRECTIONS_GUESS.min(left.corrections_max));
        let remaining = corrections * self.seconds_of_correction(left);
        let is_rest_longer = remaining > cost_seconds;
        match every {
            Every::Never => false,
            Every::Drill(_) => true,
            Every::Auto => {
                let interval_seconds = daly_interval_seconds(cost_seconds, mtbf_seconds);
                since_seconds >= interval_seconds
                    && pays(cost_seconds, since_seconds, remaining, mtbf_seconds)
            }
            Every::Seconds(seconds) => {
                is_rest_longer
                    && since_seconds >= affordable_interval_seconds(seconds, cost_seconds)
            }
            Every::Panels(count) => {
                let first = self.flops(0..count.min(self.panels())) / self.rate;
                is_rest_longer && since_seconds >= first
            }
        }
    }

    /// Seconds of the next correction of a refinement, and of the rest of the run from there on, of
    /// which this is `left`.
    pub(crate) fn seconds_ahead_in_refinement(&self, left: &RefinementLeft) -> (f64, f64) {
        let each_seconds = self.seconds_of_correction(left);
        (each_seconds, left.corrections.unwrap_or(left.corrections_max) * each_seconds)
    }

    /// Seconds of a correction of the refinement: measured or, until then, predicted.
    fn seconds_of_correction(&self, left: &RefinementLeft) -> f64 {
        left.correction_seconds.unwrap_or(PASSES_OF_CORRECTION * self.pass_seconds)
    }

    /// Seconds of panel `next`, and of the rest of the run from there on.
    pub(crate) fn seconds_ahead(&self, next: usize) -> (f64, f64) {
        let step_seconds = self.flops(next..(next + 1).min(self.panels())) / self.rate;
        (step_seconds, self.factor_seconds_from(next) + self.back_seconds())
    }

    /// The panel before which `seconds` have passed, seen from panel `next`: at least one panel
    /// later, if there is one.
    pub(crate) fn after(&self, next: usize, seconds: f64) -> usize {
        let (mut k, mut left) = (next, seconds * self.rate);
        while k < self.panels() && (left > 0.0 || k == next) {
            left -= panel_flops(k, self.n, self.nb);
            k += 1;
        }
        k
    }

    /// Predicted seconds of all panels from `next` on.
    fn factor_seconds_from(&self, next: usize) -> f64 {
        let m = self.n.saturating_sub(next * self.nb) as f64;
        2.0 / 3.0 * m * m * m / self.rate
    }

    /// Predicted seconds after the factorization: those of the refinement, or of the back
    /// substitution, which reads U.
    fn back_seconds(&self) -> f64 {
        if self.is_refined {
            CORRECTIONS_GUESS * PASSES_OF_CORRECTION * self.pass_seconds
        } else {
            0.5 * self.pass_seconds
        }
    }

    /// The panel before which the next checkpoint is due, seen from panel `next`.
    pub(crate) fn next_due(&self, next: usize) -> usize {
        let after = |seconds: f64| self.after(next, seconds);
        match self.every {
            Every::Never => self.panels(),
            Every::Panels(count) | Every::Drill(count) => (next + count).min(self.panels()),
            Every::Seconds(seconds) => {
                after(affordable_interval_seconds(seconds, self.cost_seconds))
            }
            Every::Auto => after(daly_interval_seconds(self.cost_seconds, self.mtbf_seconds)),
        }
    }

    /// Whether the interval that the user gives is stretched, as checkpoints take too long for it.
    pub(crate) fn warning(&self) -> Option<String> {
        let Every::Seconds(asked_seconds) = self.every else { return None };
        let cost_seconds = self.cost_seconds;
        let used_seconds = affordable_interval_seconds(asked_seconds, cost_seconds);
        (used_seconds > asked_seconds).then(|| {
            format!(
                "--checkpoint-every {asked_seconds}s: a checkpoint takes {cost_seconds:.3} s: the \
                 work between two is {used_seconds:.3} s"
            )
        })
    }

    /// Whether the test takes a checkpoint by this schedule.
    fn takes_one(&self) -> bool {
        let mut next = 0;
        while next < self.panels() {
            next = self.next_due(next);
            if self.is_worth_it(0, next) {
                return true;
            }
        }
        false
    }

    /// Predicts whether the test will have checkpoints.
    pub fn outlook(&self) -> Outlook {
        let slow = Self { rate: self.rate / SLOWER, ..self.clone() };
        let slow_seconds = SLOWER * self.seconds_ahead(0).1;
        match (self.takes_one(), slow.takes_one()) {
            (true, _) => Outlook::Due,
            // A user who asks for no checkpoints wants to have, and to measure, their setup only.
            (false, _) if self.every == Every::Never => Outlook::NoneDue,
            (false, true) => Outlook::NoneDue,
            // The last checkpoint is due when the time ends.
            _ if self.time_seconds.is_some_and(|limit| slow_seconds > limit) => Outlook::NoneDue,
            _ => Outlook::TooShort,
        }
    }
}

/// Daly's higher-order optimum of the time between checkpoints that take `cost_seconds` each
/// ([`daly_seconds`]).
///
/// # Panics
/// When the MTBF is not above 0, or the cost is below 0.
pub(crate) fn daly_interval_seconds(cost_seconds: f64, mtbf_seconds: f64) -> f64 {
    daly_seconds(mtbf_seconds, cost_seconds).expect("the MTBF was checked, and clocks go forward")
}

/// Seconds of work between two checkpoints of `cost_seconds` each where a user asks for
/// `asked_seconds`: more, if they would cost more than [`CHECKPOINTS_SHARE_MAX`] of the time.
fn affordable_interval_seconds(asked_seconds: f64, cost_seconds: f64) -> f64 {
    asked_seconds.max(cost_seconds * (1.0 / CHECKPOINTS_SHARE_MAX - 1.0))
}

/// Whether a checkpoint pays off: its expected saving, the work at risk times the probability of a
/// failure in the remaining time, exceeds its cost.
fn pays(cost: f64, at_risk: f64, remaining: f64, mtbf: f64) -> bool {
    at_risk * -(-remaining / mtbf).exp_m1() > cost
}

/// Operations of panel `k`: `2 jb (n-j)^2`, which is accurate enough here.
pub(crate) fn panel_flops(k: usize, n: usize, nb: usize) -> f64 {
    let j = (k * nb).min(n) as f64;
    let (n, jb) = (n as f64, ((k + 1) * nb).min(n) as f64 - j);
    2.0 * jb * (n - j) * (n - j)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protect::deadline::{Ahead, TimeLeft};
    use proptest::prelude::*;

    #[test]
    fn daly_is_between_young_and_the_mtbf() {
        // One minute of checkpoint, a day of MTBF: Young's sqrt(2 M d) is 3220 s.
        let tau = daly_interval_seconds(60.0, 86400.0);
        assert!((tau - 3180.1).abs() < 0.5, "{tau}");
        assert_eq!(daly_interval_seconds(300.0, 100.0), 100.0);
    }

    /// A test of 100 panels of which the first take a second each.
    fn schedule(every: Every, cost_seconds: f64) -> CheckpointSchedule {
        let (n, nb) = (10_000, 100);
        CheckpointSchedule { every, cost_seconds, ..at_rate(n, nb, panel_flops(0, n, nb)) }
    }

    fn at_rate(n: usize, nb: usize, rate: f64) -> CheckpointSchedule {
        CheckpointSchedule {
            every: Every::Auto,
            mtbf_seconds: 1e9,
            time_seconds: None,
            n,
            nb,
            rate,
            cost_seconds: 0.0,
            pass_seconds: 0.0,
            is_refined: false,
        }
    }

    #[test]
    fn interval_shorter_than_its_checkpoint_is_stretched() {
        let cheap = schedule(Every::Seconds(2.0), 0.1);
        assert_eq!((cheap.next_due(0), cheap.warning()), (3, None));
        let dear = schedule(Every::Seconds(2.0), 2.0);
        assert!((18..24).contains(&dear.next_due(0)), "{}", dear.next_due(0));
        let warning_text = dear.warning().expect("a warning");
        assert!(
            warning_text.starts_with("--checkpoint-every 2s: a checkpoint takes 2.000 s: "),
            "{warning_text}"
        );
        assert!(warning_text.contains("between two is 18.000 s"), "{warning_text}");
        // Panels are taken as they are given.
        assert_eq!(schedule(Every::Panels(2), 5.0).next_due(0), 2);
        for every in [Every::Panels(2), Every::Drill(2), Every::Auto, Every::Never] {
            assert_eq!(schedule(every, 5.0).warning(), None, "{every:?}");
        }
    }

    /// A refinement in which `done` of ten corrections of 100 s have ended.
    fn left(done: usize) -> RefinementLeft {
        RefinementLeft {
            correction_seconds: (done > 0).then_some(100.0),
            corrections: (done > 0).then_some(10.0 - done as f64),
            corrections_max: 50.0 - done as f64,
        }
    }

    /// The corrections of such a refinement after which it takes a checkpoint, if the last one
    /// before was `unsaved_seconds` before it began.
    fn checkpoints(schedule: &CheckpointSchedule, unsaved_seconds: f64) -> Vec<usize> {
        let mut since_seconds = unsaved_seconds;
        let takes = |done: &usize| {
            let is_due = schedule.is_worth_it_in_refinement(since_seconds, &left(*done));
            since_seconds = 100.0 + if is_due { 0.0 } else { since_seconds };
            is_due
        };
        (0..10).filter(takes).collect()
    }

    #[test]
    fn refinement_is_saved_at_the_interval_asked_for() {
        let slow = |every, cost_seconds| CheckpointSchedule {
            // A prediction of 4 corrections of 2 s.
            pass_seconds: 1.0,
            is_refined: true,
            mtbf_seconds: 1e5,
            ..schedule(every, cost_seconds)
        };
        let taken = |every, cost_seconds| checkpoints(&slow(every, cost_seconds), 0.0);
        assert_eq!(taken(Every::Seconds(250.0), 1.0), [3, 6, 9]);
        assert_eq!(taken(Every::Seconds(2.0), 1.0), (1..10).collect::<Vec<_>>());
        // At most a tenth of the time goes to checkpoints, and none is longer than the rest.
        assert_eq!(taken(Every::Seconds(2.0), 40.0), [4, 8]);
        assert_eq!(taken(Every::Seconds(2.0), 150.0), [] as [usize; 0]);
        // The first panels take 1 s each.
        assert_eq!(taken(Every::Panels(3), 1.0), (1..10).collect::<Vec<_>>());
        assert_eq!(taken(Every::Never, 1.0), [] as [usize; 0]);
        assert_eq!(taken(Every::Drill(9), 1.0), (0..10).collect::<Vec<_>>());
        // Daly: an interval of 446 s, of 1410 s for a cost of 10 s.
        assert_eq!(taken(Every::Auto, 1.0), [5]);
        assert_eq!(taken(Every::Auto, 10.0), [] as [usize; 0]);
        // Work of the factorization is at risk, but what follows is predicted to take 8 s.
        let saved_before = |every| checkpoints(&slow(every, 1.0), 20_000.0)[0];
        assert_eq!(saved_before(Every::Seconds(250.0)), 0);
        assert_eq!(saved_before(Every::Auto), 0);
    }

    #[test]
    fn refinement_stops_within_its_time() {
        let schedule = CheckpointSchedule { pass_seconds: 1.0, ..schedule(Every::Auto, 10.0) };
        // Seconds at which a refinement of ten corrections stops, if it does.
        let stops = |limit_seconds: f64, is_gain_known: bool| {
            (0..10).map(|done| (done, 100.0 * done as f64)).find_map(|(done, now)| {
                let left = left(done);
                let corrections = left.corrections.filter(|_| is_gain_known);
                let left = RefinementLeft { corrections, ..left };
                let (step_seconds, rest_seconds) = schedule.seconds_ahead_in_refinement(&left);
                let ahead = Ahead { step_seconds, rest_seconds, save_seconds: 10.0 };
                TimeLeft(limit_seconds - now).is_over(&ahead).then_some(now)
            })
        };
        // After another correction, all of half as long again, the state could not be saved.
        assert_eq!([stops(550.0, true), stops(550.0, false)], [Some(400.0); 2]);
        assert_eq!(stops(570.0, true), Some(500.0));
        // The rest of a known gain fits in, with doubt.
        assert_eq!(stops(1051.0, true), None);
        assert_eq!(stops(1051.0, false), Some(900.0));
    }

    proptest! {
        #[test]
        fn checkpoints_at_a_given_time_cost_at_most_their_share(
            asked in 1e-3..1e6f64, cost in 0.0..1e5f64,
        ) {
            let seconds = affordable_interval_seconds(asked, cost);
            prop_assert!(seconds >= asked);
            prop_assert!(cost / (seconds + cost) <= CHECKPOINTS_SHARE_MAX * (1.0 + 1e-9));
            if cost / (asked + cost) < CHECKPOINTS_SHARE_MAX * (1.0 - 1e-9) {
                prop_assert_eq!(seconds, asked);
            }
        }

        #[test]
        fn cuts_go_forward_and_end(n in 1usize..5000, nb in 1usize..300, s in 0.0..1e3f64) {
            let panels = n.div_ceil(nb);
            let mut k = 0;
            while k < panels {
                let next = at_rate(n, nb, 1e9).after(k, s);
                prop_assert!(next > k && next <= panels);
                k = next;
            }
        }

        #[test]
        fn panels_add_up_to_the_whole(n in 100usize..5000, nb in 1usize..30) {
            let sum: f64 = (0..n.div_ceil(nb)).map(|k| panel_flops(k, n, nb)).sum();
            let (_, whole) = at_rate(n, nb, 1.0).seconds_ahead(0);
            prop_assert!((sum / whole - 1.0).abs() < 3.0 * nb as f64 / n as f64, "{sum} {whole}");
        }
    }
}
