//! Ranks that differ from the others: each has an equal part of the matrix, and all wait for the
//! slowest.

use std::collections::BTreeMap;

use super::facts::HostFacts;
use super::finding::{Finding, FindingKind};
use crate::environment::kernel;
use crate::slow::alike::Alike;

/// How much slower than most ranks a rank is at least to be called slow, as a share.
const TOLERANCE: f64 = 0.2;

/// Finds hosts with ranks whose DGEMM is slower than that of most ranks.
pub(crate) fn slow_ranks(hosts: &[HostFacts]) -> Option<Finding> {
    let rates = |host: &HostFacts| host.measured().map(|it| it.mean_gflops).collect::<Vec<_>>();
    let all: Vec<f64> = hosts.iter().flat_map(rates).collect();
    // Two ranks have no majority.
    let alike = Alike::from_rates(&all).filter(|alike| alike.count > 2)?;
    let is_slow = |rate: &f64| alike.is_slow(*rate, TOLERANCE);
    let slow = hosts.iter().filter(|host| rates(host).iter().any(is_slow));
    let slow: Vec<String> = slow.map(|host| host.host.clone()).collect();
    let (count, of) = (all.iter().filter(|rate| is_slow(rate)).count(), all.len());
    let (slowest, most) = (all.iter().copied().fold(f64::INFINITY, f64::min), alike.reference);
    let measured = format!(
        "{count} of {of} ranks; the slowest does {slowest:.1}, most {most:.1} Gflop/s a core"
    );
    let what = "some ranks are slower than the others, which wait for them";
    let remedy = "leave these hosts out, or fix what else is found on them";
    let times = Some(most / slowest.max(1e-3));
    (count > 0).then(|| Finding::new(FindingKind::SlowRank, slow, what, measured, remedy, times))
}

/// Finds ranks with different kernels of the BLAS on hosts with the same processor: the environment
/// of some of the ranks names a kernel.
pub(crate) fn mixed_kernels(hosts: &[HostFacts]) -> Vec<Finding> {
    let mut alike: BTreeMap<Option<&str>, Vec<&HostFacts>> = BTreeMap::new();
    for host in hosts {
        alike.entry(host.counters.processor.name.as_deref()).or_default().push(host);
    }
    alike.into_values().filter_map(|hosts| mixed_among(&hosts)).collect()
}

fn mixed_among(hosts: &[&HostFacts]) -> Option<Finding> {
    // The rates of the ranks that use a kernel, with their hosts.
    let mut users: BTreeMap<&str, Vec<(f64, &str)>> = BTreeMap::new();
    for host in hosts {
        for rank in &host.ranks {
            if let (Some(kernel), Some(measured)) = (&rank.kernel, &rank.measured) {
                users.entry(kernel).or_default().push((measured.best_gflops, &host.host));
            }
        }
    }
    let mean = |of: &[(f64, &str)]| of.iter().map(|it| it.0).sum::<f64>() / of.len() as f64;
    let mut users: Vec<_> = users.into_iter().map(|(kernel, of)| (mean(&of), kernel, of)).collect();
    users.sort_by(|a, b| b.0.total_cmp(&a.0));
    let [(best, ..), others @ ..] = &users[..] else { return None };
    let slowest = others.last()?.0;
    let mut behind: Vec<String> =
        others.iter().flat_map(|(.., of)| of).map(|(_, host)| (*host).to_owned()).collect();
    behind.dedup();
    let words = |(rate, kernel, of): &(f64, &str, Vec<_>)| {
        format!("{kernel} {rate:.1} Gflop/s a core ({} rank(s))", of.len())
    };
    let measured = users.iter().map(words).collect::<Vec<_>>().join(", ");
    let library = hosts.iter().find_map(|host| Some(host.trial.as_ref()?.library.as_str()));
    let name = library.and_then(kernel::variable).unwrap_or("its variable");
    let remedy = format!(
        "the same BLAS and environment for all ranks: unset {name} (also in shell profiles), or \
         give each rank the same value (Open MPI: mpirun -x {name})"
    );
    let what = "ranks use different kernels of the BLAS on one processor";
    let times = Some(best / slowest.max(1e-3));
    Some(Finding::new(FindingKind::BlasKernel, behind, what, measured, remedy, times))
}
