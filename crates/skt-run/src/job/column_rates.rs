//! The rates of process columns that the job measures itself (`--rates auto`).

use crate::protect::Chosen;
use skt_comm::{Comm, CommError, collect};
use skt_config::{RateSource, RunSpec};

/// The measured rates of all ranks; none if the run does not measure them.
pub(super) fn measured(spec: &RunSpec) -> &[u32] {
    spec.rates.as_ref().map_or(&[], RateSource::measured)
}

/// Whether the run measures rates, at its first start.
pub(super) fn are_measured(spec: &RunSpec) -> bool {
    matches!(spec.rates, Some(RateSource::Measured(_)))
}

/// The run with the rates of all ranks, if it measures them: those that an earlier start has kept
/// or, at the first start, those of DGEMM, of which this rank's is `gflops`. Collective.
pub(super) fn settle<C: Comm>(
    world: &C,
    spec: &RunSpec,
    kept: Option<&Chosen>,
    gflops: f64,
) -> Result<RunSpec, CommError> {
    if !are_measured(spec) {
        return Ok(spec.clone());
    }
    let rates = match kept {
        Some(kept) => RateSource::Measured(kept.rates.clone()),
        None => RateSource::from_measured(&collect::all_gather_slices(world, &[gflops])?.concat()),
    };
    Ok(RunSpec { rates: Some(rates), ..spec.clone() })
}

/// The rates of the process columns of the first test, as `--rates` takes them, if any are given or
/// measured.
pub(super) fn note(spec: &RunSpec) -> Option<String> {
    let source = spec.rates.as_ref()?;
    let rates = spec.tests().into_iter().next()?.rates;
    let rates: Vec<String> = rates.iter().map(f64::to_string).collect();
    let is_measured = !source.measured().is_empty();
    match (is_measured, rates.is_empty()) {
        (true, true) => Some("auto: about equal, so blocks go to process columns in turn".into()),
        (true, false) => Some(format!("auto: {}", rates.join(","))),
        (false, true) => None,
        (false, false) => Some(rates.join(",")),
    }
}
