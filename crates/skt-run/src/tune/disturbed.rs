//! Trials from which other work took cores.

use crate::record::cores::CoreShares;

/// Disturbed trials in a row after which repeating does not help: what disturbs them stays.
const LASTING: usize = 3;

/// The trials of a tuning from which other work took cores.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Disturbed {
    /// Disturbed trials that were repeated, so that their rates do not count.
    pub repeated: usize,
    /// Disturbed trials whose rates count.
    pub kept: usize,
    /// The one that lost most.
    pub worst: Option<CoreShares>,
    in_a_row: usize,
}

impl Disturbed {
    /// Whether the last trials were all disturbed.
    pub(crate) fn is_lasting(&self) -> bool {
        self.in_a_row >= LASTING
    }

    /// Notes a trial, with its shares if it was disturbed.
    pub(crate) fn add(&mut self, shares: Option<CoreShares>, is_repeated: bool) {
        let Some(shares) = shares else {
            self.in_a_row = 0;
            return;
        };
        self.in_a_row += 1;
        *(if is_repeated { &mut self.repeated } else { &mut self.kept }) += 1;
        let lost = |shares: &CoreShares| shares.worst.used.lost_share();
        if self.worst.as_ref().is_none_or(|worst| lost(&shares) > lost(worst)) {
            self.worst = Some(shares);
        }
    }

    pub(crate) fn remark(&self, trials: usize) -> Option<String> {
        let worst = self.worst.as_ref()?;
        let (all, kept) = (self.repeated + self.kept, self.kept);
        let is_kept = match kept {
            0 => "all were repeated".to_owned(),
            _ => format!(
                "the rates of {kept} count, and show other work, too: tune again without it"
            ),
        };
        let words = worst.words();
        Some(format!(
            "# disturbed: {all} of {trials} trials shared their cores with other work; {is_kept}. \
             At worst {words}\n"
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
        disturbed.add(Some(shares(0.5)), true);
        disturbed.add(None, false);
        let remark = disturbed.remark(2).expect("one");
        let at_worst = "At worst n1 rank 0 had a core for 50 % of the time in which it could run";
        let shared = "shared their cores with other work";
        let of_two =
            format!("# disturbed: 1 of 2 trials {shared}; all were repeated. {at_worst}\n");
        assert_eq!(remark, of_two);
        for (had, is_repeated) in [(0.6, true), (0.4, false), (0.7, true)] {
            assert!(!disturbed.is_lasting());
            disturbed.add(Some(shares(had)), is_repeated);
        }
        assert!(disturbed.is_lasting(), "three in a row");
        let remark = disturbed.remark(5).expect("four");
        let of_five = format!("# disturbed: 4 of 5 trials {shared}; the rates of 1 count");
        assert!(remark.starts_with(&of_five), "{remark}");
        assert!(remark.contains(" 40 % of the time"), "{remark}");
        disturbed.add(None, false);
        assert!(!disturbed.is_lasting());
    }
}
