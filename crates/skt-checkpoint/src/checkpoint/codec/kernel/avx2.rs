//! 32 bytes at a time. Products over GF(2^8) by two table look-ups, one a
//! nibble: `c x = c (x & 15) + c (x & 240)`, with `vpshufb` as the look-up
//! (Plank, Greenan and Miller, "Screaming fast Galois field arithmetic",
//! FAST 2013).

use std::arch::x86_64::*;

use super::{Kernel, scalar};
use crate::checkpoint::codec::gf256;

const WIDTH: usize = 32;

/// This kernel where the processor has AVX2.
pub fn kernel() -> Option<Kernel> {
    is_x86_feature_detected!("avx2").then_some(Kernel {
        name: "avx2",
        xor,
        gf_fma,
        gf_mul,
        real_fma,
    })
}

/// Products of `c` with the 16 low nibbles and the 16 high nibbles, each twice
/// (a look-up stays within its half of the register).
struct Tables {
    low: __m256i,
    high: __m256i,
}

#[target_feature(enable = "avx2")]
fn tables(c: u8) -> Tables {
    let low: [u8; 16] = std::array::from_fn(|x| gf256::mul(c, x as u8));
    let high: [u8; 16] = std::array::from_fn(|x| gf256::mul(c, (x as u8) << 4));
    // SAFETY: 16 bytes are read of each.
    let (low, high) =
        unsafe { (_mm_loadu_si128(low.as_ptr().cast()), _mm_loadu_si128(high.as_ptr().cast())) };
    Tables { low: _mm256_broadcastsi128_si256(low), high: _mm256_broadcastsi128_si256(high) }
}

#[target_feature(enable = "avx2")]
#[inline]
fn times(tables: &Tables, x: __m256i) -> __m256i {
    let nibble = _mm256_set1_epi8(15);
    let low = _mm256_shuffle_epi8(tables.low, _mm256_and_si256(x, nibble));
    let high = _mm256_and_si256(_mm256_srli_epi64::<4>(x), nibble);
    _mm256_xor_si256(low, _mm256_shuffle_epi8(tables.high, high))
}

/// # Safety
/// As [`scalar::xor`], on a processor with AVX2.
#[target_feature(enable = "avx2")]
unsafe fn xor(src: *const u8, out: *mut u8, bytes: usize) {
    let whole = bytes - bytes % WIDTH;
    for i in (0..whole).step_by(WIDTH) {
        // SAFETY: i + WIDTH <= bytes; unaligned access.
        unsafe {
            let sum = _mm256_xor_si256(
                _mm256_loadu_si256(out.add(i).cast()),
                _mm256_loadu_si256(src.add(i).cast()),
            );
            _mm256_storeu_si256(out.add(i).cast(), sum);
        }
    }
    // SAFETY: whole <= bytes.
    unsafe { scalar::xor(src.add(whole), out.add(whole), bytes - whole) }
}

/// # Safety
/// As [`scalar::xor`], on a processor with AVX2.
#[target_feature(enable = "avx2")]
unsafe fn gf_fma(c: u8, src: *const u8, out: *mut u8, bytes: usize) {
    let tables = tables(c);
    let whole = bytes - bytes % WIDTH;
    for i in (0..whole).step_by(WIDTH) {
        // SAFETY: i + WIDTH <= bytes; unaligned access.
        unsafe {
            let product = times(&tables, _mm256_loadu_si256(src.add(i).cast()));
            let sum = _mm256_xor_si256(_mm256_loadu_si256(out.add(i).cast()), product);
            _mm256_storeu_si256(out.add(i).cast(), sum);
        }
    }
    // SAFETY: whole <= bytes.
    unsafe {
        scalar::gf_fma_tail(c, src.add(whole), out.add(whole), bytes - whole);
    }
}

/// # Safety
/// As [`scalar::xor`], on a processor with AVX2.
#[target_feature(enable = "avx2")]
unsafe fn gf_mul(c: u8, src: *const u8, out: *mut u8, bytes: usize) {
    let tables = tables(c);
    let whole = bytes - bytes % WIDTH;
    for i in (0..whole).step_by(WIDTH) {
        // SAFETY: i + WIDTH <= bytes; unaligned access.
        unsafe {
            let product = times(&tables, _mm256_loadu_si256(src.add(i).cast()));
            _mm256_storeu_si256(out.add(i).cast(), product);
        }
    }
    // SAFETY: whole <= bytes.
    unsafe { scalar::gf_mul_tail(c, src.add(whole), out.add(whole), bytes - whole) }
}

/// # Safety
/// As [`scalar::real_fma`], on a processor with AVX2.
#[target_feature(enable = "avx2")]
unsafe fn real_fma(c: f64, src: *const u8, out: *mut u8, bytes: usize) {
    let factor = _mm256_set1_pd(c);
    let whole = bytes - bytes % WIDTH;
    for i in (0..whole).step_by(WIDTH) {
        // SAFETY: i + WIDTH <= bytes; unaligned access.
        unsafe {
            let product = _mm256_mul_pd(factor, _mm256_loadu_pd(src.add(i).cast()));
            let sum = _mm256_add_pd(_mm256_loadu_pd(out.add(i).cast()), product);
            _mm256_storeu_pd(out.add(i).cast(), sum);
        }
    }
    // SAFETY: whole <= bytes.
    unsafe { scalar::real_fma(c, src.add(whole), out.add(whole), bytes - whole) }
}
