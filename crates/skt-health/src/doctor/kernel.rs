//! Kernels of OpenBLAS and BLIS that fit a processor.

use crate::environment::kernel::{variable, vectors_of};
use skt_host::counters::processor::{Processor, Vectors};

/// The kernels that fit a processor, as (variable, value), the most likely one first. Empty for a
/// library whose kernels cannot be named, and for a processor that this program does not know.
pub(crate) fn fitting(library: &str, processor: &Processor) -> Vec<(&'static str, &'static str)> {
    let Some(variable) = variable(library) else { return Vec::new() };
    let Some(vectors) = processor.vectors else { return Vec::new() };
    let names: &[&str] = match library {
        "OpenBLAS" => openblas_kernels(vectors, processor),
        _ => blis_kernels(vectors, processor),
    };
    names.iter().map(|name| (variable, *name)).collect()
}

fn openblas_kernels(vectors: Vectors, processor: &Processor) -> &'static [&'static str] {
    match (vectors, processor.arm_part) {
        (Vectors::Avx512, _) => &["SkylakeX", "Haswell"],
        (Vectors::Avx2, _) => &["Haswell"],
        (Vectors::Avx, _) => &["Sandybridge"],
        (Vectors::Sse, _) => &[],
        (_, Some((0x46, 0x001))) => &["A64FX", "ARMV8SVE"],
        (_, Some((0x41, 0xd40 | 0xd4f | 0xd84))) => &["NEOVERSEV1", "NEOVERSEN1"],
        (_, Some((0x41, 0xd49 | 0xd8e))) => &["NEOVERSEN2", "NEOVERSEN1"],
        (_, Some((0x41, 0xd0b | 0xd0c))) => &["NEOVERSEN1"],
        (_, Some((0x41, 0xd08))) => &["CORTEXA72"],
        (Vectors::Sve, _) => &["ARMV8SVE", "NEOVERSEN1"],
        (Vectors::Neon, _) => &["NEOVERSEN1", "ARMV8"],
    }
}

fn blis_kernels(vectors: Vectors, processor: &Processor) -> &'static [&'static str] {
    match (vectors, processor.is_amd, processor.arm_part) {
        (Vectors::Avx512, true, _) => &["zen4", "zen3"],
        (Vectors::Avx512, false, _) => &["skx", "haswell"],
        (Vectors::Avx2, true, _) => &["zen3", "zen2", "zen"],
        (Vectors::Avx2, false, _) => &["haswell"],
        (Vectors::Avx, ..) => &["sandybridge"],
        (Vectors::Sse, ..) => &[],
        (_, _, Some((0x46, 0x001))) => &["a64fx", "armsve"],
        (Vectors::Sve, ..) => &["armsve", "firestorm"],
        (Vectors::Neon, ..) => &["firestorm", "thunderx2", "cortexa57"],
    }
}

/// The share of the vector units below which another kernel is tried, whatever the name of the one
/// in use: one that fits reaches nine tenths.
const SUSPICIOUS: f64 = 0.75;

/// Whether other kernels are worth a trial: the one in use is made for narrower vectors than the
/// processor has or is not known, or it reaches a small part of what the vector units do.
pub(crate) fn is_doubtful(
    kernel: Option<&str>,
    processor: &Processor,
    best_gflops: f64,
    units_gflops: Option<f64>,
) -> bool {
    let is_slow = units_gflops.is_some_and(|units| best_gflops < SUSPICIOUS * units);
    is_slow || kernel.and_then(vectors_of) < processor.vectors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(vectors: Vectors, is_amd: bool, arm_part: Option<(u64, u64)>) -> Processor {
        Processor { vectors: Some(vectors), is_amd, arm_part, ..Processor::default() }
    }

    #[test]
    fn a_narrow_or_unknown_kernel_is_doubtful_and_so_is_a_slow_one() {
        let avx512 = with(Vectors::Avx512, false, None);
        let doubts = |kernel: &str, best| is_doubtful(Some(kernel), &avx512, best, Some(100.0));
        assert!(doubts("Nehalem", 90.0) && doubts("Zen", 90.0) && doubts("generic", 90.0));
        assert!(!doubts("SkylakeX", 90.0) && doubts("SkylakeX", 50.0));
        let sve = with(Vectors::Sve, false, None);
        assert!(is_doubtful(Some("ARMV8"), &sve, 1.0, None));
        assert!(!is_doubtful(Some("NEOVERSEV1"), &sve, 1.0, None));
        assert!(!is_doubtful(Some("ARMV8"), &with(Vectors::Neon, false, None), 1.0, None));
    }

    #[test]
    fn fitting_kernels_are_as_wide_as_the_processors_vectors() {
        let processors = [
            with(Vectors::Avx512, true, None),
            with(Vectors::Avx512, false, None),
            with(Vectors::Avx2, true, None),
            with(Vectors::Avx2, false, None),
            with(Vectors::Avx, false, None),
            with(Vectors::Sve, false, Some((0x46, 0x001))),
            with(Vectors::Sve, false, Some((0x41, 0xd4f))),
            with(Vectors::Neon, false, Some((0x41, 0xd08))),
            with(Vectors::Neon, false, None),
        ];
        for processor in &processors {
            for library in ["OpenBLAS", "BLIS"] {
                let all = fitting(library, processor);
                assert_eq!(vectors_of(all[0].1), processor.vectors, "{library} {all:?}");
                assert!(all.iter().all(|(_, value)| vectors_of(value).is_some()), "{all:?}");
            }
            assert_eq!(fitting("oneMKL", processor), []);
        }
    }
}
