//! The libraries that a job chooses for itself: with `--blas auto` all ranks agree on one, and load
//! it before their first call; with `--gemm bf16` each rank selects one, or all refuse the job.
//!
//! With `--blas auto` a restart takes the library that the run's data was computed with. Otherwise all ranks measure
//! one library after the other at the same time, in rounds, so that what else a node does slows all
//! of them alike.

use crate::error::{JobError, agreed};
use crate::protect::RunBlas;
use skt_comm::{Comm, CommError, collect};
use skt_config::{GemmPrecision, RunSpec};
use skt_health::environment::BlasInfo;
use skt_health::environment::bf16::{self, Bf16SelfTest};
use skt_health::environment::library::{
    AUTO, AutoTrials, BlasChoice, ChosenBlas, KnownBlas, LibraryId, ROUNDS, RatedBlas, fastest,
    on_all,
};
use skt_host::messages;
use skt_host::waits::Announced;
use skt_solver::blas::bf16::{libraries, select};
use skt_solver::team::Team;

/// The library that all ranks are to call, and what reports contain of it.
type Agreed = (LibraryId, BlasChoice);

/// The BLAS of this rank, if the run names `wanted`, and this process has chosen `before`. If the
/// job is to choose it, all ranks agree on it, and it is loaded; what fails then is in the result.
/// `kept` is the one of an earlier start. Collective.
pub fn settle(
    world: &Comm,
    wanted: Option<&str>,
    before: &ChosenBlas,
    kept: Option<&RunBlas>,
) -> Result<ChosenBlas, CommError> {
    if wanted != Some(AUTO) {
        return Ok(before.clone());
    }
    let _wait = Announced::begin("all ranks to choose their BLAS");
    let own = before.trials.as_deref();
    let at = format!("rank {} on {}", world.rank(), world.host());
    // A rank knows nothing of the libraries if it could not read that it is to choose.
    let all: Vec<(String, Option<KnownBlas>)> =
        collect::all_gather_json(world, &(at, own.map(AutoTrials::known)))?;
    let ranks: Vec<_> = all.into_iter().filter_map(|(at, known)| Some((at, known?))).collect();
    let agreed = match agreed_before(&ranks, kept) {
        Some(agreed) => Ok(agreed),
        None => fastest_on_all(world, &ranks, own)?,
    };
    let mut blas = before.clone();
    let settled = agreed.and_then(|(library, choice)| {
        let is_news = !ranks.iter().any(|(_, known)| known.settled.is_some());
        if world.rank() == 0 && is_news {
            messages::print(format_args!("blas: auto takes {}", choice.words()));
        }
        (blas.files, blas.choice) = (library.files.clone(), Some(choice.clone()));
        let loaded = own.map_or(Ok(()), |own| own.settle(&library, &choice));
        loaded.map_err(|why| refusal(&library, kept, &why))
    });
    blas.failure = before.failure.clone().or(settled.err());
    Ok(blas)
}

/// Why this rank cannot call the library that all are to call.
fn refusal(library: &LibraryId, kept: Option<&RunBlas>, why: &str) -> String {
    match kept {
        None => format!("{}: {why}", library.name),
        Some(kept) => format!(
            "this run was computed with the BLAS {}: {why}. Install the same library there, or \
             continue with other last bits of x by another --blas",
            kept.called.shown()
        ),
    }
}

/// The library if nothing is to be measured: a rank calls one already, which may be preloaded, or
/// an earlier start has called it.
fn agreed_before(ranks: &[(String, KnownBlas)], kept: Option<&RunBlas>) -> Option<Agreed> {
    if let Some(settled) = ranks.iter().find_map(|(_, known)| known.settled.clone()) {
        return Some(settled);
    }
    let library = kept?.id();
    let why = "an earlier start of this run has called it".to_owned();
    let choice = BlasChoice { library: library.name.clone(), why, tried: Vec::new() };
    Some((library, choice))
}

/// The fastest library, by the slowest rank of each. The inner error is why there is none.
/// Collective.
fn fastest_on_all(
    world: &Comm,
    ranks: &[(String, KnownBlas)],
    own: Option<&AutoTrials>,
) -> Result<Result<Agreed, String>, CommError> {
    let tried: Vec<_> = ranks.iter().map(|(at, known)| (at.clone(), known.tried.clone())).collect();
    let libraries = on_all(&tried);
    let mut rated: Vec<RatedBlas> = libraries.iter().map(RatedBlas::unmeasured).collect();
    let serving: Vec<usize> = (0..rated.len()).filter(|&at| rated[at].refused.is_none()).collect();
    // One alone needs no rate.
    if serving.len() > 1 {
        let ids: Vec<&LibraryId> = serving.iter().map(|&at| &libraries[at].id).collect();
        let results = measure(world, &ids, own)?;
        for (&at, result) in serving.iter().zip(results) {
            match result {
                Ok(gflops) => rated[at].gflops_per_core = Some(gflops),
                Err(why) => rated[at].refused = Some(why),
            }
        }
    }
    Ok(fastest(&rated).map(|(at, why)| {
        let library = libraries[at].id.clone();
        let choice = BlasChoice { library: library.name.clone(), why, tried: rated };
        (library, choice)
    }))
}

/// The rates of libraries that all ranks have, on the slowest rank, or why one of them has none.
/// The same on all ranks. Collective.
fn measure(
    world: &Comm,
    libraries: &[&LibraryId],
    own: Option<&AutoTrials>,
) -> Result<Vec<Result<f64, String>>, CommError> {
    let mut rates = vec![0.0f64; libraries.len()];
    let mut failures = vec![String::new(); libraries.len()];
    for _ in 0..ROUNDS {
        for (at, library) in libraries.iter().enumerate() {
            world.barrier()?;
            let Some(own) = own.filter(|_| failures[at].is_empty()) else { continue };
            match own.measure(library) {
                Ok(gflops) => rates[at] = rates[at].max(gflops),
                Err(why) => {
                    failures[at] = format!("rank {} on {}: {why}", world.rank(), world.host())
                }
            }
        }
    }
    if own.is_none() {
        // The job is refused for another reason.
        rates.fill(f64::INFINITY);
    }
    collect::all_reduce(world, &mut rates, f64::min)?;
    let mut results = Vec::new();
    for (rate, failure) in rates.into_iter().zip(failures) {
        let why = collect::first_text(world, &failure)?;
        results.push(why.map_or(Ok(rate), Err));
    }
    Ok(results)
}

/// Selects a library for products of bf16 if `spec` asks for it: the first one that is right and
/// faster than SGEMM, when all ranks test theirs at once. Returns its test. Collective.
pub(super) fn select_bf16(
    world: &Comm,
    team: &Team,
    spec: &RunSpec,
    blas: &BlasInfo,
    seconds: f64,
) -> Result<Option<Bf16SelfTest>, JobError> {
    const REMEDY: &str = "load an OpenBLAS with sbgemm, oneMKL or AOCL-DLP on a processor with \
                          instructions for bf16 (docs/mxp.md), or take --gemm fp32; --gemm \
                          bf16-emulated computes the same factors anywhere";
    if spec.gemm != GemmPrecision::Bf16 {
        return Ok(None);
    }
    world.barrier()?;
    let (mut found, mut flaws) = (None, Vec::new());
    for library in libraries() {
        let tested = bf16::run(library, team, seconds)?;
        let Some(flaw) = tested.flaw() else {
            found = Some((library, tested));
            break;
        };
        flaws.push(format!("{}: {flaw}", tested.name()));
    }
    if flaws.is_empty() {
        let blas = blas.words();
        flaws.push(format!(
            "no library multiplies bf16: {blas} has no such product, and there is no AOCL-DLP"
        ));
    }
    let (host, flaws) = (world.host(), flaws.join("; "));
    let why = format!("--gemm bf16 on {host}: {flaws}: {REMEDY}");
    let (library, tested) = agreed(world, found.ok_or(why))?;
    select(library);
    Ok(Some(tested))
}
