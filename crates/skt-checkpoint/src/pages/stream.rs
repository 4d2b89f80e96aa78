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
pub fn stream(src: &[u8], dst: &mut [u8]) {
    stream_in_pieces(src, dst, src.len().max(1), |_| ());
}

/// [`stream`], which hands each piece of `piece_bytes` (the last may be shorter) to
/// `each` while it is in the cache, its successor being fetched meanwhile.
///
/// # Panics
/// When the lengths differ, or `piece_bytes` is 0.
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

/// Streams one piece; its stores are not yet in order with later ones.
#[cfg(target_arch = "x86_64")]
fn lines(src: &[u8], dst: &mut [u8]) {
    // SSE2, which every x86-64 has, is as fast as wider stores.
    use std::arch::x86_64::*;

    let head = dst.as_ptr().align_offset(LINE_BYTES).min(dst.len());
    let lines = (dst.len() - head) / LINE_BYTES;
    let tail = head + lines * LINE_BYTES;
    dst[..head].copy_from_slice(&src[..head]);
    for line in (head..tail).step_by(LINE_BYTES) {
        // SAFETY: line + LINE_BYTES <= len of both; dst + line is aligned to 64
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
}

/// Orders streamed stores, which are weakly ordered, before all later ones.
#[cfg(target_arch = "x86_64")]
fn in_order() {
    // SAFETY: SSE is part of x86-64.
    unsafe { std::arch::x86_64::_mm_sfence() };
}

/// Fetches what is read next into the caches.
#[cfg(target_arch = "x86_64")]
fn fetch(bytes: &[u8]) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    for line in bytes.chunks(LINE_BYTES) {
        // SAFETY: a hint, which reads nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
}

#[cfg(target_arch = "x86_64")]
const LINE_BYTES: usize = 64;

/// Copies one piece; this CPU is not known to us.
#[cfg(not(target_arch = "x86_64"))]
fn lines(src: &[u8], dst: &mut [u8]) {
    dst.copy_from_slice(src);
}

#[cfg(not(target_arch = "x86_64"))]
fn in_order() {}

#[cfg(not(target_arch = "x86_64"))]
fn fetch(_: &[u8]) {}
