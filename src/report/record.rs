//! What is known about a test after it has run.

use std::fmt;
use std::ops::AddAssign;

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};
use skt_terms::phases::{ChecksumCosts, PhaseTable};

use super::power::EnergyReading;
use crate::config::TestSpec;
use crate::slow::SlowReport;

/// An entry of [`TestRecord::by_messages`]: the rows of one half of the columns were sent by
/// messages while the other half was multiplied.
pub const ROWS_IN_HALVES: &str = "rows in halves";

/// Norms of the problem and its solution.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Norms {
    /// `max |Ax-b|`
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

/// Seconds of the reference's detailed timing that are no phase of ours, each the longest of any
/// rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct DetailedTiming {
    /// The factorization of up to NBMIN columns at once, without recursion.
    pub pfact_seconds: f64,
    /// The part of that for pivots: their choice among ranks, and the exchange of their rows.
    pub mxswp_seconds: f64,
    /// The trailing update with its row exchange: the phases `swap` and `update` together.
    pub update_seconds: f64,
}

/// How a test ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "status")]
pub enum Outcome {
    /// The scaled residual is below the threshold.
    Passed {
        /// `||Ax-b||_oo / (eps (||A||_oo ||x||_oo + ||b||_oo) N)`
        scaled_residual: f64,
        /// The norms that the residual follows from.
        norms: Norms,
    },
    /// The scaled residual is not below the threshold.
    Failed {
        /// `||Ax-b||_oo / (eps (||A||_oo ||x||_oo + ||b||_oo) N)`
        scaled_residual: f64,
        /// The norms that the residual follows from.
        norms: Norms,
    },
    /// The threshold asks for no check; this counts as passed, as in the reference.
    NotChecked,
    /// The factorization stopped at a pivot that is zero or not finite.
    Broke {
        /// The pivot's global column, from 0.
        column: usize,
        /// The pivot: `0`, `NaN` or `inf`.
        pivot: String,
    },
    /// The test could not be run, for instance for lack of memory.
    Skipped {
        /// Why the test was not run.
        reason: String,
    },
}

/// The largest scaled residual that rounding alone leaves. It measures the backward error in units
/// of N eps: LU with partial pivoting stays below one unit on random matrices, usually between 1e-4
/// and 1e-1.
pub const MAX_ROUNDING_RESIDUAL: f64 = 1.0;

impl Outcome {
    /// Whether a test failed although its residual is that of a correct solution: the threshold is
    /// below what rounding leaves.
    pub fn failed_by_rounding(&self) -> bool {
        matches!(self, Outcome::Failed { scaled_residual, .. }
            if *scaled_residual <= MAX_ROUNDING_RESIDUAL)
    }

    /// Whether the system was solved, so that the rate has a meaning.
    pub fn ran_to_end(&self) -> bool {
        !matches!(self, Outcome::Broke { .. } | Outcome::Skipped { .. })
    }
}

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
    /// Bytes of the matrix that a rank saved in all checkpoints together.
    pub saved_bytes: u64,
    /// The restarts since the first start.
    pub restarts: Vec<Restart>,
    /// With `abft`: number of checks of the matrix against its checksums in the last start.
    #[serde(default)]
    pub checks: u64,
    /// Number of rows in which these checks found wrong numbers, and which were computed again.
    #[serde(default)]
    pub mended_rows: u64,
    /// The ranks whose wrong rows were recomputed, as far as it is certain that the wrong numbers
    /// come from their process columns; at most [`Self::MENDED_KEPT`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mended: Vec<Mended>,
    /// The process rows in which data was decoded while no checksum was left to verify it; at most
    /// [`Self::UNVERIFIED_KEPT`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unverified: Vec<Unverified>,
    /// The cost of the checksums besides the arithmetic, on the rank where it was highest, in the
    /// last start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum_costs: Option<ChecksumCosts>,
    /// What each level of images has done.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub levels: Vec<LevelFacts>,
}

impl Protection {
    /// Largest number of entries in [`Self::unverified`].
    pub const UNVERIFIED_KEPT: usize = 8;
    /// Largest number of entries in [`Self::mended`].
    pub const MENDED_KEPT: usize = 8;
}

/// A rank whose wrong rows of the matrix were recomputed. A wrong number spreads to lower rows of
/// its process column, so several ranks of that column may be listed because of one number. Checks
/// that name the rank as the origin and checks that do not are in separate entries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Mended {
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
    #[serde(default)]
    pub checks: u64,
    /// Whether the wrong numbers certainly come from this rank. Otherwise another rank of its
    /// process column may have sent them.
    #[serde(default)]
    pub is_origin: bool,
}

/// A process row in which data was decoded while no checksum was left to verify it: a wrong number
/// that the other ranks had by then is also in the decoded data and in x.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Unverified {
    /// The process row.
    pub process_row: usize,
    /// Number of columns that were eliminated when this happened first.
    pub first_column: usize,
    /// Number of columns that were eliminated when this happened last.
    pub last_column: usize,
}

/// What a level of images has done on rank 0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LevelFacts {
    /// The level, as `local:FOLDER` or `global:FOLDER`.
    pub name: String,
    /// Number of images that a rank has written in the last start.
    pub images: u64,
    /// Bytes of these images.
    pub bytes: u64,
    /// Seconds that it took to write the images, while the solver continued or, with checksums in
    /// the elimination, waited.
    pub seconds: f64,
    /// Seconds that the solver waited for images of any level.
    pub stall_seconds: f64,
    /// Core seconds to write the images.
    #[serde(default)]
    pub cpu_seconds: f64,
    /// Seconds between two images that follow from the cost of the last one; `None` if the interval
    /// does not depend on it, or if the cost is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_seconds: Option<f64>,
    /// Number of images that were given up.
    pub given_up: u64,
    /// The newest checkpoint of which all ranks are known to have an image; 0 if there is none.
    pub complete_epoch: u64,
    /// Why no more images were written, if a write or the opening of the level has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

impl LevelFacts {
    /// The rate of writing, in bytes per second.
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.bytes as f64 / self.seconds } else { 0.0 }
    }
}

impl fmt::Display for LevelFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, images, seconds, stall_seconds, complete_epoch, .. } = self;
        write!(f, "{name}: ")?;
        if *images == 0 {
            write!(f, "no image since the last start")?;
        } else {
            let rate = self.rate() / 1e6;
            write!(f, "{images} image(s) a rank in {seconds:.2} s ({rate:.0} MB/s)")?;
            write!(f, ", the solver waited {stall_seconds:.2} s")?;
        }
        match complete_epoch {
            0 => write!(f, "; none is complete")?,
            _ => write!(f, "; complete up to checkpoint {complete_epoch}")?,
        }
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

impl AddAssign for Stall {
    fn add_assign(&mut self, other: Self) {
        self.begin_seconds += other.begin_seconds;
        self.turn_seconds += other.turn_seconds;
        self.encode_seconds += other.encode_seconds;
        self.agree_seconds += other.agree_seconds;
        self.copy_seconds += other.copy_seconds;
    }
}

impl Stall {
    /// The sum of all parts, in seconds.
    pub fn seconds(&self) -> f64 {
        let Self { begin_seconds, turn_seconds, encode_seconds, agree_seconds, copy_seconds } =
            self;
        begin_seconds + turn_seconds + encode_seconds + agree_seconds + copy_seconds
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
    #[serde(default)]
    pub damaged_blocks: usize,
    /// Seconds from the first start to this one.
    pub start_seconds: f64,
    /// Seconds from that checkpoint, or from the beginning, to the restart: lost work and downtime.
    pub lost_seconds: f64,
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
    #[serde(default)]
    pub mended_seconds: Option<f64>,
    /// Number of ranks that undid what they had computed beyond that column.
    #[serde(default)]
    pub undone_ranks: usize,
    /// The checksums that replaced a process column, if they did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replacement: Option<Replacement>,
    /// The level whose images the restart continued from, where memory did not suffice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
}

impl Restart {
    /// A note on the clocks, if one is due.
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
    /// The ranks that were rebuilt: their numbers, or how many, if there are many.
    pub fn rebuilt_words(&self) -> String {
        match &self.rebuilt_ranks[..] {
            [] => "no rank had to be rebuilt".to_owned(),
            ranks if ranks.len() <= 8 => format!("ranks rebuilt: {ranks:?}"),
            ranks => format!("{} ranks rebuilt", ranks.len()),
        }
    }

    /// What a start says when it has resumed the run.
    pub fn resuming_words(&self) -> String {
        let (rebuilt, damaged) = (self.rebuilt_words(), self.damage_words());
        let from = match self.epoch {
            0 => String::new(),
            epoch => format!("from checkpoint {epoch} "),
        };
        let (column, seconds) = (self.column, self.recover_seconds);
        format!(
            "resuming {from}at column {column}; {rebuilt}{damaged}; recovery took {seconds:.2} s"
        )
    }

    /// A note on damaged memory, to follow the ranks that were rebuilt; empty if there is none.
    pub fn damage_words(&self) -> String {
        match self.damaged_blocks {
            0 => String::new(),
            blocks => format!("; damaged blocks of memory rebuilt: {blocks}"),
        }
    }
}

/// The memory of the largest rank by purpose, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemorySplit {
    /// The rank's part of the matrix.
    pub matrix: u64,
    /// Copies of the matrix in checkpoints.
    pub copies: u64,
    /// The parities of its group that the rank keeps.
    pub parities: u64,
    /// The header of the rank's segment, and alignment.
    pub header: u64,
    /// Panels, rows of U and buffers.
    pub work_space: u64,
}

impl MemorySplit {
    /// The sum of all parts; at most `u64::MAX`.
    pub fn total(&self) -> u64 {
        let Self { matrix, copies, parities, header, work_space } = *self;
        [copies, parities, header, work_space].into_iter().fold(matrix, u64::saturating_add)
    }
}

/// The progress of a test at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds since the first start of the timed part.
    pub elapsed_seconds: f64,
    /// Number of columns that are factored.
    pub column: usize,
}

/// Something that happened in a test.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Event {
    /// `start`, `checkpoint`, `failure`, `recovery` or `end`.
    pub kind: String,
    /// Seconds from the first start of the timed part to the start of the event.
    pub start_seconds: f64,
    /// Duration of the event in seconds.
    pub seconds: f64,
    /// The number of the checkpoint that was taken, or that the test continued from.
    pub epoch: Option<u64>,
    /// Number of columns that were factored.
    pub column: Option<usize>,
    /// Bytes of the matrix that a rank saved.
    pub bytes: Option<u64>,
    /// A description of the event.
    pub detail: String,
}

/// One test, as known on rank 0 after it has run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TestRecord {
    /// The parameters of the test.
    pub spec: TestSpec,
    /// Seconds from the barrier before the factorization to the end of the back substitution, the
    /// maximum over ranks.
    pub time_seconds: f64,
    /// `N^2 (2N/3 + 3/2) / (time_seconds 1e9)`.
    pub gflops: f64,
    /// Start of the factorization, in seconds since 1970.
    pub start_unix_seconds: i64,
    /// End of the back substitution, in seconds since 1970.
    pub end_unix_seconds: i64,
    /// Seconds to generate the matrix, which are not part of the timed part.
    pub generate_seconds: f64,
    /// Seconds to check the result, which are not part of the timed part.
    pub check_seconds: f64,
    /// Seconds by phase.
    pub phases: PhaseTable,
    /// Seconds that only the reference's detailed timing has; `None` if there was no place for them
    /// where the result was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detailed: Option<DetailedTiming>,
    /// Bytes of the largest rank: matrix, panels, work space.
    pub rank_bytes: u64,
    /// The memory of the largest rank by purpose.
    pub memory: MemorySplit,
    /// Points of the progress, few enough to be drawn.
    pub progress: Vec<Sample>,
    /// The events, in the order of time.
    pub events: Vec<Event>,
    /// A fingerprint of x, which differs if any bit of x does; 0 if there is no x.
    pub x_fingerprint: u64,
    /// What was sent between ranks by messages: `panels`, `rows` or [`ROWS_IN_HALVES`]. Everything
    /// else was read in memory that ranks of a node share.
    pub by_messages: Vec<String>,
    /// How the test was protected, and what that cost; `None` without protection.
    pub protection: Option<Protection>,
    /// End of the back substitution on rank 0, in seconds since 1970 with their fraction; `None` if
    /// it is not known.
    #[serde(default)]
    pub end_unix: Option<f64>,
    /// The energy of the timed part, by each source that measured it.
    #[serde(default)]
    pub power: Vec<EnergyReading>,
    /// The rates of all ranks in the last start, and the ranks that are slow; `None` where they
    /// were not compared. Not stored for later starts.
    #[serde(skip)]
    pub slow: Option<SlowReport>,
    /// How the test ended.
    pub outcome: Outcome,
}

impl TestRecord {
    /// The record of a test that has not been run.
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
            detailed: None,
            rank_bytes: 0,
            memory: MemorySplit::default(),
            progress: Vec::new(),
            events: Vec::new(),
            x_fingerprint: 0,
            by_messages: Vec::new(),
            protection: None,
            end_unix: None,
            power: Vec::new(),
            slow: None,
            outcome: Outcome::NotChecked,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_without_images_has_no_rate_of_them() {
        let facts = |images| LevelFacts {
            name: "local:/l".to_owned(),
            images,
            bytes: 3_000_000,
            seconds: 1.5,
            stall_seconds: 0.25,
            cpu_seconds: 0.0,
            interval_seconds: None,
            given_up: 0,
            complete_epoch: 3,
            failure: None,
        };
        let some = "local:/l: 2 image(s) a rank in 1.50 s (2 MB/s), the solver waited 0.25 s; \
                    complete up to checkpoint 3";
        let none = "local:/l: no image since the last start; complete up to checkpoint 3";
        assert_eq!([facts(2).to_string(), facts(0).to_string()], [some, none]);
        let nothing = LevelFacts { complete_epoch: 0, ..facts(0) }.to_string();
        assert_eq!(nothing, "local:/l: no image since the last start; none is complete");
    }
}
