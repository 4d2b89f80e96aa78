//! The Neon kernel, 64 bytes at a time in four registers: a loop over single registers would spend
//! half of its instructions on the loop. A product over GF(2^8) takes two table look-ups as with
//! AVX2, with `tbl` as the look-up. Every 64-bit Arm processor has these instructions.

use std::arch::aarch64::*;
use std::array::from_fn;

use super::{Kernel, scalar, tables};

/// This kernel, which every processor of this architecture can run.
pub fn kernel() -> Kernel {
    KERNEL
}

type Vector = [uint8x16_t; 4];

/// The tables of a factor: its products with the low nibbles and with the high ones.
type Factor = [uint8x16_t; 2];

/// # Safety
/// 64 bytes must be readable at `from`.
#[target_feature(enable = "neon")]
#[inline]
unsafe fn load(from: *const u8) -> Vector {
    // SAFETY: the caller's condition; unaligned access.
    from_fn(|i| unsafe { vld1q_u8(from.add(16 * i)) })
}

/// # Safety
/// 64 bytes must be writable at `to`.
#[target_feature(enable = "neon")]
#[inline]
unsafe fn store(to: *mut u8, x: Vector) {
    for (i, part) in x.into_iter().enumerate() {
        // SAFETY: the caller's condition; unaligned access.
        unsafe { vst1q_u8(to.add(16 * i), part) };
    }
}

#[target_feature(enable = "neon")]
#[inline]
fn add(a: Vector, b: Vector) -> Vector {
    from_fn(|i| veorq_u8(a[i], b[i]))
}

#[target_feature(enable = "neon")]
#[inline]
fn factor(c: u8) -> Factor {
    // SAFETY: 16 bytes of each table are read.
    tables(c).map(|table| unsafe { vld1q_u8(table.as_ptr()) })
}

#[target_feature(enable = "neon")]
#[inline]
fn times(&[low, high]: &Factor, x: Vector) -> Vector {
    x.map(|x| {
        let low = vqtbl1q_u8(low, vandq_u8(x, vdupq_n_u8(15)));
        veorq_u8(low, vqtbl1q_u8(high, vshrq_n_u8::<4>(x)))
    })
}

super::vectors::operations!("neon", "neon");
