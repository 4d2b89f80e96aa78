use nix::errno::Errno;
use nix::libc;
use skt_comm::pages::system_page_bytes;

/// Whether the first and the last page of this memory are mapped: those of a device are not. The
/// memory is not accessed.
pub(crate) fn is_mapped(memory: *const u8, bytes: usize) -> bool {
    let page_bytes = system_page_bytes();
    let is_page = |address: usize| {
        let (page, mut residency) = (address / page_bytes * page_bytes, 0u8);
        // SAFETY: fails for a page that is not mapped, and otherwise writes one byte.
        let code = unsafe { libc::mincore(page as *mut _, 1, (&raw mut residency).cast()) };
        code == 0 || Errno::last() != Errno::ENOMEM
    };
    is_page(memory.addr()) && is_page(memory.addr().saturating_add(bytes - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_not_there_is_not_mapped() {
        let here = [1u8; 10];
        assert!(is_mapped(here.as_ptr(), 10));
        assert!(!is_mapped(here.as_ptr(), 1 << 46));
        assert!(!is_mapped(std::ptr::without_provenance(64), 1));
        assert!(!is_mapped(here.as_ptr(), usize::MAX));
    }
}
