//! 64 bytes at a time. Products over GF(2^8) by one instruction,
//! `vgf2p8affineqb`: multiplication with a constant is linear over bits, so an
//! 8 x 8 bit matrix does it, whatever the polynomial of the field.

use std::arch::x86_64::*;

use super::{Kernel, scalar};
use crate::checkpoint::codec::gf256;

const WIDTH: usize = 64;

/// This kernel where the processor has AVX-512F, AVX-512BW and GFNI.
pub fn kernel() -> Option<Kernel> {
    (is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("gfni"))
    .then_some(Kernel { name: "avx512-gfni", xor, gf_fma, gf_mul, real_fma })
}

/// The matrix of `x -> c x`. The instruction takes bit i of the result from row
/// 7 - i: bit j of that row is set where bit i of `c 2^j` is.
fn matrix(c: u8) -> u64 {
    let row = |i: u32| (0..8).fold(0, |row, j| row | (gf256::mul(c, 1 << j) >> i & 1) << j);
    u64::from_le_bytes(std::array::from_fn(|byte| row(7 - byte as u32)))
}

/// # Safety
/// As [`scalar::xor`], on a processor with AVX-512F.
#[target_feature(enable = "avx512f")]
unsafe fn xor(src: *const u8, out: *mut u8, bytes: usize) {
    let whole = bytes - bytes % WIDTH;
    for i in (0..whole).step_by(WIDTH) {
        // SAFETY: i + WIDTH <= bytes; unaligned access.
        unsafe {
            let sum = _mm512_xor_si512(
                _mm512_loadu_si512(out.add(i).cast()),
                _mm512_loadu_si512(src.add(i).cast()),
            );
            _mm512_storeu_si512(out.add(i).cast(), sum);
        }
    }
    // SAFETY: whole <= bytes.
    unsafe { scalar::xor(src.add(whole), out.add(whole), bytes - whole) }
}

/// # Safety
/// As [`scalar::xor`], on a processor with AVX-512F, AVX-512BW and GFNI.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
unsafe fn gf_fma(c: u8, src: *const u8, out: *mut u8, bytes: usize) {
    let matrix = _mm512_set1_epi64(matrix(c).cast_signed());
    let whole = bytes - bytes % WIDTH;
    for i in (0..whole).step_by(WIDTH) {
        // SAFETY: i + WIDTH <= bytes; unaligned access.
        unsafe {
            let x = _mm512_loadu_si512(src.add(i).cast());
            let product = _mm512_gf2p8affine_epi64_epi8::<0>(x, matrix);
            let sum = _mm512_xor_si512(_mm512_loadu_si512(out.add(i).cast()), product);
            _mm512_storeu_si512(out.add(i).cast(), sum);
        }
    }
    // SAFETY: whole <= bytes.
    unsafe {
        scalar::gf_fma_tail(c, src.add(whole), out.add(whole), bytes - whole);
    }
}

/// # Safety
/// As [`scalar::xor`], on a processor with AVX-512F, AVX-512BW and GFNI.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
unsafe fn gf_mul(c: u8, src: *const u8, out: *mut u8, bytes: usize) {
    let matrix = _mm512_set1_epi64(matrix(c).cast_signed());
    let whole = bytes - bytes % WIDTH;
    for i in (0..whole).step_by(WIDTH) {
        // SAFETY: i + WIDTH <= bytes; unaligned access.
        unsafe {
            let x = _mm512_loadu_si512(src.add(i).cast());
            let product = _mm512_gf2p8affine_epi64_epi8::<0>(x, matrix);
            _mm512_storeu_si512(out.add(i).cast(), product);
        }
    }
    // SAFETY: whole <= bytes.
    unsafe { scalar::gf_mul_tail(c, src.add(whole), out.add(whole), bytes - whole) }
}

/// # Safety
/// As [`scalar::real_fma`], on a processor with AVX-512F.
#[target_feature(enable = "avx512f")]
unsafe fn real_fma(c: f64, src: *const u8, out: *mut u8, bytes: usize) {
    let factor = _mm512_set1_pd(c);
    let whole = bytes - bytes % WIDTH;
    for i in (0..whole).step_by(WIDTH) {
        // SAFETY: i + WIDTH <= bytes; unaligned access.
        unsafe {
            let product = _mm512_mul_pd(factor, _mm512_loadu_pd(src.add(i).cast()));
            let sum = _mm512_add_pd(_mm512_loadu_pd(out.add(i).cast()), product);
            _mm512_storeu_pd(out.add(i).cast(), sum);
        }
    }
    // SAFETY: whole <= bytes.
    unsafe { scalar::real_fma(c, src.add(whole), out.add(whole), bytes - whole) }
}
