//! A slot of an open file.
//!
//! What is written goes past the page cache (`O_DIRECT`), where the file system takes that: it
//! would be copied there, and memory is full of the matrix. What is no whole block, such as the
//! end of a part of the body, goes through the cache.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, OFlag, PosixFadviseAdvice, fallocate, posix_fadvise};

use super::super::disk::ImageFile;
use super::super::ranks::SpacedRanks;
use super::at;

/// Bytes that are written to the page cache before they are sent to the disk and leave it: an
/// image is as large as the matrix.
const FLUSH_BYTES: u64 = 256 << 20;
/// What `O_DIRECT` asks of places in memory and in the file, and of lengths: the largest block
/// of a disk, whatever the pages of the system are.
const BLOCK_BYTES: usize = 4096;

/// An open slot.
pub struct OpenSlot {
    file: File,
    /// The same file, past the page cache.
    direct: Option<File>,
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
        let bytes = start..start + slot_bytes;
        Self { file, direct: None, path, bytes, flushed: 0..0 }
    }

    /// To be written: makes the file `all_bytes` long, and reserves the room of the slot where the
    /// file system can.
    pub fn reserve(&mut self, all_bytes: u64) -> io::Result<()> {
        // The file that is open, whatever has its name by now.
        let itself = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let mut options = OpenOptions::new();
        options.write(true).custom_flags(OFlag::O_DIRECT.bits());
        self.direct = options.open(itself).ok();
        self.file.set_len(all_bytes).map_err(at(&self.path))?;
        let (start, len) = self.offsets()?;
        // Not by `posix_fallocate`, which writes to each block where the file system cannot.
        match fallocate(&self.file, FallocateFlags::empty(), start, len) {
            // What a write does not get is an error then.
            Ok(()) | Err(Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EINVAL) => Ok(()),
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

    /// Writes the whole blocks that `bytes` begin with past the page cache. Returns how many
    /// bytes they are; 0 where that is not possible.
    fn write_direct(&mut self, place: u64, bytes: &[u8]) -> io::Result<usize> {
        let Some(direct) = &self.direct else { return Ok(0) };
        let lies_well = (bytes.as_ptr().addr() | place as usize).is_multiple_of(BLOCK_BYTES);
        let whole = if lies_well { bytes.len() / BLOCK_BYTES * BLOCK_BYTES } else { 0 };
        match direct.write_all_at(&bytes[..whole], place) {
            Ok(()) => Ok(whole),
            // A file system may refuse it here at first, or ask for larger blocks.
            Err(error)
                if matches!(
                    error.raw_os_error().map(Errno::from_raw),
                    Some(Errno::EINVAL | Errno::EOPNOTSUPP)
                ) =>
            {
                self.direct = None;
                Ok(0)
            }
            Err(error) => Err(at(&self.path)(error)),
        }
    }

    /// Writes through the page cache.
    fn write_cached(&mut self, place: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, place).map_err(at(&self.path))?;
        let end = place + bytes.len() as u64;
        if self.flushed.end != place {
            self.flushed = place..place;
        }
        self.flushed.end = end;
        if self.flushed.end - self.flushed.start >= FLUSH_BYTES {
            self.file.sync_all().map_err(at(&self.path))?;
            let (start, len) = (self.flushed.start as i64, FLUSH_BYTES as i64);
            // Advice: what is not taken costs memory, no more.
            let _ = posix_fadvise(&self.file, start, len, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
            self.flushed = end..end;
        }
        Ok(())
    }
}

impl ImageFile for OpenSlot {
    fn write_at(&mut self, place: u64, bytes: &[u8]) -> io::Result<()> {
        let place = self.place(place, bytes.len()).expect("within the slot");
        let done = self.write_direct(place, bytes)?;
        match &bytes[done..] {
            [] => Ok(()),
            rest => self.write_cached(place + done as u64, rest),
        }
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
