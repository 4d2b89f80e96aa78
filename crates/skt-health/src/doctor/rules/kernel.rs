//! A kernel of the BLAS that does not fit the processor.

use super::super::facts::HostFacts;
use super::super::finding::{Finding, FindingKind, Gain};
use super::finding;
use crate::environment::kernel::vectors_of;
use skt_host::counters::processor::Vectors;

/// The least gain that is worth a finding: trials differ by some percent.
const MIN_GAIN: f64 = 1.1;

/// The least gain over a kernel that is made for the vectors of the processor: it is the library's
/// own choice, and on a busy host trials differ by more.
const MIN_GAIN_OF_FITTING: f64 = 1.25;

/// Rates within this share are equal.
const EQUAL: f64 = 0.95;

/// Finds a kernel that is slower than another one that was tried.
pub(crate) fn old(host: &HostFacts) -> Option<Finding> {
    let trial = host.trial.as_ref()?;
    let (kernel, now) = (trial.kernel.as_ref()?, trial.gflops?);
    let fastest = trial.others.iter().map(|other| other.gflops).fold(0.0, f64::max);
    // The first one is made for the processor: others count only if they are clearly faster.
    let best = trial.others.iter().find(|other| other.gflops >= EQUAL * fastest)?;
    let times = best.gflops / now;
    let (has, made_for) = (host.counters.processor.vectors, vectors_of(kernel));
    let fits = made_for.is_some() && made_for >= has;
    if times < if fits { MIN_GAIN_OF_FITTING } else { MIN_GAIN } {
        return None;
    }
    let name_of = |vectors: Option<Vectors>, otherwise| vectors.map_or(otherwise, Vectors::name);
    let why = if fits {
        "which is slower here than another one".to_owned()
    } else {
        format!(
            "made for {}; this processor has {}",
            name_of(made_for, "other processors"),
            name_of(has, "other vectors")
        )
    };
    let unset = trial.others.iter().find(|other| other.value.is_none());
    let named = unset.map_or(String::new(), |it| format!(" because {} names it", it.variable));
    let what = format!("{} uses its kernel '{kernel}'{named}, {why}", trial.library);
    let measured = format!(
        "DGEMM {now:.1} Gflop/s a core, with the kernel {} {:.1}",
        best.kernel, best.gflops
    );
    let name = &best.variable;
    let remedy = match &best.value {
        Some(value) => format!("export {name}={value} (Open MPI: mpirun -x {name})"),
        None => format!("unset {name} (also in shell profiles and job scripts)"),
    };
    Some(finding(host, FindingKind::BlasKernel, what, measured, remedy, Gain::measured(times)))
}
