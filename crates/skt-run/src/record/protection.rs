//! How a test was protected, and what that cost.

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};
use skt_host::phases::ChecksumCosts;

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
    #[serde(flatten)]
    pub seconds: CheckpointSeconds,
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

/// What checkpoints cost, summed over them: the maximum of each number over ranks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, Pod, Zeroable)]
#[repr(C)]
pub struct CheckpointSeconds {
    /// From the beginning of each to its completion.
    pub checkpoint_seconds: f64,
    /// In which the solver's thread did nothing else: the sum of all parts of `stall`.
    pub stall_seconds: f64,
    pub stall: Stall,
    /// That the first rank to reach a checkpoint waited for the last. They are not part of the
    /// checkpoint's time, because the ranks would have met at the next panel.
    pub skew_seconds: f64,
    /// To compute parities.
    pub encode_seconds: f64,
    pub copy_seconds: f64,
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
    pub copy_seconds: f64,
}

impl Stall {
    /// The sum of all parts, in seconds.
    pub(crate) fn seconds(&self) -> f64 {
        bytemuck::cast::<_, [f64; 5]>(*self).iter().sum()
    }
}

/// The checksums that have replaced a lost process column. The rest of the run had no checksums.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Replacement {
    /// The process column; Q if it is the checksum column, so that nothing replaced it.
    pub process_column: usize,
    /// Bytes of the column's finished part of U that were decoded before the back substitution, on
    /// the rank with most.
    pub decoded_bytes: u64,
    /// Seconds to decode them, on the rank where it took longest.
    pub decode_seconds: f64,
}

/// One restart of a test.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Restart {
    /// The checkpoint that the restart continued from. It is 0 if there was none, and where the
    /// elimination carries checksums, unless the restart continued from images.
    pub epoch: u64,
    /// The column that the restart continued from.
    pub column: usize,
    /// The ranks whose data was rebuilt from the data of others.
    pub rebuilt_ranks: Vec<usize>,
    /// Number of damaged blocks of other ranks that were rebuilt.
    pub damaged_blocks: usize,
    /// Seconds from the first start to this one.
    pub start_seconds: f64,
    /// Seconds from that checkpoint, or from the beginning, to the restart: lost work and downtime.
    pub lost_seconds: f64,
    /// The part of `lost_seconds` after the last sign of life of the start before this one.
    pub down_seconds: f64,
    /// Seconds to find, rebuild and copy the data.
    pub recover_seconds: f64,
    /// Whether only the wall clock measured the time from that checkpoint to the restart, because
    /// no node had stayed up.
    pub is_by_wall_clock: bool,
    /// Seconds by which the wall clock was set in that time, as far as they are known; 0 if it was
    /// not set.
    pub wall_clock_step_seconds: f64,
    /// If the job survived the loss: seconds from when it was noticed until the ranks continued, on
    /// the rank where it took longest.
    pub repair_seconds: Option<f64>,
    /// Number of ranks that undid what they had computed beyond that column.
    pub undone_ranks: usize,
    /// The checksums that replaced a process column, if they did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replacement: Option<Replacement>,
    /// The level whose images the restart continued from, where memory did not suffice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
}

impl Restart {
    /// Where the run continued, and what was rebuilt.
    pub(crate) fn words(&self) -> String {
        let from = match self.epoch {
            0 => String::new(),
            epoch => format!("from checkpoint {epoch} "),
        };
        let rebuilt = match &self.rebuilt_ranks[..] {
            [] => "no rank had to be rebuilt".to_owned(),
            ranks if ranks.len() <= 8 => format!("ranks rebuilt: {ranks:?}"),
            ranks => format!("{} ranks rebuilt", ranks.len()),
        };
        let damaged = match self.damaged_blocks {
            0 => String::new(),
            blocks => format!("; damaged blocks of memory rebuilt: {blocks}"),
        };
        format!("{from}at column {}; {rebuilt}{damaged}", self.column)
    }

    /// The line that a start prints when it has resumed the run.
    pub(crate) fn format_resumption(&self) -> String {
        format!("resuming {}; recovery took {:.2} s", self.words(), self.recover_seconds)
    }
}
