//! The phases of a factorization, and the seconds that each takes.

use serde::{Deserialize, Serialize};

/// Where the time of a rank went, in seconds.
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
    /// All else between start and end.
    pub other: f64,
}

impl Phases {
    /// Name and seconds, in the order of the report.
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

    /// The seconds, in the order of the report.
    pub fn to_array(self) -> [f64; 6] {
        self.named().map(|(_, seconds)| seconds)
    }

    /// The inverse of [`Self::to_array`].
    pub fn from_array([panel, swap, bcast, update, back, other]: [f64; 6]) -> Self {
        Self { panel, swap, bcast, update, back, other }
    }

    /// Seconds of all phases together.
    pub fn sum(&self) -> f64 {
        self.to_array().iter().sum()
    }

    /// What is left of `seconds` is `other`.
    pub fn of(self, seconds: f64) -> Self {
        let known = Self { other: 0.0, ..self };
        Self { other: (seconds - known.sum()).max(0.0), ..self }
    }
}

/// Phases over all ranks of the grid.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PhaseTable {
    /// Largest of any rank, phase by phase.
    pub max: Phases,
    /// Mean over ranks.
    pub mean: Phases,
}

/// Where the time of an elimination with checksums went that one without has no need of, in
/// seconds: part of `other`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ChecksumCosts {
    /// The log of the rows that a step changes.
    pub log_seconds: f64,
    /// Checksums of finished columns, which are summed anew.
    pub sum_seconds: f64,
    /// Comparisons of the checksums with the matrix.
    pub check_seconds: f64,
}
