//! Levels: images of a run's segments in files, on the disks of the nodes or on a file system that
//! all see, which outlive the nodes' memory.
//!
//! An image has the contents of one stamped epoch of a segment. So images with their parities serve
//! a restart as segments do: the same rules select those that count, the same checksums find rot,
//! and the same rebuilding replaces what is lost. With method `abft` the images of a process row
//! have redundancy across ranks, and the application rebuilds what is lost. docs/levels.md has the
//! order of writes, and explains why each death is survived.

pub(super) mod choose;
mod disk;
mod due;
pub(super) mod failed;
pub mod folder;
pub(super) mod format;
mod helper;
mod images;
pub mod owners;
pub(super) mod probe;
mod rank_images;
mod ranks;
pub(super) mod room;
pub mod settings;
mod source;
#[cfg(test)]
pub(crate) mod testing;
mod writing;

use std::fmt;
use std::sync::Arc;

pub use disk::{Disk, FileId, Generation, ImageFile, ImageId, Slot};
pub use due::{CostLimits, ImageCost, ImagesEvery, StateSeconds};
pub(crate) use failed::Unopened;
pub use format::IMAGE_PAGE_BYTES;
pub(super) use format::{ImageLayout, Seal, encode_seal};
pub(super) use helper::Free;
pub(super) use images::Images;
pub use rank_images::LevelReport;
pub use ranks::SpacedRanks;
pub use skt_host::levels::Reach;
pub use source::Load;
pub(crate) use source::{EpochSource, FoundImage, Restorable, Rotten};

/// The largest number of levels of a run: each has one bit in the byte of due levels.
pub(crate) const MAX_LEVELS: usize = 8;

/// A level of images.
#[derive(Debug, Clone)]
pub struct Level {
    /// The name by which users know it.
    pub name: String,
    /// The disk that has the images of the run.
    pub disk: Arc<dyn Disk>,
    /// Which processes see them.
    pub reach: Reach,
    /// How often they are written.
    pub every: ImagesEvery,
    /// The number of generations to keep.
    pub keep: usize,
}

impl Level {
    pub(super) fn settings(&self) -> String {
        // Each process has its own connection to the disk.
        let Self { name, disk: _, reach, every, keep } = self;
        format!("{name}, {reach}, {every:?}, keep={keep}")
    }

    /// Whether process `process` of `size` manages the images of `rank` that it sees.
    pub(super) fn is_managed_by(&self, rank: usize, process: usize, size: usize) -> bool {
        self.reach == Reach::Local || rank % size == process
    }
}

/// Who writes images.
#[derive(Clone)]
pub enum Writer {
    /// A thread for each rank, while the application computes. It calls this function first, for
    /// instance to pin itself.
    Thread(Arc<dyn Fn() + Send + Sync>),
    /// The rank: one operation at each call of its checkpointer, the rest when it has to be done.
    Caller,
}

impl Writer {
    /// A thread without a function to call first: it runs where its rank does.
    pub(crate) fn thread() -> Self {
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
