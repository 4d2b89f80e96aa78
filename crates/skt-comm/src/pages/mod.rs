//! Memory that processes share: huge pages for it, and copies into it.
//!
//! Private memory gets huge pages by advice. Shared memory (System V, POSIX, memfd) gets them by
//! advice only if the administrator has set `shmem_enabled`, which is rare. Linux 6.1 and later
//! collapse pages into huge ones on request, whatever that setting is (`MADV_COLLAPSE`,
//! madvise(2)): this needs a mapping that begins on a huge page, and is done once, when the memory
//! is reserved. Older systems refuse, and keep their ordinary pages.

mod stream;

use std::io;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

use libc::c_void;

use skt_host::thread_clock::thread_cpu_seconds;

pub use stream::{fetch, stream, stream_in_pieces};

/// The alignment, in bytes, of everything that begins on a page: the smallest page of any system.
/// This value is part of the format of segments; the pages that the system maps and counts are
/// [`system_page_bytes`].
pub const PAGE_BYTES: usize = 4096;
/// Bytes of a huge page on systems with ordinary pages of 4 KiB. With ordinary pages of 16 and 64
/// KiB huge pages have 32 and 512 MiB, too much to round memory up to: memory gets those only if it
/// happens to be aligned.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Bytes of an ordinary page of this system: 4 KiB, on some Arm systems 16 or 64 KiB.
pub fn system_page_bytes() -> usize {
    static BYTES: OnceLock<usize> = OnceLock::new();
    *BYTES.get_or_init(|| {
        // SAFETY: a system call that touches no memory of this process.
        let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let bytes = usize::try_from(bytes).expect("a system has pages");
        assert!(bytes.is_power_of_two() && bytes >= PAGE_BYTES, "pages of {bytes} bytes");
        bytes
    })
}

/// Bytes of a page of the pool that the administrator has reserved, `vm.nr_hugepages`.
pub fn pool_page_bytes() -> usize {
    static BYTES: OnceLock<usize> = OnceLock::new();
    *BYTES.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        // A system without such pages does not report their size.
        pool_page_of(&text).unwrap_or(HUGE_PAGE_BYTES)
    })
}

fn pool_page_of(meminfo: &str) -> Option<usize> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("Hugepagesize:"))?;
    let bytes = line.trim().strip_suffix(" kB")?.parse::<usize>().ok()?.checked_mul(1024)?;
    (bytes.is_power_of_two() && bytes >= PAGE_BYTES).then_some(bytes)
}

/// Measures the seconds of a core per byte that this system takes now to unmap shared memory on
/// ordinary pages and to free it; 0 if it has no memory for a sample.
pub fn unmap_seconds_a_byte() -> f64 {
    const SAMPLE_BYTES: usize = 32 << 20;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
    // SAFETY: a new mapping at an address that the system chooses, which nothing uses.
    let start = unsafe { libc::mmap(ptr::null_mut(), SAMPLE_BYTES, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return 0.0;
    }
    let begun_seconds = thread_cpu_seconds();
    // SAFETY: the mapping made just now.
    unsafe { libc::munmap(start, SAMPLE_BYTES) };
    (thread_cpu_seconds() - begun_seconds) / SAMPLE_BYTES as f64
}

/// From Linux 6.1; libc defines it for some targets only.
const MADV_COLLAPSE: libc::c_int = 25;

/// A free range of addresses that begins on a huge page, reserved for a mapping to replace it.
/// Dropping it frees the range.
///
/// A mapping on pages of the pool ends where such a page does, whatever length it was asked to
/// have, and replaces everything there.
#[derive(Debug)]
pub struct Reservation {
    base: NonNull<c_void>,
    bytes: usize,
}

impl Reservation {
    /// Reserves a place for a mapping of `bytes` on ordinary pages, rounded up to whole pages.
    pub fn new(bytes: usize) -> io::Result<Self> {
        Self::for_whole_pages(bytes, system_page_bytes())
    }

    /// Reserves a place for a mapping of `bytes` on ordinary pages or on pages of the pool.
    pub fn for_any_pages(bytes: usize) -> io::Result<Self> {
        Self::for_whole_pages(bytes, pool_page_bytes().max(system_page_bytes()))
    }

    fn for_whole_pages(bytes: usize, page_bytes: usize) -> io::Result<Self> {
        let align_bytes = page_bytes.max(HUGE_PAGE_BYTES);
        let too_long = io::ErrorKind::OutOfMemory;
        let bytes = bytes.max(1).checked_next_multiple_of(page_bytes).ok_or(too_long)?;
        let reserved = bytes.checked_add(align_bytes).ok_or(too_long)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address that the system chooses, never touched.
        let start = unsafe { libc::mmap(ptr::null_mut(), reserved, libc::PROT_NONE, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let before = (start as usize).next_multiple_of(align_bytes) - start as usize;
        // SAFETY: both ends are within the mapping made just now; nothing uses them.
        unsafe {
            let base = start.byte_add(before);
            if before > 0 {
                libc::munmap(start, before);
            }
            libc::munmap(base.byte_add(bytes), reserved - before - bytes);
            Ok(Self { base: NonNull::new_unchecked(base), bytes })
        }
    }

    /// The first address of the memory: a mapping made here must replace it.
    pub fn base(&self) -> NonNull<c_void> {
        self.base
    }

    /// Leaves the range to the mapping of `bytes` that has replaced it, and frees the addresses
    /// after that mapping.
    pub fn taken(self, bytes: usize) {
        let taken = bytes.next_multiple_of(system_page_bytes());
        if taken < self.bytes {
            // SAFETY: ours, unless the mapping is on pages of the pool: then the rest belongs to
            // it, too, as a part of a page, and the system refuses to unmap that.
            unsafe { libc::munmap(self.base.as_ptr().byte_add(taken), self.bytes - taken) };
        }
        std::mem::forget(self);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: the range is ours; no mapping has replaced it.
        unsafe { libc::munmap(self.base.as_ptr(), self.bytes) };
    }
}

/// Collapses the whole huge pages among these bytes of a new shared mapping. Returns whether the
/// system did; where it did not, the pages are unchanged.
///
/// # Safety
/// `base` must begin a readable and writable mapping of `bytes` whose contents are zero and to
/// which nothing else writes during the call.
pub unsafe fn collapse(base: NonNull<u8>, bytes: usize) -> bool {
    let address = base.as_ptr() as usize;
    let start = address.next_multiple_of(HUGE_PAGE_BYTES);
    let end = (address + bytes) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    if start >= end {
        return false;
    }
    // SAFETY: within the mapping. Each huge page gets one ordinary page first, because the system
    // refuses a range without any.
    unsafe {
        for page in (start..end).step_by(HUGE_PAGE_BYTES) {
            let byte = base.as_ptr().add(page - address);
            byte.write_volatile(byte.read_volatile());
        }
        let at = base.as_ptr().add(start - address).cast();
        libc::madvise(at, end - start, MADV_COLLAPSE) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_page_sizes_are_read() {
        assert_eq!(pool_page_of("MemFree: 3 kB\nHugepagesize:     524288 kB\n"), Some(512 << 20));
        assert_eq!(pool_page_of("MemFree: 3 kB\n"), None);
        assert_eq!(pool_page_of("Hugepagesize: 99999999999999999999 kB"), None);
        assert_eq!(pool_page_of("Hugepagesize: 0 kB"), None);
        assert!(pool_page_bytes().is_multiple_of(system_page_bytes()));
    }

    #[test]
    fn a_place_begins_on_a_huge_page_and_is_given_up() {
        for bytes in [1, 4096, 10_000, HUGE_PAGE_BYTES, 3 * HUGE_PAGE_BYTES + 1] {
            let place = Reservation::new(bytes).expect("addresses");
            assert_eq!(place.base().as_ptr() as usize % HUGE_PAGE_BYTES, 0);
            assert!(place.bytes >= bytes && place.bytes < bytes + system_page_bytes());
            let place = Reservation::for_any_pages(bytes).expect("addresses");
            assert!(place.bytes >= bytes && place.bytes.is_multiple_of(pool_page_bytes()));
            assert_eq!(place.base().as_ptr() as usize % pool_page_bytes(), 0);
        }
    }

    #[test]
    fn collapsing_keeps_what_is_there() {
        let bytes = 2 * HUGE_PAGE_BYTES + 8192;
        let place = Reservation::new(bytes).expect("addresses");
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let how = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: replaces our own place; unmapped at the end, used in between.
        unsafe {
            let at = libc::mmap(place.base().as_ptr(), bytes, access, how, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            place.taken(bytes);
            let base = NonNull::new(at.cast::<u8>()).expect("mapped");
            base.as_ptr().write(7);
            base.as_ptr().add(bytes - 1).write(9);
            // Old systems refuse, and everything stays as before.
            collapse(base, bytes);
            assert_eq!((*base.as_ptr(), *base.as_ptr().add(bytes - 1)), (7, 9));
            assert_eq!(*base.as_ptr().add(HUGE_PAGE_BYTES), 0);
            libc::munmap(at, bytes);
        }
    }
}
