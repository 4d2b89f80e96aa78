//! Copies past the caches.

/// Copies a range that this core does not read again soon: a checkpoint, or rows
/// for another core.
///
/// It is written past the caches: `dst` is not read into them first, which saves a
/// third of the memory traffic, and not taken back from the cache of another core
/// that has read it. All of it is visible to other processes, in order, before
/// anything that is written afterwards.
///
/// # Panics
/// When the lengths differ.
#[cfg(target_arch = "x86_64")]
pub fn stream(src: &[u8], dst: &mut [u8]) {
    // SSE2, which every x86-64 has, is as fast as wider stores.
    use std::arch::x86_64::*;
    const LINE: usize = 64;

    assert_eq!(src.len(), dst.len(), "blocks of unequal length");
    let head = dst.as_ptr().align_offset(LINE).min(dst.len());
    let lines = (dst.len() - head) / LINE;
    let tail = head + lines * LINE;
    dst[..head].copy_from_slice(&src[..head]);
    for line in (head..tail).step_by(LINE) {
        // SAFETY: line + LINE <= len of both; dst + line is aligned to 64
        // bytes, src may lie anywhere.
        unsafe {
            let from = src.as_ptr().add(line).cast::<__m128i>();
            let to = dst.as_mut_ptr().add(line).cast::<__m128i>();
            let part = [0, 1, 2, 3].map(|i| _mm_loadu_si128(from.add(i)));
            for (i, part) in part.into_iter().enumerate() {
                _mm_stream_si128(to.add(i), part);
            }
        }
    }
    dst[tail..].copy_from_slice(&src[tail..]);
    // Streamed stores are weakly ordered: order them before all later ones.
    // SAFETY: SSE is part of x86-64.
    unsafe { _mm_sfence() };
}

/// Copies a range; this CPU is not known to us.
///
/// # Panics
/// When the lengths differ.
#[cfg(not(target_arch = "x86_64"))]
pub fn stream(src: &[u8], dst: &mut [u8]) {
    dst.copy_from_slice(src);
}
