//! The vector instructions of this processor for which there are kernels.

use std::sync::OnceLock;

/// Sets of vector instructions that have kernels, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Vectors {
    /// The instructions that every processor of the architecture has.
    Portable,
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
    /// The sets that this processor has, the best one last.
    pub fn all_here() -> Vec<Self> {
        let mut all = vec![Self::Portable];
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            all.push(Self::Avx2);
            if is_x86_feature_detected!("avx512f") {
                all.push(Self::Avx512);
            }
        }
        #[cfg(target_arch = "aarch64")]
        all.push(Self::Neon);
        all
    }

    /// The best set that this processor has.
    pub fn here() -> Self {
        static HERE: OnceLock<Vectors> = OnceLock::new();
        *HERE.get_or_init(|| Self::all_here().pop().expect("all have the portable one"))
    }

    /// The name of kernels for the set, for reports. Two kernels of one name round alike.
    pub fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => "AVX2",
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => "AVX-512",
            #[cfg(target_arch = "aarch64")]
            Self::Neon => "NEON",
        }
    }
}
