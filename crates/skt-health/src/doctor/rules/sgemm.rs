//! An SGEMM that is wrong, or so slow that HPL-MxP gains little over HPL.

use super::super::facts::{HostFacts, RankMeasurement};
use super::super::finding::{Finding, FindingKind, Gain};
use super::finding;
use super::rate::{MIN_SHARE, lacks_cores};
use crate::environment::sgemm::SgemmSelfTest;

/// The least multiple of DGEMM's rate: vectors hold twice as many numbers of single precision.
const MIN_TIMES: f64 = 1.5;

/// What corrects both findings.
const REMEDY: &str = "a newer OpenBLAS, BLIS or the maker's library for runs of HPL-MxP \
                      (docs/user-guide.md, Another BLAS); HPL does not call SGEMM";

/// Finds an SGEMM that is wrong or slow. Rates count if no cause among the `known` findings holds
/// the cores back.
pub(crate) fn findings(host: &HostFacts, known: &[Finding]) -> Vec<Finding> {
    let slow = slow(host).filter(|_| !lacks_cores(known));
    wrong(host).into_iter().chain(slow).collect()
}

fn wrong(host: &HostFacts) -> Option<Finding> {
    let is_wrong = |measured: &RankMeasurement| !measured.sgemm.is_right();
    let ranks: Vec<_> =
        host.ranks.iter().filter(|it| it.measured.as_ref().is_some_and(is_wrong)).collect();
    let first = ranks.first()?;
    let SgemmSelfTest { error, .. } = first.measured.as_ref()?.sgemm;
    let error = error.map_or("no finite number".to_owned(), |error| {
        format!("{error:.1} times the largest error of rounding")
    });
    let measured = format!("rank {}: {error} ({} rank(s) in all)", first.rank, ranks.len());
    let what = "SGEMM's results are wrong: the BLAS does not multiply in single precision";
    let remedy = format!("no settings of the BLAS that lower its precision, or {REMEDY}");
    Some(finding(host, FindingKind::WrongSgemm, what, measured, remedy, None))
}

fn slow(host: &HostFacts) -> Option<Finding> {
    let sgemm = host.mean(|measured| Some(measured.sgemm.gflops_per_core))?;
    let dgemm = host.mean(|measured| Some(measured.best_gflops))?;
    let share = host.mean(|measured| Some(measured.sgemm.cpu_share))?;
    if share < MIN_SHARE || sgemm >= MIN_TIMES * dgemm {
        return None;
    }
    let measured = format!(
        "SGEMM {sgemm:.1} Gflop/s a core, {:.1} times DGEMM's {dgemm:.1}; a BLAS with kernels for \
         it reaches 2 times",
        sgemm / dgemm
    );
    let what = "SGEMM is hardly faster than DGEMM, so that HPL-MxP gains little over HPL";
    let gain = Gain::computed(2.0 * dgemm / sgemm);
    Some(finding(host, FindingKind::SlowSgemm, what, measured, REMEDY, gain))
}
