//! Made-up windows: noise, hiccups, kinds of processors, from one rank to a thousand, and windows
//! that no machine has.

use proptest::prelude::*;
use skt_studies::sim::random::Stream;

use super::*;
use crate::slow::Windows;

const N: usize = 100_000;
const RATE: f64 = 50.0;

fn columns() -> Vec<usize> {
    Windows::new(N, 192).columns(N, 192)
}

/// A rank of kind 0 with these rates, in windows of `work` Gflop.
fn rank(rank: usize, rates: impl Iterator<Item = f64>, work: f64) -> RankRates {
    let window = |rate: f64| Rate { gflops: rate as f32, seconds: (work / rate) as f32 };
    RankRates {
        rank,
        host: format!("n{rank}"),
        windows: rates.map(window).collect(),
        ..RankRates::default()
    }
}

/// Ranks with windows of a second, and a standard deviation of `noise`.
fn noisy(random: &mut Stream, ranks: usize, noise: f64) -> Vec<RankRates> {
    let windows = columns().len() - 1;
    let of_rank = |index| {
        // Noise only makes a rank slower.
        let rates: Vec<f64> =
            (0..windows).map(|_| RATE * (1.0 - noise * random.normal().abs()).max(0.01)).collect();
        rank(index, rates.into_iter(), RATE)
    };
    (0..ranks).map(of_rank).collect()
}

/// Makes a rank slow in `windows`, by the factor `times`.
fn slow_down(rank: &mut RankRates, windows: std::ops::Range<usize>, times: f64) {
    for rate in &mut rank.windows[windows] {
        rate.gflops /= times as f32;
        rate.seconds *= times as f32;
    }
}

fn names(ranks: &[RankRates]) -> Vec<usize> {
    judge(&columns(), ranks).iter().map(|slow| slow.rank).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_rank_that_falls_behind_is_named_with_its_column(
        ranks in prop::sample::select(vec![2usize, 3, 4, 16, 200]), noise in 0.0..0.05,
        onset in 0usize..40, times in 1.3..4.0, mut random in any::<u64>().prop_map(Stream::new),
    ) {
        let mut all = noisy(&mut random, ranks, noise);
        let (columns, which) = (columns(), ranks / 2);
        slow_down(&mut all[which], onset..columns.len() - 1, times);
        let named = judge(&columns, &all);
        prop_assert_eq!(named.len(), 1, "{:?}", named);
        let off = named[0].since_column.abs_diff(columns[onset]);
        prop_assert!(named[0].rank == which && off <= N / 20, "{:?}, not {}", named, columns[onset]);
        let behind = 100.0 * (1.0 - 1.0 / times);
        prop_assert!((named[0].lag_percent - behind).abs() < 10.0, "{:?}, not {}", named, behind);
        prop_assert!(named[0].spreads >= MIN_SPREADS);
    }

    #[test]
    fn noise_names_nobody(
        ranks in prop::sample::select(vec![1usize, 2, 3, 7, 1000]), noise in 0.0..0.3,
        mut random in any::<u64>().prop_map(Stream::new),
    ) {
        prop_assert_eq!(names(&noisy(&mut random, ranks, noise)), Vec::<usize>::new());
    }

    /// A hiccup of any size, which ends before the run or begins just before its end.
    #[test]
    fn hiccups_name_nobody(
        ranks in prop::sample::select(vec![2usize, 3, 16]), begin in 0usize..60, length in 1usize..7,
        times in 1.0..50.0, mut random in any::<u64>().prop_map(Stream::new),
    ) {
        let mut all = noisy(&mut random, ranks, 0.02);
        let end = (begin + length).min(all[0].windows.len());
        slow_down(&mut all[0], begin..end, times);
        prop_assert_eq!(names(&all), Vec::<usize>::new());
    }

    /// Many short hiccups are noise. With a larger share one rank in 10^5 has, by luck, seven of
    /// them among its last eight windows, and is slow then.
    #[test]
    fn many_hiccups_name_nobody(
        ranks in prop::sample::select(vec![2usize, 3, 16]), share in 0.0..0.08,
        mut random in any::<u64>().prop_map(Stream::new),
    ) {
        let mut all = noisy(&mut random, ranks, 0.02);
        for rank in &mut all {
            for window in 0..rank.windows.len() {
                if random.uniform() < share {
                    slow_down(rank, window..window + 1, 3.0);
                }
            }
        }
        prop_assert_eq!(names(&all), Vec::<usize>::new());
    }

    #[test]
    fn each_kind_of_processor_is_judged_by_itself(
        of_first in 2usize..20, of_second in 2usize..20, slow in prop::bool::ANY,
        mut random in any::<u64>().prop_map(Stream::new),
    ) {
        let mut all = noisy(&mut random, of_first + of_second, 0.02);
        let windows = columns().len() - 1;
        for rank in &mut all[of_first..] {
            rank.kind = 1;
            slow_down(rank, 0..windows, 2.0);
        }
        let mut expected = Vec::new();
        if slow {
            slow_down(&mut all[of_first], 10..windows, 1.4);
            expected.push(of_first);
        }
        prop_assert_eq!(names(&all), expected);
    }

    /// Windows that no machine has: any number, missing ones, columns that do not fit.
    #[test]
    fn no_windows_make_it_fail(
        rates in prop::collection::vec(
            prop::collection::vec((prop::num::f32::ANY, prop::num::f32::ANY), 0..70), 0..5),
        columns in prop::collection::vec(0usize..1000, 0..70), kinds in 1u64..3,
    ) {
        let of_rank = |(index, rates): (usize, Vec<(f32, f32)>)| RankRates {
            rank: index,
            kind: index as u64 % kinds,
            windows: rates.into_iter().map(|(gflops, seconds)| Rate { gflops, seconds }).collect(),
            ..RankRates::default()
        };
        let ranks: Vec<RankRates> = rates.into_iter().enumerate().map(of_rank).collect();
        for slow in judge(&columns, &ranks) {
            prop_assert!(slow.lag_percent >= 100.0 * MIN_LAG && slow.lag_percent <= 100.0);
            prop_assert!(columns.contains(&slow.since_column));
        }
    }
}

/// A lag of less than two seconds is not reported, although it lasts for all windows.
#[test]
fn a_short_run_names_nobody() {
    let windows = columns().len() - 1;
    let all = |work: f64| {
        [1.0, 2.0].map(|times| rank(times as usize, (0..windows).map(|_| RATE / times), work))
    };
    let seconds_of_slow = |seconds: f64| seconds / windows as f64 * RATE / 2.0;
    assert_eq!(names(&all(seconds_of_slow(1.9))), [0; 0]);
    assert_eq!(names(&all(seconds_of_slow(3.0))), [2]);
}

/// A rank with a CPU quota is slow on average: one window is fast, the next is slow.
#[test]
fn a_quota_is_seen_through_windows_shorter_than_its_period() {
    let windows = columns().len() - 1;
    let quota = (0..windows).map(|window| if window % 2 == 0 { RATE } else { RATE / 4.0 });
    let all = [rank(0, (0..windows).map(|_| RATE), 2.5), rank(1, quota, 2.5)];
    let named = judge(&columns(), &all);
    assert_eq!((named.len(), named[0].rank), (1, 1));
    assert!(named[0].since_column <= N / 20, "{named:?}");
    assert!((named[0].lag_percent - 60.0).abs() < 5.0, "{named:?}");
}

/// While the run is under way, ranks have sent different numbers of windows.
#[test]
fn what_has_not_arrived_is_not_judged() {
    let mut all: Vec<RankRates> =
        (0..4).map(|index| rank(index, (0..30).map(|_| RATE), RATE)).collect();
    slow_down(&mut all[2], 10..30, 2.0);
    all[1].windows.truncate(25);
    all[3].windows.clear();
    assert_eq!(names(&all), [2]);
    all[1].windows.truncate(10);
    assert_eq!(names(&all), [0; 0]);
}

/// Half of the ranks are no exception: the better half is what others are compared with.
#[test]
fn half_of_the_ranks_may_be_slow() {
    let windows = columns().len() - 1;
    let mut all: Vec<RankRates> =
        (0..8).map(|index| rank(index, (0..windows).map(|_| RATE), RATE)).collect();
    all[..4].iter_mut().for_each(|rank| slow_down(rank, 20..windows, 1.5));
    let mut named = names(&all);
    named.sort_unstable();
    assert_eq!(named, [0, 1, 2, 3]);
}
