//! Plain loops, compiled for several sets of vector instructions.
//!
//! The compiler fuses no multiplication with an addition unless asked to, so the bits are the same
//! with every set.

pub(crate) trait Loops {
    type Output;

    /// Runs them. To be marked `#[inline(always)]`, as all that it calls: only what is inlined is
    /// compiled for the set.
    fn run(self) -> Self::Output;
}

pub(crate) fn vectorized<L: Loops>(loops: L) -> L::Output {
    #[cfg(target_arch = "x86_64")]
    {
        // AVX-512 DQ multiplies and converts 64-bit integers.
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq") {
            // SAFETY: the processor has these instructions.
            return unsafe { with_avx512(loops) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has these instructions.
            return unsafe { with_avx2(loops) };
        }
    }
    loops.run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq")]
fn with_avx512<L: Loops>(loops: L) -> L::Output {
    loops.run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn with_avx2<L: Loops>(loops: L) -> L::Output {
    loops.run()
}
