//! Ranks whose products are slow beside those of their kind.
//!
//! Each rank measures the rate of its own products: the operations of the trailing update by the
//! seconds inside the BLAS. No wait is in it, so that a rank that waits for a slow one is not slow
//! itself. [`judge`] compares the ranks, window by window of the panels.

mod judge;
mod windows;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

pub use judge::{judge, upper_median};
pub use windows::{MOST, Windows};

/// Most slow ranks that are told one by one.
const MOST_TOLD: usize = 16;
/// Most ranks whose windows are kept for the JSON report.
const MOST_KEPT: usize = 4096;

/// The products of a rank in one window of the panels.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Rate {
    /// The rate of a thread inside the BLAS, in Gflop/s; 0 where nothing was measured.
    pub gflops: f32,
    /// Seconds that a thread was inside the BLAS, the mean of the rank's threads.
    pub seconds: f32,
}

/// The products of a rank, window by window.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RankRates {
    /// The rank's number in the run.
    pub rank: usize,
    /// The rank's host.
    pub host: String,
    /// The kind of its processor: ranks of one kind are compared with each other.
    pub kind: u64,
    /// How often its host was throttled since the start of the test.
    pub throttled: u64,
    /// The windows, from the first on; those that are not computed yet are missing.
    pub windows: Vec<Rate>,
}

/// A rank whose products are slower than those of its kind.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SlowRank {
    /// The rank's host.
    pub host: String,
    /// The rank's number in the run.
    pub rank: usize,
    /// By how much its rate is below the median of the ranks with the same kind of processor, in
    /// per cent, from `since_column` on.
    pub percent_behind: f64,
    /// The number of columns that were eliminated when it fell behind.
    pub since_column: usize,
    /// How many times larger this is than the spread of the rates, its own and those of the others;
    /// at most 99.
    pub spreads: f64,
    /// How often its host was throttled since the start of the test.
    pub throttled: u64,
}

impl SlowRank {
    /// A few words for a line that has little space.
    pub fn brief(&self) -> String {
        format!("{} rank {} -{:.0} %", self.host, self.rank, self.percent_behind)
    }
}

/// The rates of all ranks in a test, and the ranks that are slow.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SlowReport {
    /// The slow ranks, the slowest first.
    pub named: Vec<SlowRank>,
    /// The first column of each window, and the order of the matrix after the last one.
    pub columns: Vec<usize>,
    /// The rates of all ranks; none if there are more ranks than a report has space for.
    pub ranks: Vec<RankRates>,
}

impl SlowReport {
    /// Judges the rates of all `ranks` in the windows that begin at `columns`.
    pub fn new(columns: Vec<usize>, mut ranks: Vec<RankRates>) -> Self {
        let named = judge(&columns, &ranks);
        if ranks.len() > MOST_KEPT {
            ranks.clear();
        }
        Self { named, columns, ranks }
    }

    /// The lines of the text report.
    pub fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.named.iter().take(MOST_TOLD).map(line).collect();
        let rest = self.named.get(MOST_TOLD..).unwrap_or_default();
        if !rest.is_empty() {
            let hosts: BTreeSet<&str> = rest.iter().map(|slow| slow.host.as_str()).collect();
            lines.push(format!("# slow: {} more ranks, on {} host(s)", rest.len(), hosts.len()));
        }
        lines
    }
}

/// The line of a slow rank.
fn line(slow: &SlowRank) -> String {
    let SlowRank { host, rank, percent_behind, since_column, throttled, .. } = slow;
    let throttled = match throttled {
        0 => String::new(),
        times => format!(" (throttled {times} times)"),
    };
    format!(
        "# slow: {host} rank {rank}: {percent_behind:.0} % behind the median since column \
         {since_column}{throttled}"
    )
}

/// The slow ranks in a few words: the slowest one, and how many more there are; `None` if there are
/// none.
pub fn brief(named: &[SlowRank]) -> Option<String> {
    let (slowest, others) = named.split_first()?;
    let more = match others.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(format!("slow: {}{more}", slowest.brief()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slow(rank: usize, throttled: u64) -> SlowRank {
        SlowRank {
            host: format!("n{}", rank / 4),
            rank,
            percent_behind: 37.6,
            since_column: 4096,
            spreads: 9.0,
            throttled,
        }
    }

    #[test]
    fn lines_name_host_rank_and_column() {
        let report = SlowReport { named: vec![slow(12, 12), slow(13, 0)], ..Default::default() };
        assert_eq!(
            report.lines(),
            [
                "# slow: n3 rank 12: 38 % behind the median since column 4096 (throttled 12 times)",
                "# slow: n3 rank 13: 38 % behind the median since column 4096",
            ]
        );
        assert_eq!(brief(&report.named).unwrap(), "slow: n3 rank 12 -38 % and 1 more");
        assert_eq!(
            (brief(&report.named[..1]).unwrap().as_str(), brief(&[])),
            ("slow: n3 rank 12 -38 %", None)
        );
    }

    #[test]
    fn very_many_are_counted() {
        let named = (0..100).map(|rank| slow(rank, 0)).collect();
        let lines = SlowReport { named, ..Default::default() }.lines();
        assert_eq!((lines.len(), lines[16].as_str()), (17, "# slow: 84 more ranks, on 21 host(s)"));
    }
}
