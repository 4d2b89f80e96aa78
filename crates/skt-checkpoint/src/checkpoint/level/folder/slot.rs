//! A slot of an open file.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, PosixFadviseAdvice, fallocate, posix_fadvise, posix_fallocate};

use super::super::disk::ImageFile;
use super::super::ranks::SpacedRanks;
use super::at;

/// Bytes that are written to a file before they are sent to the disk and leave the page
/// cache: an image is as large as the matrix, and memory is full of that.
const FLUSH_BYTES: u64 = 256 << 20;

/// An open slot.
pub struct OpenSlot {
    file: File,
    path: PathBuf,
    /// Of the file.
    bytes: Range<u64>,
    /// Of the file: written, and not sent to the disk yet.
    flushed: Range<u64>,
}

impl OpenSlot {
    /// That of `rank`, which is one of `ranks`, in a file with slots of `slot_bytes`.
    pub fn new(
        file: File,
        path: PathBuf,
        ranks: SpacedRanks,
        rank: usize,
        slot_bytes: u64,
    ) -> Self {
        let start = ranks.place_of(rank).expect("a rank of the file") as u64 * slot_bytes;
        Self { file, path, bytes: start..start + slot_bytes, flushed: 0..0 }
    }

    /// Makes the file `all_bytes` long, and reserves the room of the slot where the file system
    /// can.
    pub fn reserve(&self, all_bytes: u64) -> io::Result<()> {
        self.file.set_len(all_bytes).map_err(at(&self.path))?;
        let (start, len) = self.offsets()?;
        match posix_fallocate(&self.file, start, len) {
            // What a write does not get is an error then.
            Ok(()) | Err(Errno::EOPNOTSUPP | Errno::EINVAL) => Ok(()),
            Err(error) => Err(at(&self.path)(error.into())),
        }
    }

    /// Where the slot begins, and its bytes, as the system counts them.
    fn offsets(&self) -> io::Result<(i64, i64)> {
        let offset = |bytes: u64| i64::try_from(bytes).map_err(io::Error::other);
        Ok((offset(self.bytes.start)?, offset(self.bytes.end - self.bytes.start)?))
    }

    /// Where `len` bytes of the slot are in the file.
    fn place(&self, place: u64, len: usize) -> io::Result<u64> {
        let start = self.bytes.start + place;
        match start + len as u64 <= self.bytes.end {
            true => Ok(start),
            false => Err(at(&self.path)(io::ErrorKind::UnexpectedEof.into())),
        }
    }
}

impl ImageFile for OpenSlot {
    fn write_at(&mut self, place: u64, bytes: &[u8]) -> io::Result<()> {
        let place = self.place(place, bytes.len()).expect("within the slot");
        self.file.write_all_at(bytes, place).map_err(at(&self.path))?;
        let end = place + bytes.len() as u64;
        if self.flushed.end != place {
            self.flushed = place..place;
        }
        self.flushed.end = end;
        if self.flushed.end - self.flushed.start >= FLUSH_BYTES {
            self.sync()?;
            let (start, len) = (self.flushed.start as i64, FLUSH_BYTES as i64);
            // Advice: what is not taken costs memory, no more.
            let _ = posix_fadvise(&self.file, start, len, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
            self.flushed = end..end;
        }
        Ok(())
    }

    fn read_at(&mut self, place: u64, into: &mut [u8]) -> io::Result<()> {
        let place = self.place(place, into.len())?;
        self.file.read_exact_at(into, place).map_err(at(&self.path))
    }

    fn sync(&mut self) -> io::Result<()> {
        // With the size, by which slots are found.
        self.file.sync_all().map_err(at(&self.path))
    }

    fn discard(&mut self) -> io::Result<()> {
        let hole = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        let (start, len) = self.offsets()?;
        let punched = fallocate(&self.file, hole, start, len);
        punched.map_err(|error| at(&self.path)(error.into()))
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.bytes.end - self.bytes.start)
    }
}
