//! What levels ask of a file system.

use std::fmt::Debug;
use std::io;

use serde::{Deserialize, Serialize};

use super::choose::Generation;

/// Name of an image within a level of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ImageId {
    /// The start that wrote it, and the epoch that it is of.
    pub generation: Generation,
    /// The logical rank whose data it has.
    pub rank: usize,
}

/// An open image. Bytes that were never written are zeros.
pub trait ImageFile: Send {
    /// Writes bytes at a place within the size that it was created with.
    ///
    /// # Errors
    /// As the system has it.
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Reads so many bytes.
    ///
    /// # Errors
    /// As the system has it; when it ends before.
    fn read_at(&mut self, at: u64, into: &mut [u8]) -> io::Result<()>;

    /// Returns when all that was written outlives a power cut.
    ///
    /// # Errors
    /// As the system has it: some of what was written may be lost then.
    fn sync(&mut self) -> io::Result<()>;

    /// Its size.
    ///
    /// # Errors
    /// As the system has it.
    fn bytes(&self) -> io::Result<u64>;
}

/// The images of one run on a disk or file system.
pub trait Disk: Debug + Send + Sync {
    /// All of them, sealed or not.
    ///
    /// # Errors
    /// As the system has it.
    fn list(&self) -> io::Result<Vec<ImageId>>;

    /// Makes a file of so many bytes, its room reserved. Its name is safe after
    /// [`Disk::sync_names`].
    ///
    /// # Errors
    /// When there is no such room, or an image of that name exists.
    fn create(&self, id: ImageId, bytes: u64) -> io::Result<Box<dyn ImageFile>>;

    /// Opens an existing one, to be read.
    ///
    /// # Errors
    /// As the system has it.
    fn open(&self, id: ImageId) -> io::Result<Box<dyn ImageFile>>;

    /// Removes one; one that is gone already is no error.
    ///
    /// # Errors
    /// As the system has it.
    fn remove(&self, id: ImageId) -> io::Result<()>;

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
