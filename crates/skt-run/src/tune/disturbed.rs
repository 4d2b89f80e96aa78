//! Trials from which other work took cores.

use crate::record::cores::CoreShares;

/// Disturbed trials in a row after which repeating does not help: what disturbs them stays.
const LASTING: usize = 3;

/// The trials of a tuning from which other work took cores.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Disturbed {
    trials: usize,
    in_a_row: usize,
    /// The one that lost most.
    worst: Option<CoreShares>,
}

impl Disturbed {
    /// Whether the last trials were all disturbed.
    pub(crate) fn is_lasting(&self) -> bool {
        self.in_a_row >= LASTING
    }

    /// Notes a trial, with its shares if it was disturbed.
    pub(crate) fn add(&mut self, shares: Option<CoreShares>) {
        let Some(shares) = shares else {
            self.in_a_row = 0;
            return;
        };
        self.in_a_row += 1;
        self.trials += 1;
        let lost = |shares: &CoreShares| shares.worst.used.lost_share();
        if self.worst.as_ref().is_none_or(|worst| lost(&shares) > lost(worst)) {
            self.worst = Some(shares);
        }
    }

    pub(crate) fn remark(&self, trials: usize) -> Option<String> {
        let (disturbed, worst) = (self.trials, self.worst.as_ref()?.words());
        Some(format!(
            "# disturbed: {disturbed} of {trials} trials shared their cores with other work. At \
             worst {worst}\n"
        ))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use skt_host::core_use::CoreUse;

    use super::*;
    use crate::record::cores::RankCores;

    /// Shares of one rank, which had a core for this share of the time.
    pub(in super::super) fn shares(had: f64) -> CoreShares {
        let used = CoreUse { had_share: Some(had), waited_seconds: 1.0, ..CoreUse::default() };
        CoreShares::from_ranks(&[RankCores { host: "n1".into(), rank: 0, used }]).expect("a rank")
    }

    #[test]
    fn trials_are_repeated_until_disturbance_lasts() {
        let mut disturbed = Disturbed::default();
        assert_eq!(disturbed.remark(1), None);
        disturbed.add(Some(shares(0.5)));
        disturbed.add(None);
        for had in [0.6, 0.4, 0.7] {
            assert!(!disturbed.is_lasting());
            disturbed.add(Some(shares(had)));
        }
        assert!(disturbed.is_lasting(), "three in a row");
        let remark = disturbed.remark(5).expect("four");
        let want = "# disturbed: 4 of 5 trials shared their cores with other work. At worst n1 \
                    rank 0 had a core for 40 % of the time";
        assert!(remark.starts_with(want), "{remark}");
        disturbed.add(None);
        assert!(!disturbed.is_lasting());
    }
}
