//! Chooses a kernel of OpenBLAS that fits the processor.
//!
//! OpenBLAS chooses its kernel by the model of the processor, when it is loaded. A model newer than
//! the library gets the kernel of an old processor, whatever vectors it has: OpenBLAS 0.3.21 takes
//! `Prescott` for Emerald Rapids and reaches a sixth of the rate. The only way to name another
//! kernel is its environment variable, which it reads before `main`; so the process executes itself
//! again with that variable.

use std::env;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use skt_host::counters::Root;
use skt_host::counters::processor::{self, Vectors};
use skt_host::streams;
use skt_solver::blas::library::{self, BlasInfo};

pub(super) const VARIABLE: &str = "OPENBLAS_CORETYPE";

/// The variable with which a user names the kernel of this library, if it has one.
pub(crate) fn variable(library: &str) -> Option<&'static str> {
    match library {
        "OpenBLAS" => Some(VARIABLE),
        "BLIS" => Some("BLIS_ARCH_TYPE"),
        _ => None,
    }
}

/// The variable of the environment that names the kernel in use.
pub(crate) fn named_by(blas: &BlasInfo) -> Option<&'static str> {
    let name = variable(&blas.library)?;
    let value = env::var(name).ok()?;
    // A library that does not know the value takes another kernel.
    blas.kernel.as_ref().is_some_and(|kernel| kernel.eq_ignore_ascii_case(&value)).then_some(name)
}

/// Kernels by the vectors that they are made for: those of OpenBLAS and BLIS in lower case, then the
/// one of each that runs on any processor with these vectors.
const KERNELS: [(Vectors, &str, [&str; 2]); 6] = [
    (
        Vectors::Sse,
        "katmai coppermine northwood prescott banias core2 penryn dunnington nehalem atom nano \
         athlon opteron opteron_sse3 barcelona bobcat",
        ["Nehalem", "generic"],
    ),
    (Vectors::Avx, "sandybridge bulldozer piledriver steamroller", ["Sandybridge", "sandybridge"]),
    (Vectors::Avx2, "haswell zen zen2 zen3 excavator", ["Haswell", "haswell"]),
    (Vectors::Avx512, "skylakex cooperlake sapphirerapids skx knl zen4 zen5", ["SkylakeX", "skx"]),
    (
        Vectors::Neon,
        "armv8 cortexa53 cortexa55 cortexa57 cortexa72 cortexa73 neoversen1 thunderx thunderx2t99 \
         thunderx3t110 thunderx2 falkor tsv110 emag8180 vortex firestorm altra altramax",
        ["ARMV8", "cortexa57"],
    ),
    (Vectors::Sve, "armv8sve neoversev1 neoversen2 a64fx armsve", ["ARMV8SVE", "armsve"]),
];

/// The kernel of a library that fits any processor with these vectors; none if it cannot be named.
pub(crate) fn fitting(library: &str, vectors: Vectors) -> Option<&'static str> {
    let [openblas, blis] = KERNELS.iter().find(|(made_for, ..)| *made_for == vectors)?.2;
    match library {
        "OpenBLAS" => Some(openblas),
        "BLIS" => Some(blis),
        _ => None,
    }
}

/// The vectors that a kernel is made for; `None` for generic code and kernels that this program
/// does not know.
pub(crate) fn vectors_of(kernel: &str) -> Option<Vectors> {
    let is_it = |name: &str| name.eq_ignore_ascii_case(kernel);
    let known = KERNELS.iter().find(|(_, names, _)| names.split(' ').any(is_it));
    known.map(|(vectors, ..)| *vectors)
}

/// Whether this kernel is made for processors before AVX2 and FMA, or is generic code.
pub fn is_old(kernel: &str) -> bool {
    kernel.eq_ignore_ascii_case("generic")
        || matches!(vectors_of(kernel), Some(Vectors::Sse | Vectors::Avx))
}

/// Executes this program again, with its arguments and the same process id, if OpenBLAS has chosen
/// a kernel for processors before AVX2 and this processor has AVX2. The standard descriptors that
/// were closed when the process began are so again. Called first by processes that compute: before
/// MPI, threads and files. Returns if the kernel fits, if the variable is set already, or if the
/// system refuses, which a rule of `doctor` reports.
pub(super) fn take_one_that_fits() {
    if env::var_os(VARIABLE).is_some() {
        return;
    }
    let Some(kernel) = better(&library::loaded(), best_here) else { return };
    // The program's path, not `/proc/self/exe`, because the system names the process after it.
    let Ok(program) = env::current_exe() else { return };
    for fd in streams::closed() {
        // SAFETY: sets a flag of a descriptor that Rust's runtime has opened.
        unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    let mut arguments = env::args_os();
    let mut again = Command::new(program);
    again.arg0(arguments.next().unwrap_or_default()).args(arguments).env(VARIABLE, kernel);
    let _why_not = again.exec();
}

/// The kernel to name instead of the one in use, if that is old. `best` is the kernel for the
/// vectors of this processor.
fn better(blas: &BlasInfo, best: impl FnOnce() -> Option<&'static str>) -> Option<&'static str> {
    let has_several = blas.version.as_ref().is_some_and(|text| text.contains("DYNAMIC_ARCH"));
    let is_old = blas.kernel.as_deref().is_some_and(is_old);
    if blas.library == "OpenBLAS" && has_several && is_old { best() } else { None }
}

/// The kernel of OpenBLAS for the vectors of this processor. `None` without AVX2, and on Arm, where
/// the kernels for unknown processors, `ARMV8` and `ARMV8SVE`, have the vectors of all.
fn best_here() -> Option<&'static str> {
    let vectors = processor::read(&Root::this_machine()).vectors?;
    let is_new = [Vectors::Avx2, Vectors::Avx512].contains(&vectors);
    fitting("OpenBLAS", vectors).filter(|_| is_new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blas(library: &str, version: &str, kernel: &str) -> BlasInfo {
        let (version, kernel) = (Some(version.to_string()), Some(kernel.to_string()));
        BlasInfo { library: library.to_string(), path: None, version, kernel }
    }

    #[test]
    fn kernels_are_known_in_any_case() {
        assert_eq!(vectors_of("Nehalem"), Some(Vectors::Sse));
        assert_eq!(vectors_of("SKYLAKEX"), Some(Vectors::Avx512));
        assert_eq!(vectors_of("Bulldozer"), Some(Vectors::Avx));
        assert_eq!(vectors_of("neoversev1"), Some(Vectors::Sve));
        assert_eq!((vectors_of("generic"), vectors_of("riscv")), (None, None));
        let old = ["Generic", "Prescott", "Bulldozer", "Haswell", "ARMV8", "riscv"].map(is_old);
        assert_eq!(old, [true, true, true, false, false, false]);
    }

    #[test]
    fn an_old_kernel_is_replaced_on_a_newer_processor_only() {
        let many = "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH NO_AFFINITY Prescott";
        let one = "OpenBLAS 0.3.21 NO_AFFINITY Prescott";
        let best = Some("SkylakeX");
        for (library, version, kernel, here, want) in [
            ("OpenBLAS", many, "Prescott", best, best),
            // A processor without AVX2; a kernel that fits; no other kernel; another variable.
            ("OpenBLAS", many, "Prescott", None, None),
            ("OpenBLAS", many, "Zen", best, None),
            ("OpenBLAS", one, "Prescott", best, None),
            ("BLIS", many, "generic", best, None),
        ] {
            let found = better(&blas(library, version, kernel), || here);
            assert_eq!(found, want, "{library} {version} {kernel}");
        }
    }

    #[test]
    fn fitting_kernels_are_as_wide_as_the_processors_vectors() {
        use Vectors::{Avx, Avx2, Avx512, Neon, Sve};
        for vectors in [Avx, Avx2, Avx512, Neon, Sve] {
            for library in ["OpenBLAS", "BLIS"] {
                let kernel = fitting(library, vectors).unwrap();
                assert_eq!(vectors_of(kernel), Some(vectors), "{library} {kernel}");
            }
            assert_eq!(fitting("oneMKL", vectors), None);
        }
    }
}
