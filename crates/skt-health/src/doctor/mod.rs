//! Why a machine is slow, before an hour is lost: findings with their remedies.
//!
//! [`facts`] holds what is known of each host and rank, from the counters of
//! [`skt_host::counters`] and from a measurement of some seconds (`measure`, [`trial`]).
//! [`diagnose`] is pure: from facts to findings. Each file of [`rules`] has the rules of one idea;
//! to add one, add a function there and its line in `rules::for_host`. [`gather`] collects the
//! facts of all ranks, `doctor --hosts` probes hosts on which no rank runs yet, and
//! [`report`] shows the result. [`at_start`] has what a run reports in its header.

pub mod at_start;
pub mod facts;
pub mod finding;
pub mod gather;
mod kernel;
mod measure;
pub mod names;
pub mod report;
pub mod rules;
pub mod trial;

#[cfg(test)]
mod tests;

use facts::HostFacts;
use finding::Finding;

/// The findings on all hosts, those that promise most first. The same finding on several hosts is
/// one.
pub fn diagnose(hosts: &[HostFacts]) -> Vec<Finding> {
    let mut found = joined(hosts.iter().flat_map(rules::for_host));
    found.extend(rules::uneven::slow_ranks(hosts));
    found.extend(rules::uneven::mixed_kernels(hosts));
    sort(&mut found);
    found
}

/// Sorts findings by what they promise; those that promise nothing keep their order at the end.
pub fn sort(found: &mut [Finding]) {
    let times = |finding: &Finding| finding.gain.map_or(0.0, |gain| gain.times);
    found.sort_by(|a, b| times(b).total_cmp(&times(a)));
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
        other.hosts.extend(finding.hosts);
        let times = |gain: Option<finding::Gain>| gain.map_or(0.0, |gain| gain.times);
        if times(finding.gain) > times(other.gain) {
            (other.gain, other.measured) = (finding.gain, finding.measured);
        }
    }
    found
}
