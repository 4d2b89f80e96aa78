//! A segment in this process' memory.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use super::header::{Header, PAGE_BYTES};
use super::hold::Hold;
use super::host::Host;
use super::{Result, SegmentName, StoreError};
use crate::pages;

/// Memory is reserved in pieces of this size, with a look at what is left
/// before each: several ranks of a node may be at it at once.
pub(super) const RESERVE_BYTES: usize = 64 << 20;

/// Bytes that outlive the process, zero when created, on page boundaries.
///
/// Dropping it detaches it. No other process of ours is attached meanwhile.
#[derive(Debug)]
pub struct Segment {
    name: SegmentName,
    base: NonNull<u8>,
    mapped_bytes: usize,
    data_bytes: usize,
    page_bytes: usize,
    note: Option<String>,
    hold: Hold,
}

// SAFETY: the mapping is reached through this value alone, like a Vec's memory.
unsafe impl Send for Segment {}
// SAFETY: shared access only reads.
unsafe impl Sync for Segment {}

/// The parts of a [`Segment`], for the stores.
pub(super) struct Mapped {
    pub name: SegmentName,
    pub base: NonNull<u8>,
    pub mapped_bytes: usize,
    pub data_bytes: usize,
    pub page_bytes: usize,
    pub note: Option<String>,
    pub hold: Hold,
}

impl Segment {
    /// # Safety
    /// `base` must be a readable and writable mapping of `mapped_bytes` that
    /// nothing else refers to and that `hold` tells how to unmap, with
    /// `data_bytes` after the header page.
    pub(super) unsafe fn from_mapped(m: Mapped) -> Self {
        let Mapped { name, base, mapped_bytes, data_bytes, page_bytes, note, hold } = m;
        debug_assert!(PAGE_BYTES + data_bytes <= mapped_bytes);
        Self { name, base, mapped_bytes, data_bytes, page_bytes, note, hold }
    }

    /// Its name.
    pub fn name(&self) -> &SegmentName {
        &self.name
    }

    /// Size of the pages behind it, in bytes, as far as it is known.
    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// What the user should be told of it: that huge pages were asked for and
    /// refused, and what to do.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// The data.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: data_bytes are mapped after the header page.
        unsafe { std::slice::from_raw_parts(self.data().as_ptr(), self.data_bytes) }
    }

    /// The data.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, borrowed mutably; no other process is attached.
        unsafe { std::slice::from_raw_parts_mut(self.data().as_ptr(), self.data_bytes) }
    }

    /// The data as doubles.
    pub fn as_f64_slice(&self) -> &[f64] {
        bytemuck::cast_slice(self.as_slice())
    }

    /// The data as doubles.
    pub fn as_mut_f64_slice(&mut self) -> &mut [f64] {
        bytemuck::cast_slice_mut(self.as_mut_slice())
    }

    fn data(&self) -> NonNull<u8> {
        // SAFETY: the header page lies within the mapping.
        unsafe { self.base.add(PAGE_BYTES) }
    }

    /// Maps all pages into this process at once, a third of the time that it
    /// takes page by page as they are used; for segments that were attached. It
    /// changes no byte. More threads do not make it faster.
    pub fn map_pages(&self) {
        // Where the system cannot do it, the pages are mapped when used.
        let _ = self.populate(0, self.mapped_bytes);
    }

    /// Has the system map these pages for writing, or say why it cannot.
    fn populate(&self, start: usize, bytes: usize) -> std::io::Result<()> {
        assert!(start + bytes <= self.mapped_bytes);
        // SAFETY: our own mapping, checked above; populating changes no byte.
        let rc = unsafe {
            let at = self.base.add(start).as_ptr().cast();
            libc::madvise(at, bytes, libc::MADV_POPULATE_WRITE)
        };
        if rc == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    }

    /// Asks for huge pages behind these bytes of a segment that is new.
    fn collapse(&self, start: usize, bytes: usize) {
        assert!(start + bytes <= self.mapped_bytes);
        // What the system refuses has ordinary pages.
        // SAFETY: within our own mapping; nobody else has the segment yet.
        unsafe { pages::collapse(self.base.add(start), bytes) };
    }

    /// Frees it, and no other that has its name by now; false when it is gone
    /// already. The mapping stays until it is dropped.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn remove(&self) -> Result<bool> {
        self.hold.free()
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

/// What another process keeps in a segment, to be read where it lies. Dropping
/// it lets go of it; its owner need not know.
#[derive(Debug)]
pub struct View {
    base: NonNull<u8>,
    mapped_bytes: usize,
    data_bytes: usize,
    is_sysv: bool,
}

// SAFETY: nothing but an address; reading is the caller's promise.
unsafe impl Send for View {}

impl View {
    /// # Safety
    /// `base` must be a readable mapping of `mapped_bytes`, of a System V segment
    /// or (unless `is_sysv`) of a file, that nobody else unmaps, with
    /// `data_bytes` after the header page.
    pub(super) unsafe fn from_mapped(
        base: NonNull<u8>,
        mapped_bytes: usize,
        data_bytes: usize,
        is_sysv: bool,
    ) -> Self {
        assert!(PAGE_BYTES + data_bytes <= mapped_bytes);
        Self { base, mapped_bytes, data_bytes, is_sysv }
    }

    /// Bytes of the data.
    ///
    /// # Safety
    /// Nobody may write to them as long as the slice is in use: the processes
    /// have to agree on that by other means.
    ///
    /// # Panics
    /// When the segment has no such bytes.
    pub unsafe fn bytes(&self, range: Range<usize>) -> &[u8] {
        assert!(range.start <= range.end && range.end <= self.data_bytes, "{range:?}");
        // SAFETY: within the mapping; unchanged by the caller's promise.
        unsafe {
            let start = self.base.add(PAGE_BYTES + range.start);
            std::slice::from_raw_parts(start.as_ptr(), range.len())
        }
    }
}

impl View {
    /// Maps the pages of these bytes at once, several times as fast as one by
    /// one when they are first read.
    pub fn map_pages(&self, range: Range<usize>) {
        assert!(range.start <= range.end && range.end <= self.data_bytes, "{range:?}");
        let page = pages::system_page_bytes();
        let first = (PAGE_BYTES + range.start) / page * page;
        let end = (PAGE_BYTES + range.end).next_multiple_of(page).min(self.mapped_bytes);
        // Where the system cannot do it, the pages are mapped when read.
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
            match self.is_sysv {
                true => libc::shmdt(base),
                false => libc::munmap(base, self.mapped_bytes),
            };
        }
    }
}

/// What it means to touch the pages of a new segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Touch {
    /// They come out of free memory.
    TakesMemory,
    /// They are there, and are only mapped.
    Maps,
    /// Nothing to do: space on a disk has been set aside.
    Nothing,
}

/// A segment whose memory is being reserved. Dropping it removes it again.
#[derive(Debug)]
pub struct NewSegment {
    /// Always there, until `finish` takes it.
    segment: Option<Segment>,
    header: Header,
    /// Pieces of [`RESERVE_BYTES`] that have been touched.
    touched: Vec<AtomicBool>,
    touch: Touch,
}

impl NewSegment {
    /// Writes the header into a fresh segment, before anything else.
    pub(super) fn new(segment: Segment, header: Header, touch: Touch) -> Self {
        let pieces = segment.mapped_bytes.div_ceil(RESERVE_BYTES);
        let touched = (0..pieces).map(|_| AtomicBool::new(false)).collect();
        let new = Self { segment: Some(segment), header, touched, touch };
        new.write_header();
        new
    }

    /// Its name.
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

    /// Touches part `part` of `parts`, so that its pages exist. Threads that
    /// will work on a part may call this at once, each for its own, to have the
    /// pages near them; what nobody touches, [`NewSegment::finish`] does.
    ///
    /// # Errors
    /// [`StoreError::NoMemory`] when the memory runs out on the way.
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

    /// Writes to each page from `start` on, but not into the header, whose page is there:
    /// Linux before 5.14 cannot populate.
    fn write_zeros(&self, start: usize, bytes: usize) {
        let base = self.segment().base;
        for page in (start..start + bytes).step_by(PAGE_BYTES).skip(usize::from(start == 0)) {
            // SAFETY: within the mapping; nobody but us has it, all is zero.
            unsafe { base.add(page).write_volatile(0) };
        }
    }

    /// Touches what has not been touched and hands the segment over.
    ///
    /// # Errors
    /// [`StoreError::NoMemory`] when the memory runs out on the way; the
    /// segment is then gone.
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
            // Best effort on the way out; the error before is the one to report.
            let _ = segment.remove();
        }
    }
}
