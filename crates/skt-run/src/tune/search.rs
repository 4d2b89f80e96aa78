//! Which value of a parameter is the fastest, on a machine that drifts and is noisy.
//!
//! Nothing here runs a test or reads a clock: a [`Bench`] does.
//!
//! - *Heats* find a challenger by sequential halving (Karnin, Koren and Somekh, ICML 2013): all
//!   values get a trial, and the better half continues. Trials are interleaved in blocks, one of
//!   each value. A rate is taken relative to the mean of its block, so that drift from block to
//!   block cancels. Every second block runs backwards, against drift within a block.
//! - A *duel* then compares the challenger with the default, in pairs of trials in the order AB BA
//!   AB BA. The trials of the heats do not count: the winner of many was also lucky.
//!
//! The challenger is better only if the median of the logarithms of the ratios exceeds Student's
//! one-sided 99 % bound for their mean. An outlier widens that bound, and so never makes a
//! challenger better.

use skt_host::median::{median, nonempty_median};

/// A machine that runs trials.
pub(crate) trait Bench {
    type Candidate;
    /// Ends the search.
    type Error;

    /// Runs a trial of a candidate. Returns its rate in Gflop/s.
    fn trial(&mut self, candidate: &Self::Candidate) -> Result<f64, Self::Error>;

    /// Seconds since tuning began.
    fn elapsed_seconds(&self) -> f64;
}

/// The comparison of a candidate with the default.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// How much faster the candidate is, at the median of all pairs: 0.02 is 2 %.
    pub gain: f64,
    /// The bound that the gain has to exceed; infinite for fewer than [`PAIRS_MIN`] pairs.
    pub noise: f64,
    /// Pairs of trials.
    pub pairs: usize,
}

impl Race {
    /// Whether it was decided, with the challenger no faster than the default.
    pub(crate) fn is_lost(&self) -> bool {
        let is_slower = |(_, comparison): (usize, Comparison)| comparison.gain <= 0.0;
        self.verdict == RaceVerdict::Kept && self.challenger.is_some_and(is_slower)
    }
}

impl Comparison {
    /// The comparison from the logarithms of the ratios of rates, one for each pair.
    fn from_ratios(ln_ratios: &[f64]) -> Self {
        let pairs = ln_ratios.len();
        let noise = match pairs {
            PAIRS_MIN.. => quantile(pairs) * deviation(ln_ratios) / (pairs as f64).sqrt(),
            _ => f64::INFINITY,
        };
        let gain = median(ln_ratios.iter().copied()).unwrap_or(0.0).exp_m1();
        Self { gain, noise: noise.exp_m1(), pairs }
    }

    /// Whether the candidate is faster beyond the noise.
    pub(crate) fn is_better(&self) -> bool {
        self.gain > self.noise
    }
}

/// The number of pairs below which a duel decides nothing.
pub(crate) const PAIRS_MIN: usize = 4;
/// The number of pairs after which an undecided duel is a tie.
const PAIRS_MAX: usize = 8;
/// With more candidates than this, each has only one trial in the first heat.
const FEW: usize = 3;
/// How many times longer than expected a trial may take: none begins within that time of the end.
const MARGIN: f64 = 2.0;

/// One-sided 99 % quantiles of Student's distribution, for 4, 6 and 8 measurements
/// (3, 5 and 7 degrees of freedom).
fn quantile(measurements: usize) -> f64 {
    match measurements {
        ..6 => 4.541,
        6..8 => 3.365,
        8.. => 2.998,
    }
}

/// The outcome of a race.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RaceVerdict {
    /// The default stays: it is the fastest, or none is faster beyond the noise.
    Kept,
    /// Another candidate is faster.
    Better,
    /// The default stays: there was no time to decide.
    Unfinished,
}

/// The race of the values of a parameter.
#[derive(Debug, Clone, PartialEq)]
pub struct Race {
    /// Gflop/s of all trials, by candidate.
    pub gflops: Vec<Vec<f64>>,
    /// The chosen candidate; 0 is the default.
    pub chosen: usize,
    /// Why it is chosen.
    pub verdict: RaceVerdict,
    /// The winner of the heats, and its comparison with the default.
    pub challenger: Option<(usize, Comparison)>,
}

/// A search within a budget of time.
pub(crate) struct Search<B: Bench> {
    /// The machine that runs the trials.
    pub bench: B,
    /// When it ends, in seconds since tuning began.
    end_seconds: f64,
    /// The number of later trials for which time is reserved.
    reserved: usize,
    /// The expected seconds of a trial of a candidate that has had none.
    usual_seconds: f64,
}

/// The trials of a candidate.
#[derive(Debug, Clone, Default)]
struct CandidateTrials {
    gflops: Vec<f64>,
    longest_seconds: f64,
}

impl<B: Bench> Search<B> {
    /// A search that ends at `end_seconds`; a trial takes about `usual_seconds`.
    pub(crate) fn new(bench: B, end_seconds: f64, usual_seconds: f64) -> Self {
        Self { bench, end_seconds, reserved: 0, usual_seconds }
    }

    /// Reserves time for this number of later trials.
    pub(crate) fn reserve(&mut self, trials: usize) {
        self.reserved = trials;
    }

    /// Runs a trial that is in no race. Returns its seconds, which are then expected of the next
    /// trials, or `None` where the budget might not suffice.
    pub(crate) fn warm_up(&mut self, candidate: &B::Candidate) -> Result<Option<f64>, B::Error> {
        let mut trials = CandidateTrials::default();
        if !self.trial(candidate, &mut trials)? {
            return Ok(None);
        }
        self.usual_seconds = trials.longest_seconds;
        Ok(Some(self.usual_seconds))
    }

    /// Races candidates, of which the first is the default.
    pub(crate) fn race(&mut self, candidates: &[B::Candidate]) -> Result<Race, B::Error> {
        let mut trials = vec![CandidateTrials::default(); candidates.len()];
        let mut race = self.decide(candidates, &mut trials)?;
        if !trials[race.chosen].gflops.is_empty() {
            self.usual_seconds = trials[race.chosen].longest_seconds;
        }
        race.gflops = trials.into_iter().map(|trials| trials.gflops).collect();
        Ok(race)
    }

    /// Decides a race, whose rates are left in `trials`.
    fn decide(
        &mut self,
        candidates: &[B::Candidate],
        trials: &mut [CandidateTrials],
    ) -> Result<Race, B::Error> {
        let kept = |verdict| Race { gflops: Vec::new(), chosen: 0, verdict, challenger: None };
        let winner = match self.heats(candidates, trials)? {
            None => return Ok(kept(RaceVerdict::Unfinished)),
            Some(0) => return Ok(kept(RaceVerdict::Kept)),
            Some(winner) => winner,
        };
        let (comparison, is_whole) = self.duel(candidates, winner, trials)?;
        let (chosen, verdict) = match (comparison.is_better(), is_whole) {
            (true, _) => (winner, RaceVerdict::Better),
            (false, true) => (0, RaceVerdict::Kept),
            (false, false) => (0, RaceVerdict::Unfinished),
        };
        let challenger = Some((winner, comparison));
        Ok(Race { gflops: Vec::new(), chosen, verdict, challenger })
    }

    /// Runs a trial, unless the budget might not suffice. Returns whether it ran.
    fn trial(
        &mut self,
        candidate: &B::Candidate,
        trials: &mut CandidateTrials,
    ) -> Result<bool, B::Error> {
        let expected_seconds =
            if trials.gflops.is_empty() { self.usual_seconds } else { trials.longest_seconds };
        let needed_seconds = MARGIN * expected_seconds + self.reserved as f64 * self.usual_seconds;
        let start_seconds = self.bench.elapsed_seconds();
        if start_seconds + needed_seconds > self.end_seconds {
            return Ok(false);
        }
        trials.gflops.push(self.bench.trial(candidate)?);
        let took_seconds = self.bench.elapsed_seconds() - start_seconds;
        trials.longest_seconds = trials.longest_seconds.max(took_seconds);
        Ok(true)
    }

    /// The rate of one more trial of a candidate, or `None` where the budget might not suffice.
    fn rate(
        &mut self,
        candidates: &[B::Candidate],
        index: usize,
        trials: &mut [CandidateTrials],
    ) -> Result<Option<f64>, B::Error> {
        let is_run = self.trial(&candidates[index], &mut trials[index])?;
        Ok(trials[index].gflops.last().copied().filter(|_| is_run))
    }

    /// Drops the worse half of the candidates until one is left. Returns that one, or `None` if
    /// time ends before.
    fn heats(
        &mut self,
        candidates: &[B::Candidate],
        trials: &mut [CandidateTrials],
    ) -> Result<Option<usize>, B::Error> {
        let mut alive: Vec<usize> = (0..candidates.len()).collect();
        let mut scores = vec![Vec::new(); candidates.len()];
        let mut blocks = 0;
        while alive.len() > 1 {
            if let [0, other] = alive[..] {
                // The duel decides between them.
                return Ok(Some(other));
            }
            for _ in 0..if alive.len() > FEW { 1 } else { 2 } {
                let mut order = alive.clone();
                if blocks % 2 == 1 {
                    order.reverse();
                }
                let mut block = Vec::new();
                for index in order {
                    let Some(rate) = self.rate(candidates, index, trials)? else {
                        return Ok(None);
                    };
                    block.push((index, rate.ln()));
                }
                let mean = block.iter().map(|(_, ln)| ln).sum::<f64>() / block.len() as f64;
                block.iter().for_each(|(index, ln)| scores[*index].push(ln - mean));
                blocks += 1;
            }
            let score = |index: &usize| nonempty_median(scores[*index].iter().copied());
            // The earlier one of equal candidates stays.
            alive.sort_by(|a, b| score(b).total_cmp(&score(a)).then(a.cmp(b)));
            alive.truncate((alive.len() / 2).max(1));
            alive.sort_unstable();
        }
        Ok(alive.first().copied())
    }

    /// Compares a challenger with the default until it is known which is faster, or that they do
    /// not differ measurably. Also returns whether that was reached before time ended.
    fn duel(
        &mut self,
        candidates: &[B::Candidate],
        challenger: usize,
        trials: &mut [CandidateTrials],
    ) -> Result<(Comparison, bool), B::Error> {
        let mut ln_ratios = Vec::new();
        while !is_decided(&ln_ratios) {
            // Two pairs, AB BA: drift adds to one ratio what it takes from the other.
            let mut pairs = [[0.0; 2]; 2];
            for (pair, who) in [(0, 0), (0, challenger), (1, challenger), (1, 0)] {
                let Some(rate) = self.rate(candidates, who, trials)? else {
                    return Ok((Comparison::from_ratios(&ln_ratios), false));
                };
                pairs[pair][usize::from(who != 0)] = rate;
            }
            ln_ratios.extend(pairs.map(|[default, other]| (other / default).ln()));
        }
        Ok((Comparison::from_ratios(&ln_ratios), true))
    }
}

/// Whether more pairs would be useless.
fn is_decided(ln_ratios: &[f64]) -> bool {
    match ln_ratios.len() {
        0 => false,
        // A challenger that has lost each time is not worth more of the budget.
        1..PAIRS_MIN => ln_ratios.iter().all(|ratio| *ratio <= 0.0),
        PAIRS_MAX.. => true,
        _ => {
            let comparison = Comparison::from_ratios(ln_ratios);
            comparison.is_better() || comparison.gain <= 0.0
        }
    }
}

/// The standard deviation of a sample.
fn deviation(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (count - 1.0)).sqrt()
}

#[cfg(test)]
mod tests {
    use skt_studies::sim::random::Stream;

    use super::*;

    /// A machine of 100 Gflop/s on which a trial of 100 Gflop takes a second.
    struct Simulated {
        random: Stream,
        elapsed_seconds: f64,
        /// Standard deviation of the logarithm of a rate.
        noise: f64,
        /// The change of the rate in a second.
        drift: f64,
        /// The probability that a trial runs at two thirds of its rate.
        hiccups: f64,
        trials: usize,
    }

    impl Simulated {
        fn new(seed: u64) -> Self {
            let random = Stream::new(seed);
            let (noise, drift, hiccups) = (0.005, 0.0, 0.0);
            Self { random, elapsed_seconds: 0.0, noise, drift, hiccups, trials: 0 }
        }
    }

    /// A candidate's value is how much faster than 100 Gflop/s it is.
    impl Bench for Simulated {
        type Candidate = f64;
        type Error = std::convert::Infallible;

        fn trial(&mut self, gain: &f64) -> Result<f64, Self::Error> {
            let drifted = (self.drift * self.elapsed_seconds).exp();
            let noise = (self.noise * self.random.normal()).exp();
            let hiccup = if self.random.uniform() < self.hiccups { 2.0 / 3.0 } else { 1.0 };
            let gflops = 100.0 * (1.0 + gain) * drifted * noise * hiccup;
            self.elapsed_seconds += 100.0 / gflops;
            self.trials += 1;
            Ok(gflops)
        }

        fn elapsed_seconds(&self) -> f64 {
            self.elapsed_seconds
        }
    }

    fn race(machine: Simulated, candidates: &[f64], end_seconds: f64) -> (Race, Simulated) {
        let mut search = Search::new(machine, end_seconds, 0.0);
        let race = search.race(candidates).unwrap();
        (race, search.bench)
    }

    const SEEDS: u64 = 300;
    const GAINS: [f64; 6] = [0.0, 0.015, -0.02, 0.05, -0.3, 0.01];

    /// The share of all seeds that choose what `is_right` accepts.
    fn share(
        candidates: &[f64],
        machine: impl Fn(u64) -> Simulated,
        is_right: impl Fn(usize) -> bool,
    ) -> f64 {
        let of_seed = |seed| race(machine(seed), candidates, 1e9).0.chosen;
        (0..SEEDS).map(of_seed).filter(|&chosen| is_right(chosen)).count() as f64 / SEEDS as f64
    }

    #[test]
    fn the_best_is_found_where_it_is_beyond_the_noise() {
        assert!(share(&GAINS, Simulated::new, |chosen| chosen == 3) > 0.95);
        // With two candidates there are no heats.
        assert!(share(&[0.0, 0.03], Simulated::new, |chosen| chosen == 1) > 0.95);
    }

    #[test]
    fn the_default_stays_where_nothing_is_better() {
        for noise in [1e-4, 0.01, 0.1] {
            let noisy = |seed| Simulated { noise, ..Simulated::new(seed) };
            assert!(share(&[0.0; 6], noisy, |chosen| chosen == 0) > 0.95, "{noise}");
        }
        assert_eq!(share(&[0.0, -0.03, -0.05, -0.04], Simulated::new, |chosen| chosen == 0), 1.0);
        // A gain far below the noise of a trial is not claimed.
        let noisy = |seed| Simulated { noise: 0.05, ..Simulated::new(seed) };
        assert!(share(&[0.0, 0.002, 0.003], noisy, |chosen| chosen == 0) > 0.95);
    }

    #[test]
    fn a_machine_that_drifts_fools_no_one() {
        for drift in [-0.003, 0.003] {
            let drifting = |seed| Simulated { drift, ..Simulated::new(seed) };
            assert!(share(&[0.0; 5], drifting, |chosen| chosen == 0) > 0.95, "{drift}");
            assert!(share(&GAINS, drifting, |chosen| chosen == 3) > 0.9, "{drift}");
        }
    }

    #[test]
    fn slow_outliers_make_no_candidate_better() {
        let uneven = |seed| Simulated { hiccups: 0.1, ..Simulated::new(seed) };
        assert!(share(&[0.0; 5], uneven, |chosen| chosen == 0) > 0.95);
    }

    #[test]
    fn budget_is_kept_and_truncation_is_reported() {
        for seed in 0..SEEDS {
            let end_seconds = 1.3 + seed as f64 / 10.0;
            let machine = Simulated { noise: 0.03, ..Simulated::new(seed) };
            let mut search = Search::new(machine, end_seconds, 1.0);
            let (race, machine) = (search.race(&GAINS).unwrap(), search.bench);
            assert!(machine.elapsed_seconds <= end_seconds, "seed {seed}");
            assert_eq!(race.gflops.iter().map(Vec::len).sum::<usize>(), machine.trials);
            // The heats alone take longer.
            if end_seconds < 10.0 {
                assert_eq!(
                    (race.chosen, race.verdict),
                    (0, RaceVerdict::Unfinished),
                    "seed {seed}"
                );
            }
        }
    }

    /// A grid that takes ten times as long must leave the others the rest of the budget.
    #[test]
    fn a_slow_candidate_costs_its_own_trials_alone() {
        let mut search = Search::new(Simulated::new(1), 60.0, 1.0);
        assert_eq!(search.race(&[0.0, -0.9]).unwrap().verdict, RaceVerdict::Kept);
        assert!(search.bench.elapsed_seconds() < 25.0);
        assert_eq!(search.race(&GAINS).unwrap().chosen, 3);
        let trials = search.bench.trials;
        search.race(&GAINS).unwrap();
        assert!(search.bench.trials > trials && search.bench.elapsed_seconds() > 57.0);
    }

    #[test]
    fn a_challenger_that_is_slower_has_lost() {
        let is_lost =
            |gain, end_seconds| race(Simulated::new(1), &[0.0, gain], end_seconds).0.is_lost();
        assert!(is_lost(-0.05, 1e9));
        assert!(!is_lost(0.05, 1e9));
        assert!(!is_lost(-0.05, 1.0), "undecided");
    }

    #[test]
    fn time_is_left_for_what_is_reserved() {
        let mut search = Search::new(Simulated::new(1), 20.0, 1.0);
        search.reserve(8);
        assert_eq!(search.race(&GAINS).unwrap().verdict, RaceVerdict::Unfinished);
        assert!(search.bench.elapsed_seconds() < 12.0);
        search.reserve(0);
        assert_eq!(search.race(&[0.0, 0.05]).unwrap().verdict, RaceVerdict::Better);
    }

    #[test]
    fn a_search_that_is_over_measures_nothing() {
        let mut search = Search::new(Simulated::new(1), 2.0, 2.0);
        let race = search.race(&GAINS).unwrap();
        assert_eq!((race.verdict, search.bench.trials), (RaceVerdict::Unfinished, 0));
        assert_eq!(race.challenger, None);
    }

    #[test]
    fn confidence_bounds_follow_students_t() {
        // A sample of mean 2 and deviation 1.291.
        let comparison = Comparison::from_ratios(&[0.5, 1.5, 2.5, 3.5].map(|x| x / 100.0));
        let want = 4.541 * 1.2909944 / 100.0 / 2.0;
        assert!((comparison.noise.ln_1p() - want).abs() < 1e-8, "{comparison:?}");
        assert!((comparison.gain.ln_1p() - 0.02).abs() < 1e-12 && !comparison.is_better());
        assert!(Comparison::from_ratios(&[0.010, 0.011, 0.012, 0.011]).is_better());
        assert!(!Comparison::from_ratios(&[0.5, 0.5]).is_better(), "too few");
    }
}
