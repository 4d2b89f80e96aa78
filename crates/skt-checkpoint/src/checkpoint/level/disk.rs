//! The interface of levels to a file system.

use std::fmt::Debug;
use std::io;

use serde::{Deserialize, Serialize};

use super::super::record::StartId;
use super::ranks::SpacedRanks;

/// The images of one epoch of one start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Generation {
    /// The start that wrote them: the lineage of their records.
    pub start: StartId,
    /// The epoch that they hold.
    pub epoch: u64,
}

/// The name of an image within a level of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ImageId {
    /// The start that wrote it, and its epoch.
    pub generation: Generation,
    /// The logical rank whose data it has.
    pub rank: usize,
}

/// The name of a file within a level of a run. It has the images of some ranks in slots of equal
/// size, in the order of the ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId {
    /// The start that wrote it, and its epoch.
    pub generation: Generation,
    /// The logical ranks that have a slot in it.
    pub ranks: SpacedRanks,
}

impl FileId {
    /// The images that it has slots for.
    pub fn images(self) -> impl Iterator<Item = ImageId> {
        let generation = self.generation;
        self.ranks.iter().map(move |rank| ImageId { generation, rank })
    }

    /// Whether it has a slot for image `id`.
    pub fn has(&self, id: ImageId) -> bool {
        self.generation == id.generation && self.ranks.contains(id.rank)
    }
}

/// The position of a rank's images: its slot in the files of a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// The rank.
    pub rank: usize,
    /// All ranks that share the file, this one among them.
    pub ranks: SpacedRanks,
    /// Bytes of a slot, the same for all ranks of the file.
    pub bytes: u64,
}

/// A slot of an open file. Bytes that were never written are zeros. All operations return the
/// errors of the system.
pub trait ImageFile: Send {
    /// Writes `bytes` at offset `at` of the slot.
    ///
    /// # Panics
    /// When the bytes are not within the slot.
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Fills `into` from offset `at` of the slot.
    ///
    /// # Errors
    /// Any error of the system; also when the slot ends before.
    fn read_at(&mut self, at: u64, into: &mut [u8]) -> io::Result<()>;

    /// Returns when everything written to the slot survives a power cut.
    ///
    /// # Errors
    /// Any error of the system: then some of what was written may be lost.
    fn sync(&mut self) -> io::Result<()>;

    /// Frees the space of the slot, and drops what is in it.
    ///
    /// # Errors
    /// Any error of the system; also when it can free whole files only.
    fn discard(&mut self) -> io::Result<()>;

    /// Bytes of the slot.
    fn bytes(&self) -> io::Result<u64>;
}

/// The images of one run on a disk or file system. All operations return the errors of the system.
pub trait Disk: Debug + Send + Sync {
    /// The names of all files.
    fn list(&self) -> io::Result<Vec<FileId>>;

    /// Opens the slot in the file of a generation for writing, and reserves its space. Creates the
    /// file unless another rank has. Its name survives a power cut after [`Disk::sync_names`].
    ///
    /// # Errors
    /// When there is not enough space, or the file that exists is not one that its ranks have
    /// created.
    fn create(&self, generation: Generation, slot: &Slot) -> io::Result<Box<dyn ImageFile>>;

    /// Opens the slot of `rank` in an existing file for reading.
    ///
    /// # Errors
    /// Any error of the system; [`io::ErrorKind::NotFound`] when there is no such file.
    ///
    /// # Panics
    /// When the rank has no slot in it.
    fn open(&self, file: FileId, rank: usize) -> io::Result<Box<dyn ImageFile>>;

    /// Removes a file with all its slots, if it exists.
    fn remove(&self, file: FileId) -> io::Result<()>;

    /// Returns when all created and removed names survive a power cut.
    fn sync_names(&self) -> io::Result<()>;

    /// Free bytes of the file system.
    fn free_bytes(&self) -> io::Result<u64>;
}
