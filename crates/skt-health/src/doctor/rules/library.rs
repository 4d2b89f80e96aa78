//! Another BLAS than the one that is called by default.

use super::super::facts::HostFacts;
use super::super::finding::{Finding, FindingKind, Gain};
use super::finding;
use crate::environment::library::RatedBlas;
use skt_terms::shown::shell_quoted;

/// The least gain that is worth a finding.
const MIN_GAIN: f64 = 1.05;

/// Finds a library that is faster than the first, which is called by default.
pub(crate) fn faster(host: &HostFacts) -> Option<Finding> {
    let rate = |it: &RatedBlas| it.gflops_per_core;
    let default = host.libraries.first()?;
    let now = rate(default)?;
    let (best, fastest) = host
        .libraries
        .iter()
        .filter_map(|it| Some((it, rate(it)?)))
        .max_by(|(_, a), (_, b)| a.total_cmp(b))?;
    let times = fastest / now;
    if times < MIN_GAIN {
        return None;
    }
    let name = &best.name;
    let what = format!("the BLAS {name} is faster here than {}", default.name);
    let measured = format!("DGEMM {now:.1} Gflop/s a core, with {name} {fastest:.1}");
    let remedy = format!("--blas {}, or --blas auto", shell_quoted(name));
    Some(finding(host, FindingKind::FasterBlas, what, measured, remedy, Gain::measured(times)))
}
