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
    /// Writes `bytes`, which are within the slot, at offset `at` of it.
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Fills `into` from offset `at` of the slot; an error, too, when the slot ends before.
    fn read_at(&mut self, at: u64, into: &mut [u8]) -> io::Result<()>;

    /// Returns when what was written to the slot survives a power cut; after an error some may not.
    fn sync(&mut self) -> io::Result<()>;

    /// Frees the slot's space and drops its bytes; an error where only whole files can be freed.
    fn discard(&mut self) -> io::Result<()>;

    /// Bytes of the slot.
    fn bytes(&self) -> io::Result<u64>;
}

/// The images of one run on a disk or file system. All operations return the errors of the system.
pub trait Disk: Debug + Send + Sync {
    /// The names of all files.
    fn list(&self) -> io::Result<Vec<FileId>>;

    /// Opens the slot in the file of a generation for writing, and reserves its space. Creates the
    /// file unless another rank has; a file that none of its ranks has created is refused. Its name
    /// survives a power cut after [`Disk::sync_names`].
    fn create(&self, generation: Generation, slot: &Slot) -> io::Result<Box<dyn ImageFile>>;

    /// Opens the slot of `rank`, one of its ranks, in an existing file for reading;
    /// [`io::ErrorKind::NotFound`] when there is no such file.
    fn open(&self, file: FileId, rank: usize) -> io::Result<Box<dyn ImageFile>>;

    /// Removes a file with all its slots, if it exists.
    fn remove(&self, file: FileId) -> io::Result<()>;

    /// Returns when all created and removed names survive a power cut.
    fn sync_names(&self) -> io::Result<()>;

    /// Free bytes of the file system.
    fn free_bytes(&self) -> io::Result<u64>;
}
