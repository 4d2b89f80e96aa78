//! Why a job cannot resume from what was found, in words from which the user knows what to do.

use serde::{Deserialize, Serialize};
use skt_terms::units;

use super::alike::Difference;
use super::group::PlacementError;
use super::store::CLEANERS;

/// A group that has lost more ranks than it can rebuild.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostGroup {
    /// Index of the group, if one of its segments was found.
    pub group: Option<usize>,
    pub ranks: Vec<usize>,
}

/// Damage of one rank that cannot be repaired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Damage {
    pub rank: usize,
    /// `data` or `parities`.
    pub area: String,
    /// Region of the first damaged cell that cannot be rebuilt.
    pub region: usize,
    pub row: usize,
    /// First byte of that cell within the row.
    pub byte: usize,
    /// Number of damaged cells of this rank, including those that can be rebuilt.
    pub cells: usize,
}

/// Why the job cannot resume from what was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum Refusal {
    /// A group has lost more ranks than it has parities.
    #[error("{}{}", self.what(), bring_back(*epoch, incomplete))]
    Unrecoverable {
        epoch: u64,
        lost: Vec<LostGroup>,
        /// The lost ranks whose segments are present, but with an incomplete copy: with method
        /// `single` a death has interrupted the update of the only one.
        incomplete: Vec<usize>,
        parities: usize,
    },
    /// Too much of one stripe is damaged: it differs from what was written.
    #[error("{}. {}. Start afresh with --resume never", self.what(), look_for_errors(level))]
    Damaged {
        epoch: u64,
        /// The level whose images are damaged, as users know it; `None` for memory.
        level: Option<String>,
        damage: Vec<Damage>,
        lost: Vec<usize>,
        parities: usize,
    },
    /// Images of method `abft` differ from what was written, in too many ranks of a group.
    #[error("{}. {}. Start afresh with --resume never", self.what(), look_for_errors(&Some(level.clone())))]
    RottenImages {
        epoch: u64,
        level: String,
        rotten: Vec<usize>,
        lost: Vec<usize>,
        parities: usize,
    },
    /// The application cannot use the surviving data (method `abft`).
    #[error("{why}. Start afresh with --resume never")]
    OfNoUse { why: String },
    /// Too few processes are left, and none can take over these ranks.
    #[error(
        "ranks {lost:?} are lost, and the others cannot continue without them: the same command, \
         on all ranks, resumes the run, or starts it if it had not begun"
    )]
    CannotContinue { lost: Vec<usize> },
    /// With `--resume require`, there is nothing to resume.
    #[error(
        "--resume require, but no checkpoint of this run was found. If an earlier start had one, \
         its segments are gone: {}",
        CLEANERS
    )]
    NothingFound,
    /// Processes were started with different settings.
    #[error("rank {} has {} {}, rank 0 has {}: start all ranks with the same", .0.process, .0.name, .0.here, .0.there)]
    Disagree(Difference),
    /// Segments of this run were made with other settings.
    #[error(
        "process {process} found a segment of this run (rank {rank}) made with other settings: \
         {differences}. Restart with the settings of the run, or start afresh with --resume never"
    )]
    OtherShape { process: usize, rank: usize, differences: String },
    /// Another job holds the run.
    #[error("process {process} cannot take hold of the run: {why}")]
    Held {
        process: usize,
        why: String,
        /// Whether that job is ending, on all nodes where it holds the run.
        passes: bool,
    },
    /// A segment is no longer what it was when all decided.
    #[error(
        "process {process}: the segment of rank {rank} has changed since it was looked at, so a \
         process of an earlier start was still at work. Nothing was changed here; start the same \
         command again when it has ended"
    )]
    Changed { process: usize, rank: usize },
    /// A level has no room for its images.
    #[error(
        "level {level} has {} free where process {process} ({host}) writes; {images} images of each rank \
         there take {} more. Make room, or keep fewer (keep=1)", units::bytes(*free_bytes),
        units::bytes(*need_bytes)
    )]
    NoRoom {
        process: usize,
        host: String,
        level: String,
        images: usize,
        need_bytes: u64,
        free_bytes: u64,
    },
    /// A level fails at the start, and without it there is nothing to resume from.
    #[error(
        "level {level} fails at {failure}; {why}, and what that level has is not known. Repair it \
         and start the same command again, or leave that --level out to do without what it has"
    )]
    LevelFails { level: String, failure: String, why: String },
    /// No groups can be formed.
    #[error("{0}")]
    Placement(String),
}

impl Refusal {
    /// Whether the obstacle is a process of an earlier start, which will end: the same start
    /// succeeds later.
    pub fn passes(&self) -> bool {
        matches!(self, Self::Changed { .. } | Self::Held { passes: true, .. })
    }

    /// What is wrong, without what to do.
    pub fn what(&self) -> String {
        match self {
            Self::Unrecoverable { epoch, lost, parities, .. } => {
                let lost = describe(lost);
                format!("epoch {epoch} cannot be restored: {lost} with {parities} parities a group")
            }
            Self::Damaged { epoch, level, damage, lost, parities } => {
                beyond_repair(*epoch, level.as_deref(), damage, lost, *parities)
            }
            Self::RottenImages { epoch, level, rotten, lost, parities } => format!(
                "epoch {epoch} cannot be restored from the images of {level}: those of ranks \
                 {rotten:?} have rotted{}; {parities} parities a group cannot rebuild that",
                also_lost(lost)
            ),
            Self::OfNoUse { why } => why.clone(),
            other => other.to_string(),
        }
    }
}

impl From<PlacementError> for Refusal {
    fn from(error: PlacementError) -> Self {
        Self::Placement(error.to_string())
    }
}

fn bring_back(epoch: u64, incomplete: &[usize]) -> String {
    if incomplete.is_empty() {
        return ". Bring the lost nodes back. If that run has ended without the nodes that are \
                here, what they hold is left over from it, and each start will report this: start \
                afresh with --resume never"
            .to_owned();
    }
    format!(
        "; of these, ranks {incomplete:?} are here, but the run died while checkpoint {} was being \
         written over their only copy, which is incomplete. Method `single` cannot survive a death \
         within a checkpoint. Start afresh with --resume never, and with --ft self or --ft \
         double, which have a whole copy at every instant",
        epoch + 1
    )
}

fn beyond_repair(
    epoch: u64,
    level: Option<&str>,
    damage: &[Damage],
    lost: &[usize],
    parities: usize,
) -> String {
    let one = |Damage { rank, area, region, row, byte, cells }: &Damage| {
        format!(
            "rank {rank} has {cells} damaged cell(s), the first in row {row}, byte {byte} of \
             region {region} of its {area}"
        )
    };
    let damage = damage.iter().map(one).collect::<Vec<_>>().join("; ");
    let also_lost = also_lost(lost);
    let from = level.map_or(String::new(), |level| format!(" from the images of {level}"));
    format!(
        "epoch {epoch} cannot be restored{from}: {damage}{also_lost}; {parities} parities a group \
         cannot rebuild that"
    )
}

fn also_lost(lost: &[usize]) -> String {
    if lost.is_empty() {
        String::new()
    } else {
        format!(", in addition to the lost ranks {lost:?}")
    }
}

fn look_for_errors(level: &Option<String>) -> String {
    match level {
        None => "Memory of these ranks' nodes has changed without being written: look for memory \
                 errors there"
            .to_owned(),
        Some(level) => {
            format!(
                "Files of {level} cannot be read, or have changed: look for errors of its disks"
            )
        }
    }
}

fn describe(lost: &[LostGroup]) -> String {
    let one = |lost: &LostGroup| match lost.group {
        Some(group) => format!("group {group} has lost ranks {:?}", lost.ranks),
        None => format!("all of the group(s) of ranks {:?} is lost", lost.ranks),
    };
    lost.iter().map(one).collect::<Vec<_>>().join(", ")
}
