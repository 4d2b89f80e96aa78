//! Why a job cannot resume from what was found, in words from which the user knows what to do.

use std::fmt;

use serde::{Deserialize, Serialize};
use skt_host::units::{self, counted};

use super::alike::Difference;
use super::group::PlacementError;
use skt_store::store::CLEANERS;

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
    /// What is damaged there, as the end of a sentence.
    pub what: String,
}

impl Damage {
    /// An image that is not known to be damaged, but could not be read.
    pub(crate) fn unread(rank: usize, why: &str) -> Self {
        Self { rank, what: format!("cannot read its image ({why})") }
    }
}

/// Why the job cannot resume from what was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the messages describe the fields")]
pub enum Refusal {
    /// A group has lost more ranks than it has parities.
    Unrecoverable {
        epoch: u64,
        lost: Vec<LostGroup>,
        /// The lost ranks whose segments are present, but with an incomplete copy: with method
        /// `single` a death has interrupted the update of the only one.
        incomplete: Vec<usize>,
        parities: usize,
    },
    /// Too much of one stripe is damaged: it differs from what was written. With method `abft`,
    /// images have rotted or cannot be read, in too many ranks of a group.
    Damaged {
        epoch: u64,
        /// The level whose images are damaged, as users know it; `None` for memory.
        level: Option<String>,
        damage: Vec<Damage>,
        lost: Vec<usize>,
        parities: usize,
    },
    /// The application cannot use the surviving data (method `abft`).
    OfNoUse { why: String },
    /// Too few processes are left, and none can take over these ranks.
    CannotContinue { lost: Vec<usize> },
    /// With `--resume require`, there is nothing to resume.
    NothingFound {
        /// How many segments of the run were found, all without a checkpoint.
        bare: usize,
        /// How many images of the run were found, of no whole checkpoint.
        images: usize,
    },
    /// The checkpoint that a user has chosen cannot be resumed from.
    NotChoosable {
        number: u64,
        why: String,
        /// The numbers of those that can.
        found: Vec<u64>,
    },
    /// Processes were started with different settings.
    Disagree(Difference),
    /// Segments of this run were made with other settings.
    OtherShape { process: usize, rank: usize, differences: String },
    /// Another job holds the run.
    Held {
        process: usize,
        why: String,
        /// Whether that job is ending, on all nodes where it holds the run.
        passes: bool,
    },
    /// A segment is no longer what it was when all decided.
    Changed { process: usize, rank: usize },
    /// A level has no room for its images.
    NoRoom {
        process: usize,
        host: String,
        level: String,
        images: usize,
        need_bytes: u64,
        free_bytes: u64,
    },
    /// A level fails at the start, and without it there is nothing to resume from.
    LevelFails { level: String, failure: String, why: String },
    /// This start has chosen otherwise than the start whose data it would resume from.
    OtherChoice { why: String },
    /// No groups can be formed.
    Placement(String),
}

/// How the user gives options to the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Surface {
    /// By flags of skt-hpl.
    CommandLine,
    /// By the options of the library that a program calls.
    Library,
}

impl Surface {
    fn resume(self, value: &str) -> String {
        match self {
            Self::CommandLine => format!("--resume {value}"),
            Self::Library => format!("the option resume = \"{value}\""),
        }
    }

    fn leave_out_level(self) -> &'static str {
        match self {
            Self::CommandLine => "leave that --level out",
            Self::Library => "leave it out of the option levels",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(Surface::CommandLine))
    }
}

impl std::error::Error for Refusal {}

impl Refusal {
    /// The reason, and what to do about it with the options of this surface.
    pub fn text(&self, surface: Surface) -> String {
        let afresh = || format!("Start afresh with {}", surface.resume("never"));
        match self {
            Self::Unrecoverable { epoch, incomplete, .. } => {
                format!("{}{}", self.what(), bring_back(*epoch, incomplete, surface))
            }
            Self::Damaged { level, .. } => {
                format!("{}. {}. {}", self.what(), look_for_errors(level.as_deref()), afresh())
            }
            Self::OfNoUse { why } => format!("{why}. {}", afresh()),
            Self::CannotContinue { lost } => format!(
                "ranks {lost:?} are lost, and the others cannot continue without them: the same \
                 command, on all ranks, resumes the run, or starts it if it had not begun"
            ),
            Self::NothingFound { bare, images } => format!(
                "{}, but no checkpoint of this run was found{}",
                surface.resume("require"),
                without(*bare, *images, surface)
            ),
            Self::NotChoosable { number, why, found } => {
                let why = if why.is_empty() { String::new() } else { format!(" ({why})") };
                format!(
                    "checkpoint {number} cannot be resumed: it is not whole on enough ranks{why}; \
                     {} can name one of {found:?}",
                    surface.resume("NUMBER")
                )
            }
            Self::Disagree(Difference { process, name, here, there }) => format!(
                "rank {process} has {name} {here}, rank 0 has {there}: start all ranks with the same"
            ),
            Self::OtherShape { process, rank, differences } => format!(
                "process {process} found a segment of this run (rank {rank}) made with other \
                 settings: {differences}. Restart with the settings of the run, or start afresh \
                 with {}",
                surface.resume("never")
            ),
            Self::Held { process, why, .. } => {
                format!("process {process} cannot take hold of the run: {why}")
            }
            Self::Changed { process, rank } => format!(
                "process {process}: the segment of rank {rank} has changed since it was looked \
                 at, so a process of an earlier start was still at work. Nothing was changed \
                 here; start the same command again when it has ended"
            ),
            Self::NoRoom { process, host, level, images, need_bytes, free_bytes } => format!(
                "level {level} has {} free where process {process} ({host}) writes; {images} \
                 images of each rank there take {} more. Make room, or keep fewer (keep=1)",
                units::bytes(*free_bytes),
                units::bytes(*need_bytes)
            ),
            Self::LevelFails { level, failure, why } => format!(
                "level {level} fails at {failure}; {why}, and what that level has is not known. \
                 Repair it and start the same command again, or {} to do without what it has",
                surface.leave_out_level()
            ),
            Self::OtherChoice { why } | Self::Placement(why) => why.clone(),
        }
    }

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
                let parities = counted(*parities, "parity");
                format!("epoch {epoch} cannot be restored: {lost} with {parities} a group")
            }
            Self::Damaged { epoch, level, damage, lost, parities } => {
                let one = |Damage { rank, what }: &Damage| format!("rank {rank} {what}");
                let damage = damage.iter().map(one).collect::<Vec<_>>().join("; ");
                let from =
                    level.as_ref().map_or(String::new(), |it| format!(" from the images of {it}"));
                let also =
                    if lost.is_empty() { "".into() } else { format!("; ranks {lost:?} are lost") };
                format!(
                    "epoch {epoch} cannot be restored{from}: {damage}{also}; {} a group cannot \
                     rebuild that",
                    counted(*parities, "parity")
                )
            }
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

/// Why no checkpoint is found where `bare` segments without one are, and images of no whole one.
fn without(bare: usize, images: usize, surface: Surface) -> String {
    if bare + images == 0 {
        return format!(
            ". If an earlier start had one, the run has ended with its report, or its segments are \
             gone: {CLEANERS}"
        );
    }
    format!(
        ": what is here ({}, {}) is not the whole of one. If no disk or node is missing, its start \
         ended before any was complete: start with {}",
        counted(bare, "segment"),
        counted(images, "image"),
        surface.resume("auto")
    )
}

fn bring_back(epoch: u64, incomplete: &[usize], surface: Surface) -> String {
    let never = surface.resume("never");
    if incomplete.is_empty() {
        return format!(
            ". Bring the lost nodes back. If what is here is left over from a run that has ended \
             without these nodes, start afresh with {never}"
        );
    }
    format!(
        "; of these, ranks {incomplete:?} are here, but the run died while checkpoint {} was being \
         written over their only copy. Method `single` cannot survive a death within a checkpoint. \
         Start afresh with {never}, and with method `self` or `double`",
        epoch + 1
    )
}

fn look_for_errors(level: Option<&str>) -> String {
    match level {
        None => "Look for memory errors of these ranks' nodes".to_owned(),
        Some(level) => format!("Look for errors of the disks of {level}"),
    }
}

fn describe(lost: &[LostGroup]) -> String {
    let one = |lost: &LostGroup| match lost.group {
        Some(group) => format!("group {group} has lost ranks {:?}", lost.ranks),
        None => format!("all of the group(s) of ranks {:?} is lost", lost.ranks),
    };
    lost.iter().map(one).collect::<Vec<_>>().join(", ")
}
