//! The judgement: which ranks are slower than others of their kind.
//!
//! ```text
//! lag       1 - rate / median of the rates of its kind, in the same window
//! onset     parts the windows with at least half of the lag at the end from the others
//! named     from the onset to the end the lag lasts, and is large relative to the spread
//! ```
//!
//! Windows are compared only with the same windows of other ranks, because the rate depends on the
//! shape of the product. The last window is left out: its products are so small that it matters
//! whether a rank has a few columns more or less.

use std::collections::BTreeMap;

use skt_host::median::{middle_two, nonempty_median, robust_deviation};

use super::{RankRates, Rate, SlowRank};

/// Shorter windows are joined. Half a second is five periods of a control group's quota (100 ms)
/// and many time slices of a scheduler, so that a joined window has the rate of a longer time.
const MIN_SECONDS: f64 = 0.5;
/// The fewest joined windows for which a lag must last, two seconds at least: interrupts, timers
/// and daemons are done earlier.
const MIN_WINDOWS: usize = 4;
/// A lag must last for at least one in this many windows: a shorter one is no evidence of a slow
/// node.
const MIN_PART: usize = 8;
/// The share of windows that agree with the onset, before and after it: one in five may be off.
const AGREEING: f64 = 0.8;
/// The least lag. Processors of one kind differ by some per cent under the same limit of power, and
/// so do products whose shapes differ by a block.
const MIN_LAG: f64 = 0.1;
/// The least lag of one of two or three ranks: how much equal ranks differ on this machine is only
/// seen with more. Two ranks that nothing slowed, on a machine of two cores that others kept busy,
/// were up to 17 % apart for a whole run.
const MIN_LAG_OF_FEW: f64 = 0.18;
/// The largest number of ranks that counts as few.
const FEW: usize = 3;
/// How many times the spread the lag of a single rank must be, see [`min_spreads`]. One normal
/// value in 700 is beyond three standard deviations; the lag is a median of several.
const MIN_SPREADS: f64 = 3.0;
/// The spread of the others is that of this many of them at most: more would change little, and
/// thousands of ranks would take long.
const MAX_OTHERS: usize = 64;
/// A larger number of spreads is reported as this one.
const MAX_SPREADS: f64 = 99.0;

/// The `ranks` whose products are slow relative to those of the ranks with the same kind of
/// processor, the slowest first. Windows begin at `columns`, the last of which is the order of the
/// matrix.
///
/// Of an even number of rates the median is here the better one of the middle two: of two ranks,
/// the faster one.
pub fn judge(columns: &[usize], ranks: &[RankRates]) -> Vec<SlowRank> {
    let mut kinds: BTreeMap<u64, Vec<&RankRates>> = BTreeMap::new();
    for rank in ranks.iter().filter(|rank| rank.windows.iter().any(is_measured)) {
        kinds.entry(rank.kind).or_default().push(rank);
    }
    let mut named: Vec<SlowRank> =
        kinds.values().flat_map(|alike| judge_kind(columns, alike)).collect();
    named.sort_by(|a, b| b.lag_percent.total_cmp(&a.lag_percent));
    named
}

fn is_measured(rate: &Rate) -> bool {
    let Rate { gflops, seconds } = *rate;
    gflops > 0.0 && gflops.is_finite() && seconds > 0.0 && seconds.is_finite()
}

/// Judges ranks with the same kind of processor.
fn judge_kind(columns: &[usize], alike: &[&RankRates]) -> Vec<SlowRank> {
    let judged = columns.len().saturating_sub(2);
    let is_known = |window: &usize| {
        alike.iter().all(|rank| rank.windows.get(*window).is_some_and(is_measured))
    };
    let known: Vec<usize> = (0..judged).filter(is_known).collect();
    let joined = join(alike, &known);
    if alike.len() < 2 || joined.len() < MIN_WINDOWS {
        return Vec::new();
    }
    let lags = lags(alike, &joined);
    let single: Vec<&[usize]> = known.chunks(1).collect();
    let fine_lags = self::lags(alike, &single);
    let of_rank = |index: usize| {
        let (lag, spreads) = judge_rank(&lags, index)?;
        let onset = onset(&fine_lags[index], lag / 2.0);
        Some(SlowRank {
            host: alike[index].host.clone(),
            rank: alike[index].rank,
            lag_percent: 100.0 * lag,
            since_column: columns[known[onset.min(known.len() - 1)]],
            spreads,
            throttled: alike[index].throttled,
        })
    };
    (0..alike.len()).filter_map(of_rank).collect()
}

/// Joins windows until each takes [`MIN_SECONDS`] on the rank that needs longest.
fn join<'w>(alike: &[&RankRates], known: &'w [usize]) -> Vec<&'w [usize]> {
    let seconds = |window: usize| {
        alike.iter().map(|rank| f64::from(rank.windows[window].seconds)).fold(0.0, f64::max)
    };
    let (mut joined, mut begin, mut sum) = (Vec::new(), 0, 0.0);
    for (end, &window) in (1..).zip(known) {
        sum += seconds(window);
        // A rounding error must not make a window of half a second longer.
        if sum > MIN_SECONDS * (1.0 - 1e-6) {
            joined.push(&known[begin..end]);
            (begin, sum) = (end, 0.0);
        }
    }
    joined
}

/// The lag of each rank in each of the joined windows.
fn lags(alike: &[&RankRates], joined: &[&[usize]]) -> Vec<Vec<f64>> {
    let mut lags = vec![Vec::with_capacity(joined.len()); alike.len()];
    for windows in joined {
        let rates: Vec<f64> = alike.iter().map(|rank| rate(rank, windows)).collect();
        let median = upper_median(rates.iter().copied());
        lags.iter_mut().zip(rates).for_each(|(lags, rate)| lags.push(1.0 - rate / median));
    }
    lags
}

/// The median of the rates; of an even number the better one of the middle two.
pub fn upper_median(rates: impl IntoIterator<Item = f64>) -> f64 {
    middle_two(rates).expect("there are rates")[1]
}

/// The rate of a rank over several windows.
fn rate(rank: &RankRates, windows: &[usize]) -> f64 {
    let (mut gflop, mut seconds) = (0.0, 0.0);
    for Rate { gflops, seconds: took } in windows.iter().map(|window| rank.windows[*window]) {
        gflop += f64::from(gflops) * f64::from(took);
        seconds += f64::from(took);
    }
    gflop / seconds
}

/// The lag of the rank `index` at the end, and how many spreads that is, if the rank is slow.
fn judge_rank(lags: &[Vec<f64>], index: usize) -> Option<(f64, f64)> {
    let own = &lags[index];
    let min_lag = if lags.len() <= FEW { MIN_LAG_OF_FEW } else { MIN_LAG };
    let least = MIN_WINDOWS.max(own.len().div_ceil(MIN_PART));
    let at_end = nonempty_median(own[own.len() - least..].iter().copied());
    // A rank that does not lag has no onset.
    if at_end < min_lag {
        return None;
    }
    let half = at_end / 2.0;
    let onset = onset(own, half);
    let (before, after) = own.split_at(onset);
    let agree = |windows: &[f64], is_behind: bool| {
        let agreeing = windows.iter().filter(|lag| (**lag >= half) == is_behind).count();
        agreeing as f64 >= AGREEING * windows.len() as f64
    };
    if after.len() < least || !agree(before, false) || !agree(after, true) {
        return None;
    }
    let lag = nonempty_median(after.iter().copied());
    let spreads = (lag / spread(lags, index, onset)).min(MAX_SPREADS);
    (lag >= min_lag && spreads >= min_spreads(lags.len())).then_some((lag, spreads))
}

/// How many times the spread the lag of one of `ranks` ranks must be. The more ranks, the farther
/// out is the farthest of them by noise alone: the tail of normal values beyond z falls as
/// `exp(-z^2 / 2)`, so that z grows by this for the same chance to name one of them.
pub(super) fn min_spreads(ranks: usize) -> f64 {
    (MIN_SPREADS.powi(2) + 2.0 * (ranks as f64).ln()).sqrt()
}

/// The window that parts the others best: most of those from it on have at least the lag `half`,
/// and most of those before it do not. If several part them equally well, the first of these.
fn onset(lags: &[f64], half: f64) -> usize {
    let mut wrong = lags.iter().filter(|lag| **lag < half).count();
    let (mut best, mut fewest) = (0, wrong);
    for (window, lag) in lags.iter().enumerate() {
        // This window moves to those before the onset.
        if *lag < half {
            wrong -= 1;
        } else {
            wrong += 1;
        }
        if wrong < fewest {
            (best, fewest) = (window + 1, wrong);
        }
    }
    best
}

/// The standard deviation that a lag is compared with, from window `onset` on: over the windows of
/// the rank, over those of another rank (the median), or between other ranks, whichever is largest.
pub(super) fn spread(lags: &[Vec<f64>], index: usize, onset: usize) -> f64 {
    let step = lags.len().div_ceil(MAX_OTHERS);
    let others = || {
        let others = (0..lags.len()).step_by(step).filter(|other| *other != index);
        others.map(|other| &lags[other][onset..])
    };
    let own = deviation(lags[index][onset..].iter().copied());
    let of_others = nonempty_median(others().map(|lags| deviation(lags.iter().copied())));
    let between = deviation(others().map(|lags| nonempty_median(lags.iter().copied())));
    own.max(of_others).max(between)
}

/// The standard deviation of values of which there is one at least, around their median.
fn deviation(values: impl Iterator<Item = f64>) -> f64 {
    let values: Vec<f64> = values.collect();
    robust_deviation(nonempty_median(values.iter().copied()), values).expect("there are values")
}

#[cfg(test)]
mod tests;
