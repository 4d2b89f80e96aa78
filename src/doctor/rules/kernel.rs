//! A kernel of the BLAS that does not fit the processor.

use super::super::facts::HostFacts;
use super::super::finding::{Finding, Gain, Kind};
use super::super::kernel::vectors_of;
use super::finding;

/// The least gain that is worth a finding: trials differ by some percent.
const LEAST_GAIN: f64 = 1.1;

/// Rates within this share are equal.
const EQUAL: f64 = 0.95;

/// Finds a kernel that is slower than another one that was tried.
pub fn old(host: &HostFacts) -> Option<Finding> {
    let trial = host.trial.as_ref()?;
    let (kernel, now) = (trial.kernel.as_ref()?, trial.gflops?);
    let fastest = trial.others.iter().map(|other| other.gflops).fold(0.0, f64::max);
    // The first one is made for the processor: others count only if they are clearly faster.
    let best = trial.others.iter().find(|other| other.gflops >= EQUAL * fastest)?;
    let times = best.gflops / now;
    if times < LEAST_GAIN {
        return None;
    }
    let has = host.counters.processor.vectors.map_or("other vectors", |vectors| vectors.name());
    let made_for = vectors_of(kernel).map_or("other processors", |vectors| vectors.name());
    let what = format!(
        "{} uses its kernel '{kernel}', made for {made_for}; this processor has {has}",
        trial.library
    );
    let measured = format!(
        "DGEMM {now:.1} Gflop/s a core, with the kernel {} {:.1}",
        best.kernel, best.gflops
    );
    let (name, value) = (&best.variable, &best.value);
    let remedy = format!("export {name}={value} (Open MPI: mpirun -x {name})");
    Some(finding(host, Kind::BlasKernel, what, measured, remedy, Gain::measured(times)))
}
