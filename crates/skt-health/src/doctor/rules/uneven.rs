//! Ranks that are slower than the others: each has an equal part of the matrix, and all wait.

use std::collections::BTreeMap;

use super::super::facts::HostFacts;
use super::super::finding::{Finding, FindingKind, Gain};
use crate::environment::kernel;
use crate::slow::upper_median;

/// The least share of the median that a rank reaches.
const LEAST: f64 = 0.8;

/// Finds hosts with ranks whose DGEMM is slower than that of most ranks.
pub(crate) fn slow_ranks(hosts: &[HostFacts]) -> Option<Finding> {
    let rates = |host: &HostFacts| -> Vec<f64> {
        host.measured().map(|measured| measured.mean_gflops).collect()
    };
    let all: Vec<f64> = hosts.iter().flat_map(rates).collect();
    // Two ranks have no majority.
    if all.len() <= 2 {
        return None;
    }
    let median = upper_median(all.iter().copied());
    let slow = |host: &&HostFacts| rates(host).into_iter().any(|rate| rate < LEAST * median);
    let slow: Vec<String> = hosts.iter().filter(slow).map(|host| host.host.clone()).collect();
    let slowest = all.iter().copied().fold(f64::INFINITY, f64::min);
    let count = all.iter().filter(|rate| **rate < LEAST * median).count();
    if slow.is_empty() {
        return None;
    }
    Some(Finding {
        kind: FindingKind::SlowRank,
        hosts: slow,
        what: "some ranks are slower than the others, which wait for them".to_owned(),
        measured: format!(
            "{count} of {} ranks; the slowest does {slowest:.1}, most {median:.1} Gflop/s a core",
            all.len()
        ),
        remedy: "leave these hosts out, or fix what else is found on them".to_owned(),
        gain: Gain::measured(median / slowest.max(1e-3)),
    })
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

/// The rates of the ranks that use a kernel, and their hosts.
#[derive(Default)]
struct Users<'a> {
    rates: Vec<f64>,
    hosts: Vec<&'a str>,
}

impl Users<'_> {
    fn mean(&self) -> f64 {
        self.rates.iter().sum::<f64>() / self.rates.len() as f64
    }
}

fn mixed_among(hosts: &[&HostFacts]) -> Option<Finding> {
    let mut users: BTreeMap<&str, Users> = BTreeMap::new();
    for host in hosts {
        for rank in &host.ranks {
            let Some((kernel, measured)) = rank.kernel.as_ref().zip(rank.measured.as_ref()) else {
                continue;
            };
            let of = users.entry(kernel).or_default();
            of.rates.push(measured.best_gflops);
            of.hosts.push(&host.host);
        }
    }
    let mut users: Vec<(&str, Users)> = users.into_iter().collect();
    users.sort_by(|(_, a), (_, b)| b.mean().total_cmp(&a.mean()));
    let [(_, best), others @ ..] = &users[..] else { return None };
    let slowest = others.last()?.1.mean();
    let mut behind: Vec<String> =
        others.iter().flat_map(|(_, of)| &of.hosts).map(|host| (*host).to_owned()).collect();
    behind.dedup();
    let words = |(kernel, of): &(&str, Users)| {
        format!("{kernel} {:.1} Gflop/s a core ({} rank(s))", of.mean(), of.rates.len())
    };
    let library = hosts.iter().find_map(|host| Some(host.trial.as_ref()?.library.as_str()));
    let remedy = match library.and_then(kernel::variable) {
        Some(name) => format!(
            "the same environment for all ranks: unset {name} (also in shell profiles), \
             or give each rank the same value (Open MPI: mpirun -x {name})"
        ),
        None => "the same BLAS and the same environment for all ranks".to_owned(),
    };
    Some(Finding {
        kind: FindingKind::BlasKernel,
        hosts: behind,
        what: "ranks use different kernels of the BLAS on one processor".to_owned(),
        measured: users.iter().map(words).collect::<Vec<_>>().join(", "),
        remedy,
        gain: Gain::measured(best.mean() / slowest.max(1e-3)),
    })
}
