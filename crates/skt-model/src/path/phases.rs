//! Where the time of a run goes, phase by phase.

use serde::Deserialize;

/// Seconds by phase.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PhaseSeconds {
    /// Panel factorization.
    pub panel: f64,
    /// Row exchange.
    pub swap: f64,
    /// Panel broadcast.
    pub bcast: f64,
    /// Trailing update.
    pub update: f64,
    /// Back substitution.
    pub back: f64,
    /// All else.
    pub other: f64,
}

impl PhaseSeconds {
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
}
