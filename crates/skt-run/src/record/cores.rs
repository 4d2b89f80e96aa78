//! How long the ranks of a test had their cores, and who used the rest.

use serde::{Deserialize, Serialize};
use skt_host::core_use::CoreUse;

/// What a rank got of its cores in the timed part of a test, in one start.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RankCores {
    /// The rank's host.
    pub host: String,
    pub rank: usize,
    /// What its threads had, and on the first rank of a host what other programs used there.
    #[serde(flatten)]
    pub used: CoreUse,
}

/// What all ranks got of their cores in the timed part of a test, in one start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CoreShares {
    /// The mean of all ranks' shares of the time in which their threads could run for which these
    /// had a core; `None` if a kernel does not count it.
    pub mean_share: Option<f64>,
    /// The number of ranks from which other work took more than it does anywhere.
    pub disturbed_ranks: usize,
    /// The rank that lost most, with the other programs of its host.
    pub worst: RankCores,
}

impl CoreShares {
    /// The shares of all ranks; `None` if there are none.
    pub fn from_ranks(ranks: &[RankCores]) -> Option<Self> {
        let lost = |rank: &RankCores| rank.used.lost_share() + rank.used.stolen_share;
        let mut worst = ranks.iter().max_by(|a, b| lost(a).total_cmp(&lost(b)))?.clone();
        let watched =
            |rank: &RankCores| rank.used.others.clone().filter(|_| rank.host == worst.host);
        worst.used.others = ranks.iter().find_map(watched);
        let shares: Option<Vec<f64>> = ranks.iter().map(|rank| rank.used.had_share).collect();
        let mean = |shares: Vec<f64>| shares.iter().sum::<f64>() / shares.len() as f64;
        let disturbed_ranks = ranks.iter().filter(|rank| rank.used.is_disturbed()).count();
        Some(Self { mean_share: shares.map(mean), disturbed_ranks, worst })
    }

    /// Whether other work took cores from a rank.
    pub fn is_disturbed(&self) -> bool {
        self.disturbed_ranks > 0
    }

    /// The rank that lost most, its share, and who used the rest.
    pub fn words(&self) -> String {
        let RankCores { host, rank, used } = &self.worst;
        format!("{host} rank {rank} {}", used.words())
    }
}

#[cfg(test)]
mod tests {
    use skt_host::core_use::{OtherProgram, OtherPrograms};

    use super::*;

    #[test]
    fn the_rank_that_lost_most_is_named_with_who_used_its_cores() {
        let programs = |pid: u32| {
            let named = vec![OtherProgram { pid, what: format!("process {pid}"), cores: 0.66 }];
            Some(OtherPrograms { cores: 0.66, named })
        };
        let rank = |rank: usize, host: &str, had: f64, others| {
            let (had_share, waited_seconds) = (Some(had), 10.0 * (1.0 - had));
            let used = CoreUse { had_share, waited_seconds, others, ..CoreUse::default() };
            RankCores { host: host.to_owned(), rank, used }
        };
        let quiet = [rank(0, "a", 0.99, programs(1)), rank(1, "a", 1.0, None)];
        assert!(!CoreShares::from_ranks(&quiet).expect("two ranks").is_disturbed());
        let mut ranks = quiet.to_vec();
        ranks.extend([rank(2, "b", 0.97, programs(2)), rank(3, "b", 0.34, None)]);
        let shares = CoreShares::from_ranks(&ranks).expect("four ranks");
        assert_eq!((shares.mean_share, shares.disturbed_ranks), (Some(0.825), 1));
        let want = "b rank 3 had a core for 34 % of the time in which it could run; process 2 used \
                    66 % of a core";
        assert_eq!(shares.words(), want);
        ranks[0].used.had_share = None;
        assert_eq!(CoreShares::from_ranks(&ranks).expect("four ranks").mean_share, None);
        assert_eq!(CoreShares::from_ranks(&[]), None);
    }
}
