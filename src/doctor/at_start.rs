//! What a run reports by itself in its header: findings from settings alone, which take no time.

use super::facts::{HostFacts, RankFacts};
use super::finding::{Finding, FindingKind};
use super::report::host_words;
use super::rules;
use crate::machine::counters::{Counters, Root};

/// Kinds that a run does not tell by itself: its own setup tells of ranks that share cores, a short
/// test may leave cores idle on purpose, and the others cost little or nothing in most runs.
const LEFT_OUT: [FindingKind; 6] = [
    FindingKind::SharedCores,
    FindingKind::TooFewCores,
    FindingKind::IdleCores,
    FindingKind::HugePages,
    FindingKind::NoBoost,
    FindingKind::PowerCounters,
];

/// Findings on this host, whose ranks may use the CPUs `masks` with `threads` threads each. Called
/// before this thread is pinned.
pub fn findings(host: &str, masks: &[Vec<usize>], threads: usize) -> Vec<Finding> {
    of_counters(host, Counters::read(&Root::of_this_machine()), masks, threads)
}

fn of_counters(
    host: &str,
    counters: Counters,
    masks: &[Vec<usize>],
    threads: usize,
) -> Vec<Finding> {
    let rank = |(rank, mask): (usize, &Vec<usize>)| RankFacts {
        rank,
        mask: mask.clone(),
        allowed_nodes: if rank == 0 { counters.allowed_nodes.clone() } else { Vec::new() },
        threads,
        kernel: None,
        measured: None,
    };
    let ranks = masks.iter().enumerate().map(rank).collect();
    let facts =
        HostFacts { host: host.to_owned(), counters, trial: None, ranks, is_launched: true };
    let mut found = rules::of_settings(&facts);
    found.retain(|finding| !LEFT_OUT.contains(&finding.kind));
    found
}

/// A warning of one line, with the first of its hosts.
pub fn line(finding: &Finding) -> String {
    let Finding { what, measured, remedy, .. } = finding;
    let gain = finding.gain.map_or(String::new(), |gain| {
        format!(" It would bring up to {:.1} times the rate.", gain.times)
    });
    let hosts = host_words(&finding.hosts);
    format!("on {hosts}: {what}: {measured}. Remedy: {remedy}.{gain} (skt-hpl doctor)")
}
