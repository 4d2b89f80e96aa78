//! The phases of a factorization, and the seconds that each takes.

use std::ops::AddAssign;

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
    pub fn to_array(self) -> [f64; 6] {
        self.named().map(|(_, seconds)| seconds)
    }

    /// The inverse of [`Self::to_array`], without the parts of panels.
    pub fn from_array([panel, swap, bcast, update, back, other]: [f64; 6]) -> Self {
        Self { panel, swap, bcast, update, back, other, panel_parts: PanelParts::default() }
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
