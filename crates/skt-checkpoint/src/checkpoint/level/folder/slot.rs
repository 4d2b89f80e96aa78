//! Writes to a slot of an open file bypass the page cache (`O_DIRECT`) if the file system allows
//! it: the cache would copy everything, while memory is full of the matrix. What is not a whole
//! block, such as the end of a part of the body, goes through the cache.

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

/// Bytes written before the page cache is flushed: an image is as large as the matrix.
const FLUSH_BYTES: u64 = 256 << 20;
/// The alignment that `O_DIRECT` requires of addresses, file offsets and lengths: the largest block
/// of a disk, whatever the page size of the system is.
const BLOCK_BYTES: usize = 4096;

pub(crate) struct OpenSlot {
    file: File,
    /// The file again, opened to bypass the page cache.
    direct: Option<File>,
    path: PathBuf,
    /// The slot's bytes within the file.
    bytes: Range<u64>,
    /// Bytes of the file that are written and not flushed to the disk yet.
    flushed: Range<u64>,
}

impl OpenSlot {
    /// The slot of `rank`, which is one of `ranks`, in a file with slots of `slot_bytes`.
    pub(crate) fn new(
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

    /// Makes the file `all_bytes` long, and reserves the space of the slot if the file system can.
    pub(crate) fn reserve(&mut self, all_bytes: u64) -> io::Result<()> {
        // Names the open file, even if its path now leads to another one.
        let itself = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let mut options = OpenOptions::new();
        options.write(true).custom_flags(OFlag::O_DIRECT.bits());
        self.direct = options.open(itself).ok();
        self.file.set_len(all_bytes).map_err(at(&self.path))?;
        let (start, len) = self.offsets()?;
        // `posix_fallocate` would write to each block if the file system cannot reserve.
        match fallocate(&self.file, FallocateFlags::empty(), start, len) {
            // If it cannot reserve, a write that gets no space fails.
            Ok(()) | Err(Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EINVAL) => Ok(()),
            Err(error) => Err(at(&self.path)(error.into())),
        }
    }

    /// The first byte of the slot and its bytes, as the system counts them.
    fn offsets(&self) -> io::Result<(i64, i64)> {
        let offset = |bytes: u64| i64::try_from(bytes).map_err(io::Error::other);
        Ok((offset(self.bytes.start)?, offset(self.bytes.end - self.bytes.start)?))
    }

    /// The offset within the file of `len` bytes at `place` of the slot.
    fn place(&self, place: u64, len: usize) -> io::Result<u64> {
        let start = self.bytes.start + place;
        if start + len as u64 <= self.bytes.end {
            Ok(start)
        } else {
            Err(at(&self.path)(io::ErrorKind::UnexpectedEof.into()))
        }
    }

    /// The whole blocks at the start of `bytes`. Returns their bytes; 0 if that is not possible.
    fn write_direct(&mut self, place: u64, bytes: &[u8]) -> io::Result<usize> {
        let Some(direct) = &self.direct else { return Ok(0) };
        let lies_well = (bytes.as_ptr().addr() | place as usize).is_multiple_of(BLOCK_BYTES);
        let whole = if lies_well { bytes.len() / BLOCK_BYTES * BLOCK_BYTES } else { 0 };
        match direct.write_all_at(&bytes[..whole], place) {
            Ok(()) => Ok(whole),
            // A file system may refuse it only now, or require larger blocks.
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
            // Only advice: if the system ignores it, that costs memory, no more.
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
        // This also syncs the size, which determines the slots.
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
