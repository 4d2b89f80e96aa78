//! The rates of process columns that the job measures itself (`--rates auto`).

use super::error::JobError;
use crate::protect::{self, Settings, ledger};
use skt_checkpoint::checkpoint::agree::Resume;
use skt_config::{RateSource, RunSpec};
use skt_solver::comm::{Comm, collect};
use skt_store::store::Store;

/// The measured rates of all ranks; none if the run does not measure them.
pub(super) fn measured(spec: &RunSpec) -> &[u32] {
    spec.rates.as_ref().map_or(&[], RateSource::measured)
}

/// The run with the rates of all ranks, if it is to measure them: those that an earlier start has
/// kept in the ledger or in images or, at the first start, those of DGEMM, of which this rank's is
/// `gflops`. One process of each node `is_looking` for images. The inner error is why neither is
/// possible, the same on all ranks. Collective.
pub(super) fn settle<C: Comm>(
    world: &C,
    spec: &RunSpec,
    settings: &Settings,
    (store, is_looking): (&dyn Store, bool),
    gflops: f64,
) -> Result<Result<RunSpec, String>, JobError> {
    if !matches!(spec.rates, Some(RateSource::Measured(_))) {
        return Ok(Ok(spec.clone()));
    }
    let with = |rates| Ok(Ok(RunSpec { rates: Some(rates), ..spec.clone() }));
    if settings.is_on() && settings.resume != Resume::Never {
        let kept = ledger::kept_rates(world, store, &settings.run_id)?;
        if !kept.is_empty() {
            return with(RateSource::Measured(kept));
        }
        let seen = is_looking.then(|| protect::images::newest_rates(settings)).flatten();
        let seen = collect::all_gather_json(world, &seen)?.into_iter().flatten();
        match seen.max_by_key(|(generation, _)| *generation) {
            Some((_, rates)) if rates.is_empty() => return Ok(Err(NOT_MEASURED.to_owned())),
            Some((_, rates)) => return with(RateSource::Measured(rates)),
            None => {}
        }
    }
    let rates = collect::all_gather_slices(world, &[gflops])?.concat();
    with(RateSource::from_measured(&rates))
}

const NOT_MEASURED: &str = "--rates auto: the images of this run are those of a start without it; \
    continue with the --rates of that start, or begin from scratch (--resume never)";

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
