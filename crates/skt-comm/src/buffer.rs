//! A buffer of doubles on its own pages, for panels and other large messages.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::Arc;

use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, munmap};

use super::CommError;
use crate::pages::{HUGE_PAGE_BYTES, PAGE_BYTES};
use crate::tuning::TUNING;

/// Zero-filled doubles, page-aligned, on huge pages if the system grants them. Allocated once and
/// reused; moves without copying.
pub struct PageBuf {
    ptr: NonNull<f64>,
    len: usize,
    memory: Memory,
}

enum Memory {
    /// A private mapping of this many bytes.
    Mapping(usize),
    /// The heap: hundreds of small tests would otherwise spend their time on mappings.
    Heap(Layout),
    /// Memory of another owner.
    Given,
    /// A part of a buffer that was cut; the buffer lives as long as its parts.
    Part(Arc<PageBuf>),
}

// SAFETY: a PageBuf is the only user of its memory, like a Vec<f64>.
unsafe impl Send for PageBuf {}
// SAFETY: shared access only reads.
unsafe impl Sync for PageBuf {}

impl PageBuf {
    /// A buffer of `len` zeros. The pages of a buffer of some MiB exist then: lack of memory shows
    /// now, not at the first write.
    pub fn new(len: usize) -> std::io::Result<Self> {
        let too_long = || std::io::Error::from(std::io::ErrorKind::OutOfMemory);
        let bytes = len.max(1).checked_mul(size_of::<f64>()).ok_or_else(too_long)?;
        if bytes < TUNING.mapped_bytes {
            return Self::on_heap(len, bytes).ok_or_else(too_long);
        }
        let page = if bytes >= HUGE_PAGE_BYTES { HUGE_PAGE_BYTES } else { PAGE_BYTES };
        let mapped_bytes = bytes.checked_next_multiple_of(page).ok_or_else(too_long)?;
        let size = std::num::NonZeroUsize::new(mapped_bytes).expect("at least one page");
        // SAFETY: a new private anonymous mapping; nothing else refers to it.
        let ptr = unsafe {
            mmap_anonymous(
                None,
                size,
                ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
                MapFlags::MAP_PRIVATE,
            )
        }?;
        if page == HUGE_PAGE_BYTES {
            // SAFETY: advice on our own mapping; a refusal only costs speed.
            let _ = unsafe { madvise(ptr, mapped_bytes, MmapAdvise::MADV_HUGEPAGE) };
            // Larger pages are written to several times.
            for byte in (0..mapped_bytes).step_by(PAGE_BYTES) {
                // SAFETY: within our own mapping, which nothing else refers to.
                unsafe { ptr.cast::<u8>().add(byte).write_volatile(0) };
            }
        }
        Ok(Self { ptr: ptr.cast(), len, memory: Memory::Mapping(mapped_bytes) })
    }

    /// A buffer of the `len` doubles from `start` on, with their present values.
    ///
    /// # Safety
    /// The doubles exist, and nothing else reads or writes them, for as long as the buffer.
    pub unsafe fn within(start: NonNull<f64>, len: usize) -> Self {
        Self { ptr: start, len, memory: Memory::Given }
    }

    /// Cuts a buffer into adjacent buffers of these lengths, which fit, and one of length 0, for
    /// messages in transit at the same time; [`Self::join`] puts the buffer together again.
    pub fn cut(self, lengths: impl IntoIterator<Item = usize>) -> Vec<Self> {
        let whole = Arc::new(self);
        let mut at = 0;
        let part = |len: usize| {
            assert!(len <= whole.len - at, "parts beyond the end of a buffer");
            // SAFETY: within the buffer, or at its end.
            let ptr = unsafe { whole.ptr.add(at) };
            at += len;
            // No two parts share an element, and the whole is inaccessible until all parts are
            // gone.
            Self { ptr, len, memory: Memory::Part(Arc::clone(&whole)) }
        };
        // The empty last part is there for `join` if no other part is asked for.
        lengths.into_iter().chain([0]).map(part).collect()
    }

    /// Joins all parts of a buffer that was cut.
    pub fn join(parts: impl IntoIterator<Item = Self>) -> Self {
        let mut whole = None;
        for part in parts {
            let Memory::Part(of) = &part.memory else { panic!("a buffer that was not cut") };
            whole.get_or_insert_with(|| Arc::clone(of));
        }
        let whole = whole.expect("at least one part");
        Arc::try_unwrap(whole).ok().expect("all parts of one buffer")
    }

    /// The doubles of adjacent parts of one buffer, from its first part on.
    pub fn whole<'a>(parts: impl IntoIterator<Item = &'a Self>) -> &'a [f64] {
        let mut whole: Option<(&Arc<Self>, usize)> = None;
        for part in parts {
            let Memory::Part(of) = &part.memory else { panic!("a buffer that was not cut") };
            let (whole, end) = whole.get_or_insert((of, 0));
            // SAFETY: the parts before this one are within the buffer, so their end is, too.
            let is_next = Arc::ptr_eq(whole, of) && part.ptr == unsafe { whole.ptr.add(*end) };
            assert!(is_next, "parts that do not follow one another");
            *end += part.len;
        }
        let (whole, end) = whole.expect("at least one part");
        // SAFETY: the doubles of parts that are all borrowed for that long, and keep the buffer
        // alive.
        unsafe { std::slice::from_raw_parts(whole.ptr.as_ptr(), end) }
    }

    fn on_heap(len: usize, bytes: usize) -> Option<Self> {
        let layout = Layout::from_size_align(bytes, PAGE_BYTES).expect("a few pages");
        // SAFETY: the layout is of at least one double.
        let ptr = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Self { ptr: ptr.cast(), len, memory: Memory::Heap(layout) })
    }

    /// A buffer of `len` zeros for messages. An error names the amount, and what limits it.
    pub fn for_messages(len: usize) -> super::Result<Self> {
        Self::new(len).map_err(|why| CommError::Transport {
            call: "mmap",
            what: format!(
                "no memory for a message of {} bytes: {why}; a smaller N, or a higher limit \
                 (ulimit -v) leaves room for it",
                len.saturating_mul(size_of::<f64>())
            ),
        })
    }
}

impl Drop for PageBuf {
    fn drop(&mut self) {
        match &self.memory {
            // SAFETY: the mapping made in `new`, unmapped once.
            Memory::Mapping(bytes) => drop(unsafe { munmap(self.ptr.cast(), *bytes) }),
            // SAFETY: allocated with this layout, freed once.
            Memory::Heap(layout) => unsafe { dealloc(self.ptr.as_ptr().cast(), *layout) },
            Memory::Given | Memory::Part(_) => {}
        }
    }
}

impl Deref for PageBuf {
    type Target = [f64];
    fn deref(&self) -> &[f64] {
        // SAFETY: `len` doubles exist, zero-filled or given.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl DerefMut for PageBuf {
    fn deref_mut(&mut self) -> &mut [f64] {
        // SAFETY: as in `deref`, and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

/// Two disjoint ranges of a buffer, one for reading and one for writing.
pub fn disjoint_ranges(
    buf: &mut [f64],
    read: Range<usize>,
    write: Range<usize>,
) -> (&[f64], &mut [f64]) {
    if read.end <= write.start {
        let (low, high) = buf.split_at_mut(write.start);
        (&low[read], &mut high[..write.len()])
    } else {
        let (low, high) = buf.split_at_mut(read.start);
        (&high[..read.len()], &mut low[write])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_within_given_memory_writes_there() {
        let mut memory = [1.0; 6];
        // A pointer to the whole range: a pointer to one element is valid for that element only.
        let start = NonNull::from(&mut memory[2..]).cast();
        // SAFETY: four doubles, which nothing else reads before the buffer is gone.
        let mut buffer = unsafe { PageBuf::within(start, 4) };
        buffer.fill(2.0);
        drop(buffer);
        assert_eq!(memory, [1.0, 1.0, 2.0, 2.0, 2.0, 2.0]);
    }

    #[test]
    fn parts_of_a_buffer_are_its_own_again_when_all_are_back() {
        let whole = PageBuf::new(10).unwrap();
        let mut parts = whole.cut([4, 0, 3]);
        assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [4, 0, 3, 0]);
        parts[0].fill(1.0);
        parts[2].fill(2.0);
        let whole = PageBuf::join(parts);
        assert_eq!(whole[..], [1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 0.0, 0.0, 0.0]);
        assert_eq!(PageBuf::join(whole.cut([])).len(), 10);
    }

    #[test]
    fn parts_that_follow_one_another_are_read_as_one() {
        let mut whole = PageBuf::new(10).unwrap();
        (0..10).for_each(|i| whole[i] = i as f64);
        let parts: Vec<_> = whole.cut([4, 0, 3]).into_iter().map(Arc::new).collect();
        let read = PageBuf::whole(parts.iter().take(3).map(|part| &**part));
        assert_eq!(read, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(PageBuf::whole(parts.iter().take(1).map(|part| &**part)).len(), 4);
    }

    #[test]
    #[should_panic(expected = "do not follow one another")]
    fn parts_with_a_gap_are_not_read_as_one() {
        let parts = PageBuf::new(10).unwrap().cut([4, 1, 3]);
        PageBuf::whole([&parts[0], &parts[2]]);
    }

    #[test]
    #[should_panic(expected = "do not follow one another")]
    fn parts_of_two_buffers_are_not_read_as_one() {
        let parts = [0, 1].map(|_| PageBuf::new(10).unwrap().cut([4]));
        PageBuf::whole([&parts[0][0], &parts[1][1]]);
    }

    #[test]
    #[should_panic(expected = "all parts of one buffer")]
    fn a_part_that_is_missing_is_noticed() {
        let mut parts = PageBuf::new(10).unwrap().cut([5, 5]);
        let _under_way = parts.remove(1);
        PageBuf::join(parts);
    }

    #[test]
    #[should_panic(expected = "beyond the end")]
    fn parts_beyond_the_end_are_refused() {
        PageBuf::new(10).unwrap().cut([5, 6]);
    }

    #[test]
    fn buffer_larger_than_any_machine_is_refused() {
        for len in [usize::MAX, usize::MAX / 8, usize::MAX / 8 - 1, 1 << 61, 1 << 50] {
            assert!(PageBuf::new(len).is_err(), "{len}");
        }
        let error = PageBuf::for_messages(1 << 50).err().expect("no such memory").to_string();
        assert!(error.contains("9007199254740992 bytes") && error.contains("ulimit"), "{error}");
    }
}
