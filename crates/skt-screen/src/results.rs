//! What the nodes measured and computed: all that a verdict rests on.

use serde::{Deserialize, Serialize};
use skt_run::record::cores::CoreShares;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// The order of the system; 0 if it was never chosen.
    pub n: usize,
    /// The nodes, by the first of their ranks.
    pub nodes: Vec<ScreenedNode>,
    /// What pairs of nodes did together, stage by stage; in a stage no node is in two pairs.
    pub pairs: Vec<Pair>,
    /// Why nothing was screened: the user's N does not fit.
    pub refused: Option<String>,
}

/// What must agree for two nodes to be comparable: then a sound one has the rate of the other, and
/// x with the same bits.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeKind {
    pub processor: String,
    pub blas: String,
    pub ranks: usize,
    pub threads: usize,
}

/// What a node measures of itself before the first system.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeRates {
    /// DGEMM on all its threads, in Gflop/s.
    pub dgemm_gflops: Option<f64>,
    /// What the vector units of all its threads do, in Gflop/s, if there is a loop for them.
    pub units_gflops: Option<f64>,
    /// The bandwidth of its memory, in 10^9 bytes a second.
    pub memory_gigabytes_a_second: Option<f64>,
    /// Bytes of memory that are free there, if it is known.
    pub free_bytes: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ScreenedNode {
    pub host: String,
    /// The kind of the nodes that it is compared with; `None` if it never reported.
    pub kind: Option<NodeKind>,
    #[serde(flatten)]
    pub rates: NodeRates,
    /// The systems that it solved alone, in order.
    pub solves: Vec<Solve>,
    /// What it counted from the first system to the last.
    pub events: Option<Events>,
    /// Why results of it are missing, if some are.
    pub lost: Option<String>,
}

/// A system that was solved, or was to be.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Solve {
    /// The rate in Gflop/s; `None` if it is no number.
    pub gflops: Option<f64>,
    /// The scaled residual; `None` if it is no number, or the factorization broke.
    pub scaled_residual: Option<f64>,
    /// The fingerprint of all bits of x; `None` if there is no x.
    pub x: Option<String>,
    /// What the ranks got of their cores, if it is known.
    pub cores: Option<CoreShares>,
    /// What is wrong with the result without comparison: a residual or a pivot.
    pub wrong: Option<String>,
}

/// What the system of a node counted during the screening.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Events {
    pub corrected: u64,
    pub uncorrected: u64,
    pub machine_checks: u64,
    /// How often a core was slowed down because of heat or power.
    pub throttled: u64,
    /// The hottest sensor after the last system, in degrees Celsius.
    pub celsius: Option<f64>,
}

/// The link between two nodes, and the system that they solved over it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// The nodes, as indices into [`Results::nodes`], in ascending order.
    pub nodes: [usize; 2],
    /// The rate in each direction while both send at once, in 10^9 bytes a second.
    pub gigabytes_a_second: Option<f64>,
    /// Half of a round trip of 8 bytes, in microseconds.
    pub microseconds: Option<f64>,
    pub solve: Option<Solve>,
    /// Why there is no result: a node stopped answering, or the link is too slow for it.
    pub lost: Option<String>,
}

impl Pair {
    pub(crate) fn rate(&self) -> Option<f64> {
        sound_rate(self.gigabytes_a_second)
    }
}

/// Why a pair solves no system where it would take too long: no node is at fault.
pub(crate) const SLOW_LINK: &str = "the link is too slow to solve a system over it in time";

/// A rate that can be compared: a positive number.
pub(crate) fn sound_rate(rate: Option<f64>) -> Option<f64> {
    rate.filter(|rate| rate.is_finite() && *rate > 0.0)
}
