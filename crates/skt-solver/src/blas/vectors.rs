//! The vector instructions of this processor.

use std::sync::OnceLock;

/// Sets of vector instructions that have kernels, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Vectors {
    /// The instructions that every processor of the architecture has.
    Baseline,
    /// AVX2 with FMA: 4 doubles or 8 floats, with fused multiply-add.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 F: 8 doubles or 16 floats.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// NEON: 2 doubles or 4 floats, with fused multiply-add. Every processor of the architecture
    /// has it.
    #[cfg(target_arch = "aarch64")]
    Neon,
}

impl Vectors {
    /// The best set that this processor has.
    pub(crate) fn here() -> Self {
        static HERE: OnceLock<Vectors> = OnceLock::new();
        *HERE.get_or_init(|| {
            #[cfg(target_arch = "x86_64")]
            {
                let has_avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
                if has_avx2 && is_x86_feature_detected!("avx512f") {
                    return Self::Avx512;
                }
                if has_avx2 {
                    return Self::Avx2;
                }
            }
            #[cfg(target_arch = "aarch64")]
            return Self::Neon;
            #[cfg(not(target_arch = "aarch64"))]
            Self::Baseline
        })
    }
}

/// NEON's instructions, under the names that kernels for all instruction sets use.
#[cfg(target_arch = "aarch64")]
pub mod neon {
    use std::arch::aarch64::*;

    /// A vector of zeros.
    #[target_feature(enable = "neon")]
    #[inline]
    pub fn zero() -> float64x2_t {
        vdupq_n_f64(0.0)
    }

    /// `c - a b`, rounded once.
    #[target_feature(enable = "neon")]
    #[inline]
    pub(crate) fn fnmadd(a: float64x2_t, b: float64x2_t, c: float64x2_t) -> float64x2_t {
        vfmsq_f64(c, a, b)
    }

    /// A vector of zeros in single precision.
    #[target_feature(enable = "neon")]
    #[inline]
    pub(crate) fn zero_f32() -> float32x4_t {
        vdupq_n_f32(0.0)
    }

    /// `c - a b` in single precision, rounded once.
    #[target_feature(enable = "neon")]
    #[inline]
    pub(crate) fn fnmadd_f32(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t {
        vfmsq_f32(c, a, b)
    }

    /// The larger number in each lane.
    #[target_feature(enable = "neon")]
    #[inline]
    pub fn larger(a: int64x2_t, b: int64x2_t) -> int64x2_t {
        vbslq_s64(vcgtq_s64(a, b), a, b)
    }
}
