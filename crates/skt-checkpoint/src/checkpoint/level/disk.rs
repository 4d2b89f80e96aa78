//! What levels ask of a file system.

use std::fmt::Debug;
use std::io;

use serde::{Deserialize, Serialize};

use super::super::record::StartId;
use super::ranks::SpacedRanks;

/// The images of one epoch of one start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Generation {
    /// The start that wrote it: the lineage of its records.
    pub start: StartId,
    /// Its epoch.
    pub epoch: u64,
}

/// Name of an image within a level of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ImageId {
    /// The start that wrote it, and the epoch that it is of.
    pub generation: Generation,
    /// The logical rank whose data it has.
    pub rank: usize,
}

/// Name of a file within a level of a run: the images of some ranks, in slots of one size, in
/// the order of the ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId {
    /// The start that wrote it, and the epoch that it is of.
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

    /// Whether it has a slot for this one.
    pub fn has(&self, id: ImageId) -> bool {
        self.generation == id.generation && self.ranks.contains(id.rank)
    }
}

/// Where a rank writes its images: its slot in the files of a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// The rank.
    pub rank: usize,
    /// All that share a file with it.
    pub ranks: SpacedRanks,
    /// Bytes of a slot, the same for all of these.
    pub bytes: u64,
}

/// A slot of an open file. Bytes that were never written are zeros.
pub trait ImageFile: Send {
    /// Writes bytes at a place of the slot.
    ///
    /// # Errors
    /// As the system has it.
    ///
    /// # Panics
    /// When they do not lie within the slot.
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Reads so many bytes.
    ///
    /// # Errors
    /// As the system has it; when the slot ends before.
    fn read_at(&mut self, at: u64, into: &mut [u8]) -> io::Result<()>;

    /// Returns when all that was written to the slot outlives a power cut.
    ///
    /// # Errors
    /// As the system has it: some of what was written may be lost then.
    fn sync(&mut self) -> io::Result<()>;

    /// Gives the room of the slot back, and what is in it.
    ///
    /// # Errors
    /// As the system has it; where it can do this with whole files alone.
    fn discard(&mut self) -> io::Result<()>;

    /// Bytes of the slot.
    ///
    /// # Errors
    /// As the system has it.
    fn bytes(&self) -> io::Result<u64>;
}

/// The images of one run on a disk or file system.
pub trait Disk: Debug + Send + Sync {
    /// All files.
    ///
    /// # Errors
    /// As the system has it.
    fn list(&self) -> io::Result<Vec<FileId>>;

    /// Opens the file of a generation that `slot` is in, to write the slot, whose room is
    /// reserved. Makes the file where no other rank has. Its name is safe after
    /// [`Disk::sync_names`].
    ///
    /// # Errors
    /// When there is no such room, or a file of that name is not as the ranks have it.
    fn create(&self, generation: Generation, slot: &Slot) -> io::Result<Box<dyn ImageFile>>;

    /// Opens the slot of `rank` in an existing file, to be read.
    ///
    /// # Errors
    /// As the system has it.
    ///
    /// # Panics
    /// When the rank has no slot in it.
    fn open(&self, file: FileId, rank: usize) -> io::Result<Box<dyn ImageFile>>;

    /// Removes a file with all its slots; one that is gone already is no error.
    ///
    /// # Errors
    /// As the system has it.
    fn remove(&self, file: FileId) -> io::Result<()>;

    /// Returns when all names, made and removed, outlive a power cut.
    ///
    /// # Errors
    /// As the system has it.
    fn sync_names(&self) -> io::Result<()>;

    /// Bytes that are free.
    ///
    /// # Errors
    /// As the system has it.
    fn free_bytes(&self) -> io::Result<u64>;
}
