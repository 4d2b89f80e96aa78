//! The AVX-512 kernel, 64 bytes at a time. A product over GF(2^8) takes one instruction,
//! `vgf2p8affineqb`: multiplication by a constant is linear over bits, so an 8 x 8 bit matrix does
//! it, whatever the polynomial of the field.

use std::arch::x86_64::*;

use super::{Kernel, scalar};
use crate::codec::gf256;

/// This kernel, if the processor has AVX-512F, AVX-512BW and GFNI.
pub(crate) fn kernel() -> Option<Kernel> {
    (is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("gfni"))
    .then_some(KERNEL)
}

type Vector = __m512i;

/// # Safety
/// 64 bytes must be readable at `from`.
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn load(from: *const u8) -> Vector {
    // SAFETY: the caller's condition; unaligned access.
    unsafe { _mm512_loadu_si512(from.cast()) }
}

/// # Safety
/// 64 bytes must be writable at `to`.
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn store(to: *mut u8, x: Vector) {
    // SAFETY: the caller's condition; unaligned access.
    unsafe { _mm512_storeu_si512(to.cast(), x) }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn add(a: Vector, b: Vector) -> Vector {
    _mm512_xor_si512(a, b)
}

/// The matrix of `x -> c x`. The instruction takes bit i of the result from row
/// 7 - i: bit j of that row is set where bit i of `c 2^j` is.
fn matrix(c: u8) -> u64 {
    let row = |i: u32| (0..8).fold(0, |row, j| row | (gf256::mul(c, 1 << j) >> i & 1) << j);
    u64::from_le_bytes(std::array::from_fn(|byte| row(7 - byte as u32)))
}

#[target_feature(enable = "avx512f")]
#[inline]
fn factor(c: u8) -> Vector {
    _mm512_set1_epi64(matrix(c).cast_signed())
}

#[target_feature(enable = "avx512f,avx512bw,gfni")]
#[inline]
fn times(matrix: &Vector, x: Vector) -> Vector {
    _mm512_gf2p8affine_epi64_epi8::<0>(x, *matrix)
}

super::vectors::operations!("avx512-gfni", "avx512f,avx512bw,gfni");
