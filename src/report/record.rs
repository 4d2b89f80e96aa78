//! What is known of a test after it has run.

use std::fmt;

use serde::{Deserialize, Serialize};
use skt_terms::phases::{ChecksumCosts, PhaseTable};

use crate::config::TestSpec;

/// In the list of what went by messages: rows, those of one half of the columns while the
/// other half was multiplied.
pub const ROWS_IN_HALVES: &str = "rows in halves";

/// Norms of the problem and its solution.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Norms {
    /// max |Ax-b|
    pub residual_oo: f64,
    /// ||A||_oo
    pub a_oo: f64,
    /// ||A||_1
    pub a_1: f64,
    /// ||x||_oo
    pub x_oo: f64,
    /// ||x||_1
    pub x_1: f64,
    /// ||b||_oo
    pub b_oo: f64,
}

/// How a test ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "status")]
pub enum Outcome {
    /// Scaled residual below the threshold.
    Passed {
        /// `||Ax-b||_oo / (eps (||A||_oo ||x||_oo + ||b||_oo) N)`
        scaled_residual: f64,
        /// Norms behind it.
        norms: Norms,
    },
    /// Scaled residual not below the threshold.
    Failed {
        /// As above.
        scaled_residual: f64,
        /// Norms behind it.
        norms: Norms,
    },
    /// The threshold asked for no check; counts as passed, as in the reference.
    NotChecked,
    /// The factorization stopped: a pivot that is zero, or not a number.
    Broke {
        /// Global column, from 0.
        column: usize,
        /// The pivot found there: `0`, `NaN` or `inf`.
        pivot: String,
    },
    /// The test could not be run (for instance: not enough memory).
    Skipped {
        /// Why.
        reason: String,
    },
}

impl Outcome {
    /// Whether the system was solved, so that there is a meaningful rate.
    pub fn ran_to_end(&self) -> bool {
        !matches!(self, Outcome::Broke { .. } | Outcome::Skipped { .. })
    }
}

/// How a test was protected against the loss of ranks, and what that cost.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Protection {
    /// Checkpoint method: `self`, `double` or `single`.
    pub method: String,
    /// Erasure code: `xor`, `sum` or `rs`.
    pub codec: String,
    /// How parities are computed: `direct`, `ring`, `reduce` or `tree`.
    pub encoder: String,
    /// Bytes of a message when they are, about; 0 where there is none.
    pub message_bytes: u64,
    /// What is saved: `corner`, `side` or `whole`.
    pub region: String,
    /// Name of the run in shared memory.
    pub run_id: String,
    /// Groups of ranks.
    pub groups: usize,
    /// Ranks of the largest group.
    pub group_size: usize,
    /// Losses that each group survives.
    pub parities: usize,
    /// Whether the loss of a node is survived, or that of processes only.
    pub survives_nodes: bool,
    /// Bytes of shared memory on a rank.
    pub segment_bytes: u64,
    /// Seconds that this start took to find or make it, and to rebuild what was lost:
    /// on a first start before the clock began.
    pub open_seconds: f64,
    /// Checkpoints taken since the first start.
    pub checkpoints: u64,
    /// Whether parities were computed during the update.
    pub overlap: bool,
    /// Seconds from where each began to where it was complete.
    pub checkpoint_seconds: f64,
    /// Of these, the solver's thread did nothing else, on the rank where that was
    /// longest.
    pub stall_seconds: f64,
    /// What it did in them.
    pub stall: Stall,
    /// Seconds that the first to come to a checkpoint waited for the last: not part of
    /// what it took, since they would have met at the next panel.
    pub skew_seconds: f64,
    /// Of these, to compute parities.
    pub encode_seconds: f64,
    /// Of these, to copy.
    pub copy_seconds: f64,
    /// Bytes of the matrix that a rank saved, all checkpoints together.
    pub saved_bytes: u64,
    /// Restarts since the first start.
    pub restarts: Vec<Restart>,
    /// With `abft`: checks of the matrix against its checksums, in the last start.
    #[serde(default)]
    pub checks: u64,
    /// Rows in which these found wrong numbers, and which were computed anew.
    #[serde(default)]
    pub mended_rows: u64,
    /// The ranks that had these rows: the first [`Self::MENDED_KEPT`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mended: Vec<Mended>,
    /// Process rows of which something was decoded while no checksum was left over to check with: the
    /// first [`Self::UNVERIFIED_KEPT`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unverified: Vec<Unverified>,
    /// What the checksums cost beside the arithmetic: the most of any rank, in the last start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum_costs: Option<ChecksumCosts>,
    /// What the levels of images have done.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub levels: Vec<LevelFacts>,
}

impl Protection {
    /// Process rows that are kept of those with what could not be checked.
    pub const UNVERIFIED_KEPT: usize = 8;
    /// Ranks that are kept of those with rows that were wrong and are right again.
    pub const MENDED_KEPT: usize = 8;
}

/// A rank with rows of the matrix that were wrong and have been computed anew. A wrong number
/// spreads to lower rows of its process column, so several ranks of one may be listed for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Mended {
    /// Its host.
    pub host: String,
    /// Its number in the run.
    pub rank: usize,
    /// Its process row.
    pub process_row: usize,
    /// Its process column, Q or more for a checksum.
    pub process_column: usize,
    /// How many rows, in all checks.
    pub rows: u64,
    /// The first row, from 0, that the first of these checks has found.
    pub first_row: usize,
    /// Columns that were eliminated in that check.
    pub first_column: usize,
    /// Columns that were eliminated in the last of these checks.
    pub last_column: usize,
}

/// A process row of which something was decoded from ranks that no checksum was left to check: a
/// wrong number that they had by then is in both.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Unverified {
    /// The process row.
    pub process_row: usize,
    /// Columns that were eliminated then, the first time.
    pub first_column: usize,
    /// The same, the last time.
    pub last_column: usize,
}

/// What a level of images has done on rank 0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LevelFacts {
    /// The level, as `local:FOLDER` or `global:FOLDER`.
    pub name: String,
    /// Images that a rank has written in the last start.
    pub images: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Seconds that it took to write them, while the solver went on or, with checksums in the
    /// elimination, waited.
    pub seconds: f64,
    /// Seconds that the solver waited for images of any level.
    pub stall_seconds: f64,
    /// Seconds of a core that writing them took.
    #[serde(default)]
    pub cpu_seconds: f64,
    /// Seconds between two images as the cost of the last one says, where that decides and
    /// is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_seconds: Option<f64>,
    /// Images that were given up.
    pub given_up: u64,
    /// Newest checkpoint of which all ranks are known to have an image; 0 for none.
    pub complete_epoch: u64,
    /// Why no more of it were written, where a write has failed, or the level at the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

impl LevelFacts {
    /// Bytes a second that were written.
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.bytes as f64 / self.seconds } else { 0.0 }
    }
}

impl fmt::Display for LevelFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, images, seconds, stall_seconds, complete_epoch, .. } = self;
        write!(
            f,
            "{name}: {images} image(s) a rank in {seconds:.2} s ({:.0} MB/s), the solver waited \
             {stall_seconds:.2} s; complete up to checkpoint {complete_epoch}",
            self.rate() / 1e6
        )?;
        if let Some(seconds) = self.interval_seconds {
            write!(f, "; by their cost one every {seconds:.1} s")?;
        }
        if self.given_up > 0 {
            write!(f, "; {} given up", self.given_up)?;
        }
        match &self.failure {
            Some(why) => write!(f, "; NO MORE ARE WRITTEN: {why}"),
            None => Ok(()),
        }
    }
}

/// Why the solver's thread stood still: each part the longest of any rank, all
/// checkpoints together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Stall {
    /// To begin: agreement on what is to be saved, parities that are carried over.
    pub begin_seconds: f64,
    /// Waiting for its turn to speak to other ranks, which the thread beside it had.
    pub turn_seconds: f64,
    /// Parities that were not done at the cut, from when all ranks had come.
    pub encode_seconds: f64,
    /// Agreement that they are complete, and COMMIT.
    pub agree_seconds: f64,
    /// Copies of the matrix.
    pub copy_seconds: f64,
}

impl Stall {
    /// All parts.
    pub fn seconds(&self) -> f64 {
        let Self { begin_seconds, turn_seconds, encode_seconds, agree_seconds, copy_seconds } =
            self;
        begin_seconds + turn_seconds + encode_seconds + agree_seconds + copy_seconds
    }
}

/// Checksums in the place of a lost process column. The rest of the run had none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Replacement {
    /// The process column; Q: that of the checksums, so that nothing took its place.
    pub process_column: usize,
    /// Bytes of its finished part of U that were decoded before the back substitution, the
    /// most on a rank.
    pub decoded_bytes: u64,
    /// Seconds that it took, the longest of any rank.
    pub decode_seconds: f64,
}

/// One restart of a test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Restart {
    /// Checkpoint that it went on from; 0 where there was none yet, and where the elimination
    /// carries checksums, unless it was one of images.
    pub epoch: u64,
    /// Column that it went on from.
    pub column: usize,
    /// Ranks whose data was rebuilt from that of others.
    pub rebuilt_ranks: Vec<usize>,
    /// Damaged blocks of other ranks that were rebuilt.
    #[serde(default)]
    pub damaged_blocks: usize,
    /// Seconds from the first start to this one.
    pub start_seconds: f64,
    /// Seconds from that checkpoint, or from the beginning, to the restart: lost work and downtime.
    pub lost_seconds: f64,
    /// Seconds to find, rebuild and copy the data.
    pub recover_seconds: f64,
    /// Whether the wall clock alone told the time from that checkpoint to the
    /// restart: no node had stayed up.
    pub is_by_wall_clock: bool,
    /// Seconds by which the wall clock was set in that time, as far as that is
    /// known; 0 where it was not.
    pub wall_clock_step_seconds: f64,
    /// Where the job outlived the loss: seconds from when it was noticed to when the ranks
    /// went on, the longest of any rank.
    #[serde(default)]
    pub mended_seconds: Option<f64>,
    /// Ranks that took back what they had computed beyond that column.
    #[serde(default)]
    pub undone_ranks: usize,
    /// Where the checksums have taken the place of a process column.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replacement: Option<Replacement>,
    /// The level whose images it went on from, where memory was not enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
}

impl Restart {
    /// What is to be said of the clocks, if there is something.
    pub fn clock_note(&self) -> Option<String> {
        let Self { is_by_wall_clock, wall_clock_step_seconds: step, epoch, .. } = *self;
        let since = match epoch {
            0 => "between the loss and the restart".to_owned(),
            _ => format!("between checkpoint {epoch} and the restart"),
        };
        match (is_by_wall_clock, step) {
            (false, 0.0) => None,
            (false, _) => Some(format!(
                "the wall clock was set by {step:+.0} s {since}, or differs by that much from \
                 another node's; the time is measured by the uptime of a node that stayed up"
            )),
            (true, 0.0) => Some(format!(
                "no node stayed up {since}: this part of the time is by the wall clock"
            )),
            (true, _) => Some(format!(
                "no node stayed up {since}, and the wall clock went back by {:.0} s at least: this \
                 part of the time is not known and not counted, Time is too short and Gflops are \
                 too high",
                -step
            )),
        }
    }
}

impl Restart {
    /// What is said of damaged memory, behind the ranks that were rebuilt.
    pub fn damage_words(&self) -> String {
        match self.damaged_blocks {
            0 => String::new(),
            blocks => format!("; damaged blocks of memory rebuilt: {blocks}"),
        }
    }
}

/// Where the memory of the largest rank goes, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemorySplit {
    /// Its part of the matrix.
    pub matrix: u64,
    /// Copies of it in checkpoints.
    pub copies: u64,
    /// Parities of its group that it keeps.
    pub parities: u64,
    /// Header of its segment, and what alignment takes.
    pub header: u64,
    /// Panels, rows of U, buffers.
    pub work_space: u64,
}

impl MemorySplit {
    /// All of it; at most `u64::MAX`.
    pub fn total(&self) -> u64 {
        let Self { matrix, copies, parities, header, work_space } = *self;
        [copies, parities, header, work_space].into_iter().fold(matrix, u64::saturating_add)
    }
}

/// Where a test was at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds since the first start of the timed part.
    pub elapsed_seconds: f64,
    /// Columns that are factored.
    pub column: usize,
}

/// Something that happened in a test.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Event {
    /// `start`, `checkpoint`, `failure`, `recovery` or `end`.
    pub kind: String,
    /// Seconds from the first start of the timed part to its own start.
    pub start_seconds: f64,
    /// How long it took.
    pub seconds: f64,
    /// Number of the checkpoint that was taken or gone on from.
    pub epoch: Option<u64>,
    /// Columns that were factored.
    pub column: Option<usize>,
    /// Bytes of the matrix that a rank saved.
    pub bytes: Option<u64>,
    /// All of it in words.
    pub detail: String,
}

/// One test, as known on rank 0 after it has run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TestRecord {
    /// Its parameters.
    pub spec: TestSpec,
    /// Seconds from the barrier before the factorization to the end of the
    /// back substitution, the maximum over ranks.
    pub time_seconds: f64,
    /// `N^2 (2N/3 + 3/2) / (time_seconds 1e9)`.
    pub gflops: f64,
    /// Start of the factorization, seconds since the Unix epoch.
    pub start_unix_seconds: i64,
    /// End of the back substitution, seconds since the Unix epoch.
    pub end_unix_seconds: i64,
    /// Seconds spent to generate the matrix (outside of the timed part).
    pub generate_seconds: f64,
    /// Seconds spent to check the result (outside of the timed part).
    pub check_seconds: f64,
    /// Where the time went.
    pub phases: PhaseTable,
    /// Bytes of the largest rank: matrix, panels, work space.
    pub rank_bytes: u64,
    /// Where the memory of the largest rank goes.
    pub memory: MemorySplit,
    /// How far it was, now and then; few enough to be drawn.
    pub progress: Vec<Sample>,
    /// What happened, in the order of time.
    pub events: Vec<Event>,
    /// Differs when any bit of x does; 0 when there is no x.
    pub x_fingerprint: u64,
    /// What went from rank to rank by messages: `panels`, `rows` or [`ROWS_IN_HALVES`]. The
    /// rest was read where it lay, in memory that ranks of a node share.
    pub by_messages: Vec<String>,
    /// How the test was protected, and what that cost; none without checkpoints.
    pub protection: Option<Protection>,
    /// How it ended.
    pub outcome: Outcome,
}

impl TestRecord {
    /// Of a test that has not been run.
    pub fn not_run(spec: TestSpec) -> Self {
        Self {
            spec,
            time_seconds: 0.0,
            gflops: 0.0,
            start_unix_seconds: 0,
            end_unix_seconds: 0,
            generate_seconds: 0.0,
            check_seconds: 0.0,
            phases: PhaseTable::default(),
            rank_bytes: 0,
            memory: MemorySplit::default(),
            progress: Vec::new(),
            events: Vec::new(),
            x_fingerprint: 0,
            by_messages: Vec::new(),
            protection: None,
            outcome: Outcome::NotChecked,
        }
    }
}
