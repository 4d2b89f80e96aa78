//! Why a machine is slow, before an hour is lost: findings with their remedies.
//!
//! [`facts`] holds what is known of each host and rank, from the counters of
//! [`skt_host::counters`] and from a measurement of some seconds (`measure`).
//! [`diagnose`] is pure: from facts to findings. `rules` is the table of what may be wrong with a
//! host, and compares ranks. [`gather`] collects the facts of all ranks, `doctor --hosts` probes
//! hosts on which no rank runs yet, and [`report`] shows the result.

pub mod facts;
pub mod finding;
pub mod gather;
mod measure;
pub mod report;
mod rules;

#[cfg(test)]
mod tests;

use crate::environment::BlasInfo;
use facts::HostFacts;
use finding::{Finding, FindingKind};
use skt_host::counters::{Counters, Root};
use skt_host::host_names::short_names;
use skt_host::launcher_rank;

/// The findings on all hosts, those that promise most first. The same finding on several hosts is
/// one.
pub fn diagnose(hosts: &[HostFacts]) -> Vec<Finding> {
    let mut found = joined(hosts.iter().flat_map(rules::for_host));
    found.extend(rules::slow_ranks(hosts));
    sort(&mut found);
    found
}

/// Sorts findings by what they promise; those that promise nothing keep their order at the end.
pub fn sort(found: &mut [Finding]) {
    found.sort_by(|a, b| b.times().total_cmp(&a.times()));
}

/// Joins findings of several hosts that are equal; the measurement is that of the host with the
/// largest gain.
pub fn joined(all: impl Iterator<Item = Finding>) -> Vec<Finding> {
    let mut found: Vec<Finding> = Vec::new();
    for finding in all {
        let is_same = |other: &&mut Finding| {
            (other.kind, &other.what, &other.remedy)
                == (finding.kind, &finding.what, &finding.remedy)
        };
        let Some(other) = found.iter_mut().find(is_same) else {
            found.push(finding);
            continue;
        };
        if finding.times() > other.times() {
            (other.gain, other.measured) = (finding.gain, finding.measured);
        }
        other.hosts.extend(finding.hosts);
    }
    found
}

/// What a run reports in its header: findings on this host from settings and the DGEMM of its start
/// alone. Its ranks may use the CPUs `masks` with `threads` threads each. `idle_cores` is the number
/// of cores that the job may use and that nothing uses, if it is known; `rate` and `units` are the
/// Gflop/s of DGEMM and of the vector units on a core.
pub fn at_start(
    host: &str,
    masks: &[Vec<usize>],
    threads: usize,
    idle_cores: Option<usize>,
    blas: &BlasInfo,
    (rate, units): (f64, Option<f64>),
) -> Vec<Finding> {
    use FindingKind::{HugePages, NoBoost, PowerCounters, SharedCores, TooFewCores};
    let counters = Counters::read(&Root::this_machine());
    let mut facts = HostFacts {
        blas: Some(blas.into()),
        is_launched: launcher_rank::is_launched(),
        idle_cores,
        start_gflops: units.map(|units| (rate, units)),
        ..HostFacts::new(host, counters, masks, threads)
    };
    // What memory the others may take is not known here.
    facts.ranks.iter_mut().skip(1).for_each(|rank| rank.allowed_nodes.clear());
    let mut found = rules::for_host(&facts);
    // A run's own setup reports ranks that share cores, and the others cost little in most runs.
    let left_out = [SharedCores, TooFewCores, HugePages, NoBoost, PowerCounters];
    found.retain(|finding| !left_out.contains(&finding.kind));
    found
}

/// A warning of one line, with the first of its hosts.
pub fn line(finding: &Finding) -> String {
    let Finding { what, measured, remedy, .. } = finding;
    let gain = finding.gain.map_or(String::new(), |gain| {
        format!(" It would bring up to {:.1} times the rate.", gain.times)
    });
    let hosts = short_names(&finding.hosts);
    format!("on {hosts}: {what}: {measured}. Remedy: {remedy}.{gain} (skt-hpl doctor)")
}
