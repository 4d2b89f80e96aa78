//! NEON's instructions, under the names that kernels for all instruction sets use.

use std::arch::aarch64::*;

#[target_feature(enable = "neon")]
#[inline]
pub(super) fn zero() -> float64x2_t {
    vdupq_n_f64(0.0)
}

/// `c - a b`, rounded once.
#[target_feature(enable = "neon")]
#[inline]
pub(super) fn fnmadd(a: float64x2_t, b: float64x2_t, c: float64x2_t) -> float64x2_t {
    vfmsq_f64(c, a, b)
}

#[target_feature(enable = "neon")]
#[inline]
pub(super) fn zero_f32() -> float32x4_t {
    vdupq_n_f32(0.0)
}

/// `c - a b` in single precision, rounded once.
#[target_feature(enable = "neon")]
#[inline]
pub(super) fn fnmadd_f32(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t {
    vfmsq_f32(c, a, b)
}

#[target_feature(enable = "neon")]
#[inline]
pub(super) fn larger(a: int64x2_t, b: int64x2_t) -> int64x2_t {
    vbslq_s64(vcgtq_s64(a, b), a, b)
}
