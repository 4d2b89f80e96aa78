use std::fmt::{self, Debug};
use std::io;
use std::sync::Arc;

use super::disk::{Disk, FileId, Generation, ImageFile, Slot};

/// Called with the bytes of a write.
pub(crate) type OnWrite = Arc<dyn Fn(usize) + Send + Sync>;

pub(crate) struct Observed<T: ?Sized>(pub Box<T>, pub OnWrite);

impl<T: ?Sized> Debug for Observed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observed")
    }
}

impl ImageFile for Observed<dyn ImageFile> {
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        (self.1)(bytes.len());
        self.0.write_at(at, bytes)
    }

    fn read_at(&mut self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.0.read_at(at, into)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync()
    }

    fn discard(&mut self) -> io::Result<()> {
        self.0.discard()
    }

    fn bytes(&self) -> io::Result<u64> {
        self.0.bytes()
    }
}

impl<D: Disk> Disk for Observed<D> {
    fn list(&self) -> io::Result<Vec<FileId>> {
        self.0.list()
    }

    fn create(&self, generation: Generation, slot: &Slot) -> io::Result<Box<dyn ImageFile>> {
        Ok(Box::new(Observed(self.0.create(generation, slot)?, self.1.clone())))
    }

    fn open(&self, file: FileId, rank: usize) -> io::Result<Box<dyn ImageFile>> {
        self.0.open(file, rank)
    }

    fn remove(&self, file: FileId) -> io::Result<()> {
        self.0.remove(file)
    }

    fn sync_names(&self) -> io::Result<()> {
        self.0.sync_names()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.0.free_bytes()
    }
}
