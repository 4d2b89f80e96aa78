//! Levels: what outlives the memory of nodes. Beside the segments of a run, images of
//! them are kept in files, on the disks of the nodes or on a file system that all see.
//!
//! An image has what a segment holds of one stamped epoch, so images with their parities
//! are to a restart what segments are: the same rules say which count, the same checksums
//! find what has rotted, and the same rebuilding replaces what is lost. Of method `abft`
//! the images of a process row make up for each other, and the application rebuilds what is
//! lost. docs/levels.md has the order of writes, and says why each death is survived.

pub(super) mod choose;
mod disk;
mod due;
pub(super) mod failed;
pub mod folder;
mod format;
mod hand_over;
mod helper;
pub(super) mod look;
mod ranks;
pub(super) mod restore;
pub(super) mod room;
mod shelf;
mod source;
mod writing;

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use skt_terms::named;

pub use disk::{Disk, FileId, Generation, ImageFile, ImageId, Slot};
pub use due::{ImageCost, ImagesEvery, IntervalOf, StateSeconds};
pub use failed::Unopened;
pub use format::IMAGE_PAGE_BYTES;
pub(super) use helper::{Free, Helper};
pub use ranks::SpacedRanks;
pub use shelf::LevelReport;
pub(super) use shelf::Shelves;
pub use source::{FoundImage, Load, Rotten, Source};

/// Most levels of a run: one bit each in the word that says which are due.
pub const MOST_LEVELS: usize = 8;

/// Who sees the images of a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reach {
    /// The processes of the node that has written them.
    Local,
    /// All processes of the job.
    Global,
}

named!(Reach { Local: "local", Global: "global" });

/// What a rank does that is to write over what an image is being written from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhenBusy {
    /// It waits for the image.
    Wait,
    /// It gives the image up.
    Skip,
}

named!(WhenBusy { Wait: "wait", Skip: "skip" });

/// A level of images.
#[derive(Debug, Clone)]
pub struct Level {
    /// As users know it.
    pub name: String,
    /// Where the images of the run are.
    pub disk: Arc<dyn Disk>,
    /// Who sees them.
    pub reach: Reach,
    /// How often they are written.
    pub every: ImagesEvery,
    /// Generations to keep.
    pub keep: usize,
    /// What to do when an image is not done in time.
    pub when_busy: WhenBusy,
    /// A thread that writes images writes the body of each no faster, while nobody waits for
    /// it.
    pub max_bytes_per_second: Option<f64>,
}

impl Level {
    /// Whether it is for process `process` of `size` to look after the images of `rank`
    /// that it sees.
    pub(super) fn is_looked_after(&self, rank: usize, process: usize, size: usize) -> bool {
        self.reach == Reach::Local || rank % size == process
    }
}

/// Who writes images.
#[derive(Clone)]
pub enum Writer {
    /// A thread of its own for each rank, while the application computes. It runs this first,
    /// for instance to be pinned.
    Thread(Arc<dyn Fn() + Send + Sync>),
    /// The rank itself, one operation at each call of its checkpointer, and what is left
    /// of it when it has to be done.
    Caller,
}

impl Writer {
    /// A thread that runs where the rank does.
    pub fn thread() -> Self {
        Self::Thread(Arc::new(|| ()))
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Thread(_) => "Thread",
            Self::Caller => "Caller",
        })
    }
}
