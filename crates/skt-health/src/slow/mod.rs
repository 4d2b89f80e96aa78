//! Ranks whose products are slow relative to those of their kind.
//!
//! Each rank measures the rate of the products that it computes: the operations of the trailing
//! update by the seconds inside the BLAS. No wait is in it, so that a rank that waits for a slow
//! one is not slow itself. [`judge()`] compares the ranks, window by window of the panels.
//! [`links`] compares the links between their hosts.

pub mod alike;
pub mod blame;
mod judge;
pub mod links;

use serde::{Deserialize, Serialize};
use skt_host::shown::and_more;

pub use judge::{judge, upper_median};
use links::SlowLink;
pub use skt_solver::pgesv::Rate;
pub use skt_solver::pgesv::windows::{MOST, Windows};

/// Most ranks whose windows are kept for the JSON report.
const MAX_KEPT: usize = 4096;

/// The products of a rank, window by window.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RankRates {
    pub rank: usize,
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
    pub host: String,
    pub rank: usize,
    /// By how much its rate is below the median of the ranks with the same kind of processor, in
    /// per cent, from `since_column` on.
    pub lag_percent: f64,
    /// The number of columns that were eliminated when its lag began.
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
        format!("{} rank {} -{:.0} %", self.host, self.rank, self.lag_percent)
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Named {
    pub ranks: Vec<SlowRank>,
    /// The slow links, the slowest first; `None` if links were not compared.
    pub links: Option<Vec<SlowLink>>,
}

impl Named {
    /// Judges the rates of `ranks` in the windows that begin at `columns`. Of the slow `links`,
    /// leaves out those of hosts with a slow rank, whose messages may be slow for the same reason.
    pub fn new(columns: &[usize], ranks: &[RankRates], mut links: Option<Vec<SlowLink>>) -> Self {
        let ranks = judge(columns, ranks);
        let is_explained = |link: &SlowLink| ranks.iter().any(|rank| link.is_of(&rank.host));
        links.iter_mut().for_each(|links| links.retain(|link| !is_explained(link)));
        Self { ranks, links }
    }

    /// The slow ranks in a few words: the slowest one, and how many more there are; then the links.
    /// `None` if nothing is slow.
    pub fn brief(&self) -> Option<String> {
        let ranks = brief("slow", self.ranks.iter().map(SlowRank::brief));
        let links = self.links.as_deref().unwrap_or_default().iter().map(SlowLink::brief);
        let all: Vec<String> = [ranks, brief("slow link", links)].into_iter().flatten().collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

/// The rates of all ranks in a test, and what is slow.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SlowReport {
    pub named: Named,
    /// The first column of each window, and the order of the matrix after the last one.
    pub columns: Vec<usize>,
    /// The rates of all ranks; none if there are more ranks than a report has space for.
    pub ranks: Vec<RankRates>,
}

impl SlowReport {
    /// Judges the rates of all `ranks` in the windows that begin at `columns`; see [`Named::new`].
    pub fn new(
        columns: Vec<usize>,
        mut ranks: Vec<RankRates>,
        links: Option<Vec<SlowLink>>,
    ) -> Self {
        let named = Named::new(&columns, &ranks, links);
        if ranks.len() > MAX_KEPT {
            ranks.clear();
        }
        Self { named, columns, ranks }
    }
}

/// The first of these, and how many more there are; `None` if there are none.
fn brief(what: &str, mut of_each: impl ExactSizeIterator<Item = String>) -> Option<String> {
    let slowest = of_each.next()?;
    Some(format!("{what}: {slowest}{}", and_more(of_each.len(), 0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_words_name_the_slowest_and_count_the_others() {
        let slow = |rank: usize| SlowRank {
            host: format!("n{}", rank / 4),
            rank,
            lag_percent: 37.6,
            since_column: 4096,
            spreads: 9.0,
            throttled: 0,
        };
        let link =
            SlowLink { host: "n1".into(), other: Some("n2".into()), times: 4.0, times_before: 1.0 };
        let mut named = Named { ranks: vec![slow(12), slow(13)], links: Some(vec![link]) };
        assert_eq!(
            named.brief().unwrap(),
            "slow: n3 rank 12 -38 % and 1 more; slow link: n1 to n2 4.0x"
        );
        named.links.as_mut().unwrap()[0].other = None;
        named.ranks.pop();
        assert_eq!(named.brief().unwrap(), "slow: n3 rank 12 -38 %; slow link: n1: all links 4.0x");
        named.links = None;
        named.ranks.clear();
        assert_eq!(named.brief(), None);
    }
}
