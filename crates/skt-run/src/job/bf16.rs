//! The library of a job whose products are of bf16: each rank selects one, or all refuse the job.

use crate::error::{JobError, agreed};
use skt_comm::Comm;
use skt_config::{GemmPrecision, RunSpec};
use skt_health::environment::BlasInfo;
use skt_health::environment::bf16::{self, Bf16SelfTest};
use skt_solver::blas::bf16::{Bf16Library, libraries, select};
use skt_solver::team::Team;

/// What to do where no library serves.
const REMEDY: &str = "load an OpenBLAS with sbgemm, oneMKL or AOCL-DLP on a processor with \
                      instructions for bf16 (docs/mxp.md), or take --gemm fp32; --gemm \
                      bf16-emulated computes the same factors anywhere";

/// Selects a library for products of bf16 if `spec` asks for it: the first one that is right and
/// faster than SGEMM, when all ranks test theirs at once. Returns its test. Collective.
pub(super) fn select_library(
    world: &Comm,
    team: &Team,
    spec: &RunSpec,
    blas: &BlasInfo,
    seconds: f64,
) -> Result<Option<Bf16SelfTest>, JobError> {
    if spec.gemm != GemmPrecision::Bf16 {
        return Ok(None);
    }
    world.barrier()?;
    let found = first_sound(team, seconds)?;
    let found = found.map_err(|flaws| refusal(&world.host(), blas, &flaws));
    let (library, tested) = agreed(world, found)?;
    select(library);
    Ok(Some(tested))
}

/// The first library without a flaw, with its test; or the flaws of all of them.
type Found = Result<(&'static Bf16Library, Bf16SelfTest), Vec<String>>;

fn first_sound(team: &Team, seconds: f64) -> Result<Found, JobError> {
    let mut flaws = Vec::new();
    for library in libraries() {
        let tested = bf16::run(library, team, seconds)?;
        match tested.flaw() {
            None => return Ok(Ok((library, tested))),
            Some(flaw) => flaws.push(format!("{}: {flaw}", tested.name())),
        }
    }
    Ok(Err(flaws))
}

/// Why a host has no library.
fn refusal(host: &str, blas: &BlasInfo, flaws: &[String]) -> String {
    let found = if flaws.is_empty() {
        let blas = blas.words();
        format!("no library multiplies bf16: {blas} has no such product, and there is no AOCL-DLP")
    } else {
        flaws.join("; ")
    };
    format!("--gemm bf16 on {host}: {found}: {REMEDY}")
}
