//! A finding: what is wrong, by how much, what corrects it, and what that would gain.

use serde::{Deserialize, Serialize};

/// What a finding is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingKind {
    /// The BLAS uses a kernel that does not fit the processor, or ranks use different ones.
    BlasKernel,
    /// Another BLAS is faster than the one that is called by default.
    FasterBlas,
    /// A control group limits the processor time.
    Quota,
    /// More threads than cores share a set of CPUs.
    SharedCores,
    /// Threads run on both hardware threads of cores.
    SmtSiblings,
    /// The launcher has bound a rank to fewer cores than it has threads.
    TooFewCores,
    /// Cores that no rank uses.
    IdleCores,
    /// Fast and slow cores together.
    MixedCores,
    /// Other programs, or other machines of the hypervisor, use the cores.
    OtherPrograms,
    /// DGEMM is far below what the vector units do.
    BelowPeak,
    /// SGEMM is hardly faster than DGEMM.
    SlowSgemm,
    /// Results of SGEMM have larger errors than rounding explains.
    WrongSgemm,
    /// A governor that keeps the clock low.
    Governor,
    /// A setting that caps the clock.
    ClockCap,
    /// Clocks above the nominal one are forbidden.
    NoBoost,
    /// The clock under load is below the nominal one.
    LowClock,
    /// The clock falls under the load of vector instructions.
    FallingClock,
    /// Cores are slowed down because of heat or power.
    Throttled,
    /// Memory on another node than the cores.
    MemoryNode,
    /// The threads of a rank are spread over several nodes of the memory.
    SeveralNodes,
    /// No huge pages.
    HugePages,
    /// The memory has errors.
    MemoryErrors,
    /// Counters of energy that only root may read.
    PowerCounters,
    /// A rank is slower than the others.
    SlowRank,
    /// The name of a host is not known.
    UnknownName,
    /// The name of a host means different addresses on different hosts.
    DifferentName,
    /// A host cannot be reached.
    OutOfReach,
}

impl FindingKind {
    /// Whether a run is slower, or does not start, because of it.
    pub fn costs_speed(self) -> bool {
        self != Self::PowerCounters
    }
}

/// What a remedy would bring.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// The rate with the remedy, as a multiple of the present rate.
    pub times: f64,
    /// Whether that was measured here; otherwise it follows from counts, clocks and shares of time.
    pub is_measured: bool,
}

impl Gain {
    /// A gain that was measured; `None` if `times` is no number.
    pub(crate) fn measured(times: f64) -> Option<Self> {
        // JSON, in which ranks send findings, has no infinity.
        times.is_finite().then_some(Self { times, is_measured: true })
    }

    /// A gain that follows from counts, clocks and shares of time; `None` if `times` is no number.
    pub fn computed(times: f64) -> Option<Self> {
        times.is_finite().then_some(Self { times, is_measured: false })
    }
}

/// A finding.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// What it is about.
    pub kind: FindingKind,
    /// The hosts that have it.
    pub hosts: Vec<String>,
    /// What is wrong.
    pub what: String,
    /// By how much, with where that comes from.
    pub measured: String,
    /// The command that corrects it, or what to do.
    pub remedy: String,
    /// What that would gain; `None` if it cannot be predicted.
    pub gain: Option<Gain>,
}
