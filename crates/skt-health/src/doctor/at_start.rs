//! What a run reports in its header: findings from settings alone, which take no time.

use super::facts::{HostFacts, RankFacts};
use super::finding::{Finding, FindingKind};
use super::report::host_words;
use super::rules;
use skt_host::counters::{Counters, Root};
use skt_host::launcher_rank;

/// Kinds that a run does not report in its header: its own setup reports ranks that share cores,
/// and the others cost little or nothing in most runs.
const LEFT_OUT: [FindingKind; 5] = [
    FindingKind::SharedCores,
    FindingKind::TooFewCores,
    FindingKind::HugePages,
    FindingKind::NoBoost,
    FindingKind::PowerCounters,
];

/// Findings on this host, whose ranks may use the CPUs `masks` with `threads` threads each.
/// `idle_cores` is the number of cores that the job may use and that nothing uses, if it is known.
pub fn findings(
    host: &str,
    masks: &[Vec<usize>],
    threads: usize,
    idle_cores: Option<usize>,
) -> Vec<Finding> {
    let counters = Counters::read(&Root::this_machine());
    from_counters(host, counters, masks, threads, idle_cores)
}

fn from_counters(
    host: &str,
    counters: Counters,
    masks: &[Vec<usize>],
    threads: usize,
    idle_cores: Option<usize>,
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
    let (host, is_launched) = (host.to_owned(), launcher_rank::is_launched());
    let facts = HostFacts {
        host,
        counters,
        trial: None,
        libraries: Vec::new(),
        ranks,
        is_launched,
        idle_cores,
    };
    let mut found = rules::for_settings(&facts);
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
