use std::io;

use super::super::error::{CheckpointError, Result};
use super::Level;
use super::disk::{Disk, FileId, Generation, ImageFile, Slot};

/// A disk that could not be opened: every operation fails with that error.
#[derive(Debug)]
pub(crate) struct Unopened(pub io::Error);

impl Unopened {
    fn fail<T>(&self) -> io::Result<T> {
        Err(io::Error::new(self.0.kind(), self.0.to_string()))
    }
}

impl Disk for Unopened {
    fn list(&self) -> io::Result<Vec<FileId>> {
        self.fail()
    }

    fn create(&self, _: Generation, _: &Slot) -> io::Result<Box<dyn ImageFile>> {
        self.fail()
    }

    fn open(&self, _: FileId, _: usize) -> io::Result<Box<dyn ImageFile>> {
        self.fail()
    }

    fn remove(&self, _: FileId) -> io::Result<()> {
        self.fail()
    }

    fn sync_names(&self) -> io::Result<()> {
        self.fail()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.fail()
    }
}

pub(in super::super) fn level_error(
    what: &'static str,
    level: &Level,
) -> impl FnOnce(io::Error) -> CheckpointError {
    let level = level.name.clone();
    move |source| CheckpointError::Level { what, level, source }
}

/// Removes these files of a level, with a call of `before` before each.
pub(in super::super) fn remove_images(
    level: &Level,
    files: &[FileId],
    before: &dyn Fn() -> skt_comm::Result<()>,
) -> Result<()> {
    let failed = || level_error("removing images", level);
    for &file in files {
        before()?;
        level.disk.remove(file).map_err(failed())?;
    }
    if files.is_empty() { Ok(()) } else { level.disk.sync_names().map_err(failed()) }
}
