//! A segment that is mapped into this process.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use nix::fcntl::Flock;

use super::header::{Header, PAGE_BYTES};
use super::host::Host;
use super::{Result, SegmentName, StoreError};
use skt_comm::pages;

/// Memory is reserved in pieces of this many bytes, after a check of the free memory before each:
/// several ranks of a node may be reserving at once.
pub(super) const RESERVE_BYTES: usize = 64 << 20;

/// The attachment to a segment, by which exactly the held segment is freed: its name may come to
/// lead to another one. No one removes the path of a locked file (except by force), so the path
/// stays valid until the holder removes it.
#[derive(Debug)]
pub(super) enum Hold {
    /// A System V segment, by its id.
    SysV { shmid: i32 },
    /// A mapped file, locked for this process alone while it is open.
    File { path: PathBuf, file: Flock<File> },
}

/// Frees a System V segment; false if another process was faster.
pub(super) fn remove_id(shmid: i32) -> Result<bool> {
    // SAFETY: a system call that touches no memory of this process.
    if unsafe { libc::shmctl(shmid, libc::IPC_RMID, std::ptr::null_mut()) } == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error().raw_os_error() {
        Some(libc::EINVAL | libc::EIDRM) => Ok(false),
        _ => Err(StoreError::last(format!("shmctl(shmid {shmid}, IPC_RMID)"))),
    }
}

/// Whether `path` leads to this very file.
pub(super) fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(here), Ok(there)) = (file.metadata(), fs::symlink_metadata(path)) else { return false };
    (here.dev(), here.ino()) == (there.dev(), there.ino())
}

/// Removes the path of a locked file; false if it leads elsewhere.
pub(super) fn unlink_locked(file: &Flock<File>, path: &Path) -> Result<bool> {
    if is_at(file, path) { unlink(path) } else { Ok(false) }
}

/// Removes a path, whatever it leads to; false if another process was faster.
pub(super) fn unlink(path: &Path) -> Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(StoreError::system(format!("removing {}", path.display()), error)),
    }
}

/// A mapping of a segment, which nothing else unmaps. Dropping it detaches the segment.
#[derive(Debug)]
pub(super) struct Mapping {
    pub(super) base: NonNull<u8>,
    pub(super) bytes: usize,
    /// Whether it is of a System V segment, and not of a file.
    pub(super) is_sysv: bool,
}

// SAFETY: the mapping is reached through this value alone, like a `Vec`'s memory.
unsafe impl Send for Mapping {}
// SAFETY: shared access only reads.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Makes the system map the pages from `start` on as `advice` requests, or returns its error.
    fn advise(&self, start: usize, bytes: usize, advice: i32) -> io::Result<()> {
        assert!(start + bytes <= self.bytes);
        // SAFETY: our own mapping, checked above; the advice of this file changes no byte.
        let rc = unsafe { libc::madvise(self.base.add(start).as_ptr().cast(), bytes, advice) };
        if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let base = self.base.as_ptr().cast::<libc::c_void>();
        // SAFETY: the mapping made by the store, unmapped once.
        unsafe { if self.is_sysv { libc::shmdt(base) } else { libc::munmap(base, self.bytes) } };
    }
}

/// Bytes that outlive the process, zero when created, on page boundaries.
///
/// Dropping a segment detaches it. No other process of this program is attached until then.
#[derive(Debug)]
pub struct Segment {
    pub(super) name: SegmentName,
    /// Readable and writable.
    pub(super) mapping: Mapping,
    /// Bytes after the header page, within the mapping.
    pub(super) data_bytes: usize,
    pub(super) page_bytes: usize,
    pub(super) note: Option<String>,
    /// Released after the mapping.
    pub(super) hold: Hold,
}

impl Segment {
    /// The segment's name.
    pub fn name(&self) -> &SegmentName {
        &self.name
    }

    /// Size of its pages in bytes, as far as it is known.
    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// A note for the user: that huge pages were asked for and refused, and what to do.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// The data as bytes.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: data_bytes are mapped after the header page.
        unsafe { std::slice::from_raw_parts(self.data().as_ptr(), self.data_bytes) }
    }

    /// The data as bytes, for writing.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`, borrowed mutably; no other process is attached.
        unsafe { std::slice::from_raw_parts_mut(self.data().as_ptr(), self.data_bytes) }
    }

    fn data(&self) -> NonNull<u8> {
        debug_assert!(PAGE_BYTES + self.data_bytes <= self.mapping.bytes);
        // SAFETY: the header page is within the mapping.
        unsafe { self.mapping.base.add(PAGE_BYTES) }
    }

    /// Maps all pages into this process at once, in a third of the time that mapping each page at
    /// its first use takes; for segments that were attached. It changes no byte. More threads do
    /// not make it faster. Calls `mapped` after each GiB with the number of those done.
    pub fn map_pages(&self, mut mapped: impl FnMut(usize)) {
        const PIECE_BYTES: usize = 1 << 30;
        for (done, start) in (1..).zip((0..self.mapping.bytes).step_by(PIECE_BYTES)) {
            // If the system cannot do it, the pages are mapped when they are used.
            let bytes = PIECE_BYTES.min(self.mapping.bytes - start);
            let _ = self.mapping.advise(start, bytes, libc::MADV_POPULATE_WRITE);
            mapped(done);
        }
    }

    /// Frees this segment, and never another one that has taken its name. Returns false if it is
    /// gone already. The mapping stays until the segment is dropped.
    pub fn remove(&self) -> Result<bool> {
        match &self.hold {
            Hold::SysV { shmid } => remove_id(*shmid),
            Hold::File { path, file } => unlink_locked(file, path),
        }
    }
}

impl Deref for Segment {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl DerefMut for Segment {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.as_mut_slice()
    }
}

/// The effect of touching the pages of a new segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Touch {
    /// The pages are taken from free memory.
    TakesMemory,
    /// The pages exist already, and are only mapped.
    Maps,
    /// There is nothing to do: space on a disk has been reserved.
    Nothing,
}

/// A segment whose memory is being reserved. Dropping it removes the segment.
#[derive(Debug)]
pub struct NewSegment {
    /// Present until `finish` takes it.
    segment: Option<Segment>,
    header: Header,
    /// Pieces of [`RESERVE_BYTES`] that have been touched.
    touched: Vec<AtomicBool>,
    touch: Touch,
}

impl NewSegment {
    /// Writes the header into a new segment, before anything else.
    pub(super) fn new(segment: Segment, header: Header, touch: Touch) -> Self {
        let pieces = segment.mapping.bytes.div_ceil(RESERVE_BYTES);
        let touched = (0..pieces).map(|_| AtomicBool::new(false)).collect();
        let new = Self { segment: Some(segment), header, touched, touch };
        new.write_header();
        new
    }

    /// The segment's name.
    pub fn name(&self) -> &SegmentName {
        self.segment().name()
    }

    fn segment(&self) -> &Segment {
        self.segment.as_ref().expect("there until it is finished")
    }

    /// Asks for huge pages, which only costs speed if it is refused.
    pub(super) fn advise_huge_pages(&self) {
        let mapping = &self.segment().mapping;
        let _ = mapping.advise(0, mapping.bytes, libc::MADV_HUGEPAGE);
    }

    fn write_header(&self) {
        let page = self.segment().mapping.base.cast::<Header>();
        // SAFETY: the first page is mapped, aligned, and no slice covers it.
        unsafe { page.write_volatile(self.header) };
    }

    /// Touches part `part` of `parts`, so that its pages exist. Threads that will work on the parts
    /// may call this at the same time, each for its own part, to have the pages near them.
    /// [`NewSegment::finish`] touches the rest.
    ///
    /// # Errors
    /// [`StoreError::NoMemory`] when the memory runs out.
    ///
    /// # Panics
    /// Unless `part < parts`.
    pub fn touch(&self, part: usize, parts: usize) -> Result<()> {
        assert!(part < parts, "part {part} of {parts}");
        if self.touch == Touch::Nothing {
            return Ok(());
        }
        let pieces = self.touched.len();
        for piece in pieces * part / parts..pieces * (part + 1) / parts {
            if !self.touched[piece].swap(true, Ordering::Relaxed) {
                self.touch_piece(piece)?;
            }
        }
        Ok(())
    }

    fn touch_piece(&self, piece: usize) -> Result<()> {
        let segment = self.segment();
        let start = piece * RESERVE_BYTES;
        let bytes = RESERVE_BYTES.min(segment.mapping.bytes - start);
        if self.touch == Touch::TakesMemory {
            let left = segment.mapping.bytes - start;
            Host::this().check_memory(&segment.name, bytes as u64, left as u64)?;
        }
        if segment.page_bytes == pages::system_page_bytes() {
            // What the system refuses stays on ordinary pages.
            // SAFETY: within our own mapping; no other process has the segment yet.
            unsafe { pages::collapse(segment.mapping.base.add(start), bytes) };
        }
        match segment.mapping.advise(start, bytes, libc::MADV_POPULATE_WRITE) {
            Ok(()) => Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                self.write_zeros(start, bytes);
                Ok(())
            }
            Err(error) => {
                let what = format!("{}: reserving {bytes} bytes", segment.name);
                Err(StoreError::system(what, error))
            }
        }
    }

    /// Writes zeros to each page from `start` on, except into the header, whose page exists: Linux
    /// before 5.14 cannot populate.
    fn write_zeros(&self, start: usize, bytes: usize) {
        let base = self.segment().mapping.base;
        for page in (start..start + bytes).step_by(PAGE_BYTES).skip(usize::from(start == 0)) {
            // SAFETY: within the mapping; only this process has it, and all of it is zero.
            unsafe { base.add(page).write_volatile(0) };
        }
    }

    /// Touches what has not been touched, and returns the complete segment.
    ///
    /// # Errors
    /// [`StoreError::NoMemory`] when the memory runs out; the segment is removed then.
    pub fn finish(mut self) -> Result<Segment> {
        self.touch(0, 1)?;
        fence(Ordering::SeqCst);
        self.header.set_ready();
        self.write_header();
        Ok(self.segment.take().expect("there until it is finished"))
    }
}

impl Drop for NewSegment {
    fn drop(&mut self) {
        if let Some(segment) = &self.segment {
            // Best effort: the earlier error is the one to report.
            let _ = segment.remove();
        }
    }
}
