//! How a test was protected, and what that cost.

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};
use skt_terms::phases::ChecksumCosts;

use super::restart::Restart;
use skt_checkpoint::checkpoint::level::LevelReport;

/// How a test was protected against the loss of ranks, and what that cost.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Protection {
    /// The method: `self`, `double`, `single` or `abft`.
    pub method: String,
    /// The erasure code: `xor`, `sum`, `reed-solomon`, or `weighted sums` with `abft`.
    pub codec: String,
    /// How parities were computed: `direct`, `ring`, `reduce` or `tree`.
    pub encoder: String,
    /// Approximate number of bytes per message while parities are computed; 0 if there are no
    /// messages.
    pub message_bytes: u64,
    /// The part of the matrix that was saved: `corner`, `side` or `whole`.
    pub region: String,
    /// The name of the run in shared memory.
    pub run_id: String,
    /// Number of groups of ranks.
    pub groups: usize,
    /// Number of ranks of the largest group.
    pub group_size: usize,
    /// Number of lost ranks that each group survives.
    pub parities: usize,
    /// Whether the loss of a node is survived, and not only that of processes.
    pub survives_nodes: bool,
    /// Bytes of shared memory per rank.
    pub segment_bytes: u64,
    /// Seconds that this start took to find or create the segments and to rebuild lost data; on a
    /// first start this is before the clock began.
    pub open_seconds: f64,
    /// Number of checkpoints taken since the first start.
    pub checkpoints: u64,
    /// Whether parities were computed during the update.
    pub overlap: bool,
    /// Seconds from the beginning of each checkpoint to its completion, summed over the
    /// checkpoints.
    pub checkpoint_seconds: f64,
    /// Seconds of `checkpoint_seconds` in which the solver's thread did nothing else, on the rank
    /// where this took longest.
    pub stall_seconds: f64,
    /// What the solver's thread did in `stall_seconds`.
    pub stall: Stall,
    /// Seconds that the first rank to reach a checkpoint waited for the last. They are not part of
    /// the checkpoint's time, because the ranks would have met at the next panel.
    pub skew_seconds: f64,
    /// Seconds of `checkpoint_seconds` to compute parities.
    pub encode_seconds: f64,
    /// Seconds of `checkpoint_seconds` to copy.
    pub copy_seconds: f64,
    /// Bytes of the matrix that rank 0 saved in all checkpoints together.
    pub saved_bytes: u64,
    /// The restarts since the first start.
    pub restarts: Vec<Restart>,
    /// With `abft`: number of checks of the matrix against its checksums in the last start.
    pub checks: u64,
    /// Number of rows in which these checks found wrong numbers, and which were computed again.
    pub repaired_rows: u64,
    /// The ranks whose wrong rows were recomputed, as far as it is certain that the wrong numbers
    /// come from their process columns; at most `REPAIRED_KEPT`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repaired: Vec<RepairedRank>,
    /// The process rows in which data was decoded while no checksum was left to verify it; at most
    /// `UNVERIFIED_KEPT`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unverified: Vec<Unverified>,
    /// The cost of the checksums besides the arithmetic, on the rank where it was highest, in the
    /// last start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum_costs: Option<ChecksumCosts>,
    /// What each level of images has done on rank 0.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub levels: Vec<LevelReport>,
}

impl Protection {
    /// Largest number of entries in [`Self::unverified`].
    pub(crate) const UNVERIFIED_KEPT: usize = 8;
    /// Largest number of entries in [`Self::repaired`].
    pub(crate) const REPAIRED_KEPT: usize = 8;
}

/// A rank whose wrong rows of the matrix were recomputed. A wrong number spreads to lower rows of
/// its process column, so several ranks of that column may be listed because of one number. Checks
/// that name the rank as the origin and checks that do not are in separate entries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RepairedRank {
    /// The rank's host.
    pub host: String,
    /// The rank's number in the run.
    pub rank: usize,
    /// The rank's process row.
    pub process_row: usize,
    /// The rank's process column; Q or more for a rank of checksums.
    pub process_column: usize,
    /// Rows that were recomputed, in all checks.
    pub rows: u64,
    /// The first wrong row, from 0, that the first of these checks found.
    pub first_row: usize,
    /// Columns eliminated at the first of these checks.
    pub first_column: usize,
    /// Columns eliminated at the last of these checks.
    pub last_column: usize,
    /// Number of these checks.
    pub checks: u64,
    /// Whether the wrong numbers certainly come from this rank. Otherwise another rank of its
    /// process column may have sent them.
    pub is_origin: bool,
}

/// A process row in which data was decoded while no checksum was left to verify it: a wrong number
/// that the other ranks had by then is also in the decoded data and in x.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Unverified {
    pub process_row: usize,
    /// Number of columns that were eliminated when this happened first.
    pub first_column: usize,
    /// Number of columns that were eliminated when this happened last.
    pub last_column: usize,
}

/// Why the solver's thread stood still: each part is the longest of any rank, summed over all
/// checkpoints.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, Pod, Zeroable)]
#[repr(C)]
pub struct Stall {
    /// Seconds to begin: the agreement on what to save, and parities that are carried over.
    pub begin_seconds: f64,
    /// Seconds in which the thread waited for the progress token, which its helper thread had.
    pub turn_seconds: f64,
    /// Seconds for parities that were not done at the cut, from when all ranks had reached it.
    pub encode_seconds: f64,
    /// Seconds for the agreement that the parities are complete, and for COMMIT.
    pub agree_seconds: f64,
    /// Seconds to copy the matrix.
    pub copy_seconds: f64,
}

impl Stall {
    /// The sum of all parts, in seconds.
    pub(crate) fn seconds(&self) -> f64 {
        bytemuck::cast::<_, [f64; 5]>(*self).iter().sum()
    }
}
