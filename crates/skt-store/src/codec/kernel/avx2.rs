//! The AVX2 kernel, 32 bytes at a time. A product over GF(2^8) takes two table look-ups, one per
//! nibble: `c x = c (x & 15) + c (x & 240)`, with `vpshufb` as the look-up (Plank, Greenan and
//! Miller, "Screaming fast Galois field arithmetic", FAST 2013).

use std::arch::x86_64::*;

use super::{Kernel, scalar, tables};

/// This kernel, if the processor has AVX2.
pub(crate) fn kernel() -> Option<Kernel> {
    is_x86_feature_detected!("avx2").then_some(KERNEL)
}

type Vector = __m256i;

/// The tables of a factor, each twice: a shuffle stays within its half of the register.
struct Factor {
    low: Vector,
    high: Vector,
}

/// # Safety
/// 32 bytes must be readable at `from`.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn load(from: *const u8) -> Vector {
    // SAFETY: the caller's condition; unaligned access.
    unsafe { _mm256_loadu_si256(from.cast()) }
}

/// # Safety
/// 32 bytes must be writable at `to`.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn store(to: *mut u8, x: Vector) {
    // SAFETY: the caller's condition; unaligned access.
    unsafe { _mm256_storeu_si256(to.cast(), x) }
}

#[target_feature(enable = "avx2")]
#[inline]
fn add(a: Vector, b: Vector) -> Vector {
    _mm256_xor_si256(a, b)
}

#[target_feature(enable = "avx2")]
#[inline]
fn factor(c: u8) -> Factor {
    // SAFETY: 16 bytes of each table are read.
    let [low, high] = tables(c).map(|table| unsafe { _mm_loadu_si128(table.as_ptr().cast()) });
    Factor { low: _mm256_broadcastsi128_si256(low), high: _mm256_broadcastsi128_si256(high) }
}

#[target_feature(enable = "avx2")]
#[inline]
fn times(factor: &Factor, x: Vector) -> Vector {
    let nibble = _mm256_set1_epi8(15);
    let low = _mm256_shuffle_epi8(factor.low, _mm256_and_si256(x, nibble));
    let high = _mm256_and_si256(_mm256_srli_epi64::<4>(x), nibble);
    _mm256_xor_si256(low, _mm256_shuffle_epi8(factor.high, high))
}

super::vectors::operations!("avx2", "avx2");
