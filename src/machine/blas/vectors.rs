//! The vector instructions of this processor.

use std::sync::OnceLock;

/// Sets of vector instructions for which there are kernels, from the least on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Vectors {
    /// Those that every processor of the architecture has.
    Baseline,
    /// AVX2 with FMA: 4 doubles, multiplied and added at once.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 F: 8 doubles.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Vectors {
    /// The best that this processor has.
    pub fn here() -> Self {
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
            Self::Baseline
        })
    }
}
