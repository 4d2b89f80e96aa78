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
    .then_some(Kernel {
        name: "avx512-gfni",
        xor,
        gf_fma,
        gf_fma_many: Some(gf_fma_many),
        gf_mul,
        real_fma,
    })
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
unsafe fn xor(acc: *const u8, src: *const u8, out: *mut u8, bytes: usize) {
    let whole = bytes - bytes % WIDTH;
    for i in (0..whole).step_by(WIDTH) {
        // SAFETY: i + WIDTH <= bytes; unaligned access.
        unsafe {
            let sum = _mm512_xor_si512(
                _mm512_loadu_si512(acc.add(i).cast()),
                _mm512_loadu_si512(src.add(i).cast()),
            );
            _mm512_storeu_si512(out.add(i).cast(), sum);
        }
    }
    // SAFETY: whole <= bytes.
    unsafe { scalar::xor(acc.add(whole), src.add(whole), out.add(whole), bytes - whole) }
}

/// # Safety
/// As [`scalar::xor`], on a processor with AVX-512F, AVX-512BW and GFNI.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
unsafe fn gf_fma(c: u8, acc: *const u8, src: *const u8, out: *mut u8, bytes: usize) {
    let matrix = _mm512_set1_epi64(matrix(c).cast_signed());
    let whole = bytes - bytes % WIDTH;
    for i in (0..whole).step_by(WIDTH) {
        // SAFETY: i + WIDTH <= bytes; unaligned access.
        unsafe {
            let x = _mm512_loadu_si512(src.add(i).cast());
            let product = _mm512_gf2p8affine_epi64_epi8::<0>(x, matrix);
            let sum = _mm512_xor_si512(_mm512_loadu_si512(acc.add(i).cast()), product);
            _mm512_storeu_si512(out.add(i).cast(), sum);
        }
    }
    // SAFETY: whole <= bytes.
    unsafe {
        scalar::gf_fma_tail(c, acc.add(whole), src.add(whole), out.add(whole), bytes - whole);
    }
}

/// Three sums at a time, then what is left.
///
/// # Safety
/// As [`scalar::xor`] for each of the distinct `outs`, as many as `c` has
/// elements, on a processor with AVX-512F, AVX-512BW and GFNI.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
unsafe fn gf_fma_many(c: &[u8], src: *const u8, outs: &[*mut u8], bytes: usize) {
    for (c, outs) in c.chunks(3).zip(outs.chunks(3)) {
        // SAFETY: the caller's promise, for a part of the sums.
        unsafe {
            match (c, outs) {
                (&[a, b, c], &[x, y, z]) => gf_fma_fused([a, b, c], src, [x, y, z], bytes),
                (&[a, b], &[x, y]) => gf_fma_fused([a, b], src, [x, y], bytes),
                _ => gf_fma(c[0], outs[0], src, outs[0], bytes),
            }
        }
    }
}

/// M sums with one look at `src`. Four vectors of one sum at a time: blocks
/// often lie a multiple of 4 KiB apart, and going from one to the next at each
/// vector would make loads wait for stores to the same place in another page.
///
/// # Safety
/// As [`gf_fma_many`].
#[target_feature(enable = "avx512f,avx512bw,gfni")]
unsafe fn gf_fma_fused<const M: usize>(
    c: [u8; M],
    src: *const u8,
    outs: [*mut u8; M],
    bytes: usize,
) {
    const VECTORS: usize = 4;
    const STEP: usize = VECTORS * WIDTH;
    let matrices = c.map(|c| _mm512_set1_epi64(matrix(c).cast_signed()));
    let whole = bytes - bytes % STEP;
    for i in (0..whole).step_by(STEP) {
        // SAFETY: i + STEP <= bytes; unaligned access.
        unsafe {
            let mut x = [_mm512_setzero_si512(); VECTORS];
            for (v, x) in x.iter_mut().enumerate() {
                *x = _mm512_loadu_si512(src.add(i + v * WIDTH).cast());
            }
            for (&matrix, out) in matrices.iter().zip(outs) {
                let mut sums = x;
                for (v, sum) in sums.iter_mut().enumerate() {
                    let product = _mm512_gf2p8affine_epi64_epi8::<0>(*sum, matrix);
                    let old = _mm512_loadu_si512(out.add(i + v * WIDTH).cast());
                    *sum = _mm512_xor_si512(old, product);
                }
                for (v, sum) in sums.into_iter().enumerate() {
                    _mm512_storeu_si512(out.add(i + v * WIDTH).cast(), sum);
                }
            }
        }
    }
    for (&c, out) in c.iter().zip(outs) {
        // SAFETY: whole <= bytes.
        unsafe { gf_fma(c, out.add(whole), src.add(whole), out.add(whole), bytes - whole) }
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
unsafe fn real_fma(c: f64, acc: *const u8, src: *const u8, out: *mut u8, bytes: usize) {
    let factor = _mm512_set1_pd(c);
    let whole = bytes - bytes % WIDTH;
    for i in (0..whole).step_by(WIDTH) {
        // SAFETY: i + WIDTH <= bytes; unaligned access.
        unsafe {
            let product = _mm512_mul_pd(factor, _mm512_loadu_pd(src.add(i).cast()));
            let sum = _mm512_add_pd(_mm512_loadu_pd(acc.add(i).cast()), product);
            _mm512_storeu_pd(out.add(i).cast(), sum);
        }
    }
    // SAFETY: whole <= bytes.
    unsafe { scalar::real_fma(c, acc.add(whole), src.add(whole), out.add(whole), bytes - whole) }
}
