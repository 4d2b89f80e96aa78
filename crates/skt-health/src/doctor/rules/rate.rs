//! A low rate whose cause no other rule has found.

use super::super::facts::HostFacts;
use super::super::finding::{Finding, FindingKind, Gain};
use super::finding;
use crate::environment::selftest::MIN_OF_PEAK;
use skt_host::core_use::CoreUse;

/// The least share of the time that threads have a core on a host that does nothing else.
pub(super) const MIN_SHARE: f64 = 0.9;
/// The largest share of the time that a hypervisor may take.
const MAX_STOLEN: f64 = 0.05;

/// Kinds that explain why threads lack a core, or time.
const CROWDED: [FindingKind; 4] = [
    FindingKind::SharedCores,
    FindingKind::SmtSiblings,
    FindingKind::TooFewCores,
    FindingKind::Quota,
];

/// Whether a finding explains why threads lack a core, or time.
pub(super) fn lacks_cores(known: &[Finding]) -> bool {
    known.iter().any(|it| it.kind == FindingKind::OtherPrograms || CROWDED.contains(&it.kind))
}

/// Finds low rates that the `known` findings do not explain.
pub(crate) fn low(host: &HostFacts, known: &[Finding]) -> Vec<Finding> {
    let knows = |kinds: &[FindingKind]| known.iter().any(|finding| kinds.contains(&finding.kind));
    if knows(&CROWDED) {
        return Vec::new();
    }
    let others = others(host);
    // The best call of a crowded core is no measure of the BLAS.
    let below = below(host).filter(|_| others.is_none() && !knows(&[FindingKind::BlasKernel]));
    others.into_iter().chain(below).collect()
}

fn others(host: &HostFacts) -> Option<Finding> {
    let share = host.mean(|measured| Some(measured.cpu_share))?;
    let uses = || host.measured().map(|measured| &measured.core_use);
    let stolen = uses().map(|used| used.stolen_share).fold(0.0, f64::max);
    if share >= MIN_SHARE && stolen <= MAX_STOLEN {
        return None;
    }
    // Some kernels count stolen time as a thread's own, others do not.
    let waited = host.mean(|measured| Some(measured.core_use.lost_share())).unwrap_or(0.0);
    let local = waited.max(1.0 - share - stolen);
    let (what, remedy) = if stolen > MAX_STOLEN.max(local) {
        (
            "the hypervisor gives the cores to other machines",
            "a dedicated machine: dedicated or isolated cores of the cloud",
        )
    } else {
        (
            "other programs use the cores",
            "end them (top -H lists more), or ask for the whole host (sbatch --exclusive)",
        )
    };
    let all = CoreUse {
        had_share: Some(1.0 - local),
        stolen_share: stolen,
        others: uses().find_map(|used| used.others.clone()),
        ..CoreUse::default()
    };
    let users = all.users();
    let users = if users.is_empty() { users } else { format!("; {users}") };
    let measured =
        format!("the threads had a core for {:.0} % of the time{users}", 100.0 * (1.0 - local));
    let left = ((1.0 - local) * (1.0 - stolen)).max(1e-3);
    Some(finding(
        host,
        FindingKind::OtherPrograms,
        what,
        measured,
        remedy,
        Gain::computed(1.0 / left),
    ))
}

fn below(host: &HostFacts) -> Option<Finding> {
    let best = host.mean(|measured| Some(measured.best_gflops))?;
    let units = host.mean(|measured| measured.units(&host.counters.processor))?;
    if best >= MIN_OF_PEAK * units {
        return None;
    }
    let measured = format!(
        "{best:.1} of {units:.1} Gflop/s a core ({:.0} %); a BLAS that fits reaches 90 %",
        100.0 * best / units
    );
    let what = "DGEMM is far below what the vector units do";
    let remedy = "a newer OpenBLAS, BLIS or the maker's library (docs/user-guide.md, Another BLAS); \
                  perf stat -e cycles,instructions shows whether the cores wait for memory";
    Some(finding(
        host,
        FindingKind::BelowPeak,
        what,
        measured,
        remedy,
        Gain::computed(0.9 * units / best),
    ))
}
