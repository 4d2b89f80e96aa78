//! A finding: what is wrong, by how much, what corrects it, and what that would gain.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingKind {
    /// The BLAS uses a kernel that does not fit the processor.
    BlasKernel,
    FasterBlas,
    /// A control group limits the processor time.
    Quota,
    SharedCores,
    SmtSiblings,
    /// The launcher has bound a rank to fewer cores than it has threads.
    TooFewCores,
    IdleCores,
    MixedCores,
    /// Other programs, or other machines of the hypervisor, use the cores.
    OtherPrograms,
    BelowPeak,
    SlowSgemm,
    Governor,
    ClockCap,
    NoBoost,
    LowClock,
    FallingClock,
    Throttled,
    MemoryNode,
    SeveralNodes,
    HugePages,
    MemoryErrors,
    PowerCounters,
    SlowRank,
    OutOfReach,
}

impl FindingKind {
    /// Whether a run is slower, or does not start, because of it.
    pub fn costs_speed(self) -> bool {
        self != Self::PowerCounters
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// The rate with the remedy, as a multiple of the present rate.
    pub times: f64,
    /// Whether that was measured here; otherwise it follows from counts, clocks and shares of time.
    pub is_measured: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    pub kind: FindingKind,
    pub hosts: Vec<String>,
    pub what: String,
    /// By how much, with where that comes from.
    pub measured: String,
    /// The command that corrects it, or what to do.
    pub remedy: String,
    /// What that would gain; `None` if it cannot be predicted.
    pub gain: Option<Gain>,
}

impl Finding {
    /// A finding whose remedy brings `times` the present rate, if that is known.
    pub fn new(
        kind: FindingKind,
        hosts: Vec<String>,
        what: impl Into<String>,
        measured: String,
        remedy: impl Into<String>,
        times: Option<f64>,
    ) -> Self {
        let is_measured = [FindingKind::FasterBlas, FindingKind::SlowRank].contains(&kind);
        // JSON, in which ranks send findings, has no infinity.
        let gain = times.filter(|it| it.is_finite()).map(|times| Gain { times, is_measured });
        Self { kind, hosts, what: what.into(), measured, remedy: remedy.into(), gain }
    }

    pub(crate) fn times(&self) -> f64 {
        self.gain.map_or(0.0, |gain| gain.times)
    }
}
