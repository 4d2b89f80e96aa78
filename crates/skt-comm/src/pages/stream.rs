//! Copies past the caches.

/// Copies a range that this core does not read again soon: a checkpoint, or rows for another core.
///
/// The range is written past the caches: `dst` is not read into them first, which saves a third of
/// the memory traffic, and is not fetched back from the cache of another core that has read it. All
/// of it is visible to other processes, in order, before anything that is written afterwards.
pub fn stream(src: &[u8], dst: &mut [u8]) {
    stream_in_pieces(src, dst, src.len().max(1), |_| ());
}

/// Copies as [`stream`] does and passes each piece of `piece_bytes` (the last may be shorter) to
/// `each` while the piece is in the cache and the next one is being fetched.
pub fn stream_in_pieces(
    src: &[u8],
    dst: &mut [u8],
    piece_bytes: usize,
    mut each: impl FnMut(&[u8]),
) {
    assert_eq!(src.len(), dst.len(), "blocks of unequal length");
    let mut pieces = src.chunks(piece_bytes).peekable();
    let mut into = dst.chunks_mut(piece_bytes);
    while let (Some(piece), Some(into)) = (pieces.next(), into.next()) {
        lines(piece, into);
        if let Some(next) = pieces.peek() {
            fetch(next);
        }
        each(piece);
    }
    in_order();
}

/// Streams one piece; its stores are not yet ordered before later ones.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn lines(src: &[u8], dst: &mut [u8]) {
    let head = dst.as_ptr().align_offset(LINE_BYTES).min(dst.len());
    let lines = (dst.len() - head) / LINE_BYTES;
    let tail = head + lines * LINE_BYTES;
    dst[..head].copy_from_slice(&src[..head]);
    for line in (head..tail).step_by(LINE_BYTES) {
        // SAFETY: line + LINE_BYTES <= len of both; dst + line is aligned to LINE_BYTES.
        unsafe { arch::line(src.as_ptr().add(line), dst.as_mut_ptr().add(line)) };
    }
    dst[tail..].copy_from_slice(&src[tail..]);
}

/// Prefetches bytes that are read next into the caches: a hint, which does not wait.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub fn fetch(bytes: &[u8]) {
    for line in bytes.chunks(LINE_BYTES) {
        arch::fetch(line.as_ptr());
    }
}

/// Bytes streamed at once: a cache line of most processors; with longer lines a part of one, with
/// the next part right after it.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
const LINE_BYTES: usize = 64;

#[cfg(target_arch = "x86_64")]
mod arch {
    use std::arch::x86_64::*;

    /// Streams a line. SSE2, which every x86-64 has, is as fast as wider stores.
    /// Safety: a line must be readable at `from` and writable at `to`, which must be aligned to 16
    /// bytes.
    #[inline]
    pub(crate) unsafe fn line(from: *const u8, to: *mut u8) {
        let (from, to) = (from.cast::<__m128i>(), to.cast::<__m128i>());
        // SAFETY: the caller's conditions; `from` may have any alignment.
        unsafe {
            let part = [0, 1, 2, 3].map(|i| _mm_loadu_si128(from.add(i)));
            for (i, part) in part.into_iter().enumerate() {
                _mm_stream_si128(to.add(i), part);
            }
        }
    }

    #[inline]
    pub(crate) fn fetch(line: *const u8) {
        // SAFETY: a hint, which reads nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) };
    }

    /// Streamed stores are weakly ordered.
    #[inline]
    pub(crate) fn in_order() {
        // SAFETY: SSE is part of x86-64.
        unsafe { _mm_sfence() };
    }
}

#[cfg(target_arch = "aarch64")]
mod arch {
    use std::arch::asm;

    /// Streams a line by `stnp`, for which Rust has no function.
    ///
    /// # Safety
    /// A line must be readable at `from` and writable at `to`.
    #[inline]
    pub unsafe fn line(from: *const u8, to: *mut u8) {
        // SAFETY: the caller's conditions; loads and stores of pairs take any address.
        unsafe {
            asm!(
                "ldp {a:q}, {b:q}, [{from}]",
                "ldp {c:q}, {d:q}, [{from}, #32]",
                "stnp {a:q}, {b:q}, [{to}]",
                "stnp {c:q}, {d:q}, [{to}, #32]",
                a = out(vreg) _, b = out(vreg) _, c = out(vreg) _, d = out(vreg) _,
                from = in(reg) from, to = in(reg) to,
                options(nostack, preserves_flags)
            );
        }
    }

    #[inline]
    pub fn fetch(line: *const u8) {
        // SAFETY: a hint, which reads nothing.
        unsafe {
            asm!("prfm pldl1keep, [{line}]", line = in(reg) line,
                options(nostack, preserves_flags, readonly));
        }
    }
}

/// Copies plainly, on other processors.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn lines(src: &[u8], dst: &mut [u8]) {
    dst.copy_from_slice(src);
}

/// Fetches nothing, on other processors.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub fn fetch(_: &[u8]) {}

/// Orders the streamed stores before all later ones. x86-64 orders plain stores without this;
/// elsewhere all stores are weakly ordered.
fn in_order() {
    #[cfg(target_arch = "x86_64")]
    arch::in_order();
    #[cfg(not(target_arch = "x86_64"))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::Release);
}
