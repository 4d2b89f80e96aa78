//! The phases of a factorization, and the seconds that each takes.

use std::ops::{Add, AddAssign};

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};

/// The seconds of a rank by phase.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Phases {
    /// Factorization of panels, with its communication.
    pub panel: f64,
    /// Row exchange and spread of U.
    pub swap: f64,
    /// Waiting for panels and forwarding them.
    pub bcast: f64,
    /// Triangular solve and matrix product of the trailing update.
    pub update: f64,
    /// Back substitution.
    pub back: f64,
    /// Everything else between start and end.
    pub other: f64,
    /// Parts of `panel`, for the reference's detailed timing alone.
    #[serde(skip)]
    pub panel_parts: PanelParts,
}

/// Seconds of the factorization of panels, by part.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PanelParts {
    /// The factorization of the last NBMIN or fewer columns of the recursion, one by one.
    pub unblocked: f64,
    /// The part of `unblocked` for the choice of pivots among ranks and their row exchange.
    pub pivots: f64,
}

impl AddAssign for PanelParts {
    fn add_assign(&mut self, other: Self) {
        self.unblocked += other.unblocked;
        self.pivots += other.pivots;
    }
}

impl Phases {
    /// Pairs of name and seconds, in the order of the report.
    pub fn named(&self) -> [(&'static str, f64); 6] {
        [
            ("panel", self.panel),
            ("swap", self.swap),
            ("bcast", self.bcast),
            ("update", self.update),
            ("back", self.back),
            ("other", self.other),
        ]
    }

    /// The seconds of all phases, in the order of the report.
    pub(crate) fn to_array(self) -> [f64; 6] {
        self.named().map(|(_, seconds)| seconds)
    }

    /// The inverse of [`Self::to_array`], without the parts of panels.
    pub(crate) fn from_array([panel, swap, bcast, update, back, other]: [f64; 6]) -> Self {
        Self { panel, swap, bcast, update, back, other, panel_parts: PanelParts::default() }
    }

    /// The seconds of all phases, then the parts that only the detailed timing has: those of
    /// panels, and `swap` and `update` together.
    pub fn to_parts(self) -> PhaseParts {
        let [panel, swap, bcast, update, back, other] = self.to_array();
        let PanelParts { unblocked, pivots } = self.panel_parts;
        [panel, swap, bcast, update, back, other, unblocked, pivots, swap + update]
    }

    /// The sum over all phases, in seconds.
    pub fn sum(&self) -> f64 {
        self.to_array().iter().sum()
    }

    /// Sets `other` to what the known phases leave of `seconds`.
    pub fn with_total(self, seconds: f64) -> Self {
        let known = Self { other: 0.0, ..self };
        Self { other: (seconds - known.sum()).max(0.0), ..self }
    }
}

/// Seconds by phase over all ranks of the grid.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PhaseTable {
    /// The largest value of any rank, for each phase.
    pub max: Phases,
    /// The mean over ranks.
    pub mean: Phases,
}

/// Seconds by phase and part, in the order of [`Phases::to_parts`].
pub type PhaseParts = [f64; 9];

/// Seconds by phase over all ranks of the grid, in several starts of a test.
#[derive(Debug, Clone, Copy, Default, PartialEq, Pod, Zeroable, Serialize, Deserialize)]
#[repr(C)]
pub struct PhaseTotals {
    /// The largest value of any rank in each start, summed over the starts.
    pub max: PhaseParts,
    /// The mean over ranks in each start, summed over the starts.
    pub mean: PhaseParts,
}

impl Add for PhaseTotals {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let add = |a: PhaseParts, b: PhaseParts| std::array::from_fn(|part| a[part] + b[part]);
        Self { max: add(self.max, other.max), mean: add(self.mean, other.mean) }
    }
}

impl PhaseTotals {
    /// The phases of a test that has computed for `seconds`, which are the sum of the means: a rank
    /// that has measured less has waited, which is part of `other`.
    pub fn table(&self, seconds: f64) -> PhaseTable {
        let [max, mean] =
            [self.max, self.mean].map(|[panel, swap, bcast, update, back, other, ..]| {
                Phases::from_array([panel, swap, bcast, update, back, other])
            });
        let known_seconds = Phases { other: 0.0, ..mean }.sum();
        // Ranks read their clocks at a cut at slightly different times.
        let scale = if known_seconds > seconds { seconds / known_seconds } else { 1.0 };
        let mean = Phases::from_array(mean.to_array().map(|part| scale * part));
        let mean = mean.with_total(seconds);
        PhaseTable { max: Phases { other: max.other.max(mean.other), ..max }, mean }
    }
}

/// Seconds of the timed part in which no phase advanced, because processes were lost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Pod, Zeroable, Serialize, Deserialize)]
#[repr(C)]
pub struct Interruptions {
    /// Seconds of work since the last checkpoint, which was done again.
    pub lost_seconds: f64,
    /// Seconds from the last sign of life of a start to the next start.
    pub down_seconds: f64,
    /// Seconds to find and rebuild the data, until the timed part continued.
    pub recovery_seconds: f64,
}

impl Interruptions {
    /// Pairs of name and seconds, in the order of the report.
    pub fn named(&self) -> [(&'static str, f64); 3] {
        let Self { lost_seconds, down_seconds, recovery_seconds } = *self;
        [("lost work", lost_seconds), ("down", down_seconds), ("recovery", recovery_seconds)]
    }

    pub fn seconds(&self) -> f64 {
        self.named().iter().map(|(_, seconds)| seconds).sum()
    }
}

/// What a test did before its present start, as far as that continues it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct EarlierStarts {
    /// The phases up to the state that the present start continues from.
    pub totals: PhaseTotals,
    /// What the losses have cost so far.
    pub interruptions: Interruptions,
}

impl EarlierStarts {
    /// These starts and the present one, in which this rank has spent `phases`.
    #[must_use]
    pub fn with(&self, phases: &Phases) -> Self {
        let parts = phases.to_parts();
        Self { totals: self.totals + PhaseTotals { max: parts, mean: parts }, ..*self }
    }
}

/// Seconds that checksums in the elimination cost, which are part of `other`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ChecksumCosts {
    /// Seconds to log the rows that a step changes.
    pub log_seconds: f64,
    /// Seconds to sum the checksums of finished columns again.
    pub sum_seconds: f64,
    /// Seconds to compare the checksums with the matrix.
    pub check_seconds: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_of_a_table_sum_to_the_time_whatever_was_measured() {
        let here = |update, other| {
            let mine = Phases { panel: 1.0, update, other, ..Phases::default() }.to_parts();
            PhaseTotals { max: mine, mean: mine }
        };
        for seconds in [6.5, 12.0, 30.0] {
            let table = (here(4.0, 1.0) + here(2.0, 0.5)).table(seconds);
            assert!((table.mean.sum() - seconds).abs() < 1e-12, "{seconds}: {table:?}");
            assert!(table.max.other >= table.mean.other && table.max.panel >= table.mean.panel);
        }
        assert_eq!((here(4.0, 1.0) + here(2.0, 0.5)).table(9.0).mean.other, 1.0);
    }
}
