//! A segment that is mapped into this process.

use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use super::header::{Header, PAGE_BYTES};
use super::hold::Hold;
use super::host::Host;
use super::{Result, SegmentName, StoreError};
use crate::memory::Peer;
use skt_comm::pages;

/// Memory is reserved in pieces of this many bytes, after a check of the free memory before each:
/// several ranks of a node may be reserving at once.
pub(super) const RESERVE_BYTES: usize = 64 << 20;

/// Bytes that outlive the process, zero when created, on page boundaries.
///
/// Dropping a segment detaches it. No other process of this program is attached until then.
#[derive(Debug)]
pub struct Segment {
    pub(super) name: SegmentName,
    /// A readable and writable mapping of `mapped_bytes`, of the kind of `hold`, to which nothing
    /// else refers.
    pub(super) base: NonNull<u8>,
    pub(super) mapped_bytes: usize,
    /// Bytes after the header page, within the mapping.
    pub(super) data_bytes: usize,
    pub(super) page_bytes: usize,
    pub(super) note: Option<String>,
    pub(super) hold: Hold,
}

// SAFETY: the mapping is reached through this value alone, like a `Vec`'s memory.
unsafe impl Send for Segment {}
// SAFETY: shared access only reads.
unsafe impl Sync for Segment {}

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
        debug_assert!(PAGE_BYTES + self.data_bytes <= self.mapped_bytes);
        // SAFETY: the header page is within the mapping.
        unsafe { self.base.add(PAGE_BYTES) }
    }

    /// Maps all pages into this process at once, in a third of the time that mapping each page at
    /// its first use takes; for segments that were attached. It changes no byte. More threads do
    /// not make it faster. Calls `mapped` after each GiB with the number of those done.
    pub fn map_pages(&self, mut mapped: impl FnMut(usize)) {
        const PIECE_BYTES: usize = 1 << 30;
        for (done, start) in (1..).zip((0..self.mapped_bytes).step_by(PIECE_BYTES)) {
            // If the system cannot do it, the pages are mapped when they are used.
            let _ = self.populate(start, PIECE_BYTES.min(self.mapped_bytes - start));
            mapped(done);
        }
    }

    /// Makes the system map these pages for writing, or returns its error.
    fn populate(&self, start: usize, bytes: usize) -> std::io::Result<()> {
        assert!(start + bytes <= self.mapped_bytes);
        // SAFETY: our own mapping, checked above; populating changes no byte.
        let rc = unsafe {
            let at = self.base.add(start).as_ptr().cast();
            libc::madvise(at, bytes, libc::MADV_POPULATE_WRITE)
        };
        if rc == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    }

    /// Asks for huge pages for these bytes of a new segment.
    fn collapse(&self, start: usize, bytes: usize) {
        assert!(start + bytes <= self.mapped_bytes);
        // What the system refuses stays on ordinary pages.
        // SAFETY: within our own mapping; no other process has the segment yet.
        unsafe { pages::collapse(self.base.add(start), bytes) };
    }

    /// Frees this segment, and never another one that has taken its name. Returns false if it is
    /// gone already. The mapping stays until the segment is dropped.
    pub fn remove(&self) -> Result<bool> {
        self.hold.free()
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

impl Drop for Segment {
    fn drop(&mut self) {
        let base = self.base.as_ptr().cast::<libc::c_void>();
        // SAFETY: the mapping made by the store, unmapped once.
        unsafe {
            match self.hold {
                Hold::SysV { .. } => libc::shmdt(base),
                Hold::File { .. } => libc::munmap(base, self.mapped_bytes),
            };
        }
    }
}

/// The data of another process's segment, for reading in place. Dropping it detaches it; the owner
/// need not know of it.
#[derive(Debug)]
pub struct View {
    base: NonNull<u8>,
    mapped_bytes: usize,
    data_bytes: usize,
    is_sysv: bool,
}

// SAFETY: nothing but an address; the caller promises what reading needs.
unsafe impl Send for View {}

impl View {
    /// Takes over a mapping that a store has made for reading.
    ///
    /// # Safety
    /// `base` must be a readable mapping of `mapped_bytes`, of a System V segment or (unless
    /// `is_sysv`) of a file, that nothing else unmaps, with `data_bytes` after the header page.
    pub(super) unsafe fn from_mapped(
        base: NonNull<u8>,
        mapped_bytes: usize,
        data_bytes: usize,
        is_sysv: bool,
    ) -> Self {
        assert!(PAGE_BYTES + data_bytes <= mapped_bytes);
        Self { base, mapped_bytes, data_bytes, is_sysv }
    }
}

impl Peer for View {
    unsafe fn bytes(&self, range: Range<usize>) -> &[u8] {
        assert!(range.start <= range.end && range.end <= self.data_bytes, "{range:?}");
        // SAFETY: within the mapping; unchanged by the caller's promise.
        unsafe {
            let start = self.base.add(PAGE_BYTES + range.start);
            std::slice::from_raw_parts(start.as_ptr(), range.len())
        }
    }

    /// Maps the pages of these bytes at once, several times as fast as mapping each at its first
    /// read.
    fn will_read(&self, range: Range<usize>) {
        assert!(range.start <= range.end && range.end <= self.data_bytes, "{range:?}");
        let page = pages::system_page_bytes();
        let first = (PAGE_BYTES + range.start) / page * page;
        let end = (PAGE_BYTES + range.end).next_multiple_of(page).min(self.mapped_bytes);
        // If the system cannot do it, the pages are mapped when they are read.
        // SAFETY: whole pages of our own mapping; populating changes no byte.
        unsafe {
            let at = self.base.add(first).as_ptr().cast();
            libc::madvise(at, end.saturating_sub(first), libc::MADV_POPULATE_READ);
        }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        let base = self.base.as_ptr().cast::<libc::c_void>();
        // SAFETY: the mapping made by the store, unmapped once.
        unsafe {
            if self.is_sysv {
                libc::shmdt(base)
            } else {
                libc::munmap(base, self.mapped_bytes)
            };
        }
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
        let pieces = segment.mapped_bytes.div_ceil(RESERVE_BYTES);
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

    fn write_header(&self) {
        let page = self.segment().base.cast::<Header>();
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
        let bytes = RESERVE_BYTES.min(segment.mapped_bytes - start);
        if self.touch == Touch::TakesMemory {
            let left = segment.mapped_bytes - start;
            Host::this().check_memory(&segment.name, bytes as u64, left as u64)?;
        }
        if segment.page_bytes == pages::system_page_bytes() {
            segment.collapse(start, bytes);
        }
        match segment.populate(start, bytes) {
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
        let base = self.segment().base;
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
