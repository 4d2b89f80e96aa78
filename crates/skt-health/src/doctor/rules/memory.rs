//! Memory: its nodes, its pages, its errors.

use std::collections::BTreeSet;

use super::super::facts::{HostFacts, RankFacts};
use super::super::finding::{Finding, FindingKind};
use super::{finding, list};

/// Finds what is wrong with the memory.
pub(crate) fn findings(host: &HostFacts) -> Vec<Finding> {
    let found = [policy(host).or_else(|| away(host)), spread(host), huge_pages(host), errors(host)];
    found.into_iter().flatten().collect()
}

/// The nodes next to the CPUs that a rank may use.
fn nodes_of(host: &HostFacts, rank: &RankFacts) -> BTreeSet<usize> {
    let nodes = host.counters.nodes.iter();
    let is_next = |cpus: &[usize]| cpus.iter().any(|cpu| rank.mask.contains(cpu));
    nodes.filter(|node| is_next(&node.cpus)).map(|node| node.id).collect()
}

/// Whether a node is next to CPUs. A node of memory alone (HBM, CXL) has no cores that would be
/// nearer to it than those of a rank, so a rank's memory is not wrong there.
fn has_cpus(host: &HostFacts, node: usize) -> bool {
    host.counters.nodes.iter().any(|other| other.id == node && !other.cpus.is_empty())
}

const WRONG_NODE: &str = "memory is on another NUMA node than the cores";
const LOCAL: &str =
    "numactl --localalloc, or no numactl at all; mpirun --map-by numa --bind-to core";

/// A rank that must not take memory of the nodes of its cores.
fn policy(host: &HostFacts) -> Option<Finding> {
    let is_barred = |rank: &&RankFacts| {
        let own = nodes_of(host, rank);
        let is_wrong = |node: &usize| !own.contains(node) && has_cpus(host, *node);
        let allowed = &rank.allowed_nodes;
        !own.is_empty() && !allowed.is_empty() && allowed.iter().all(is_wrong)
    };
    let rank = host.ranks.iter().find(is_barred)?;
    let measured = format!(
        "cores of node {}, memory of node {} alone",
        list(nodes_of(host, rank)),
        list(rank.allowed_nodes.iter().copied())
    );
    Some(finding(host, FindingKind::MemoryNode, WRONG_NODE, measured, LOCAL, None))
}

/// The largest share of a rank's memory on other nodes than those of its cores.
const AWAY: f64 = 0.2;

/// A rank whose memory is on other nodes although it may take memory of the nodes of its cores.
fn away(host: &HostFacts) -> Option<Finding> {
    let share = |rank: &RankFacts| {
        let bytes = &rank.measured.as_ref()?.node_bytes;
        let own = nodes_of(host, rank);
        let all: u64 = bytes.values().sum();
        let is_away = |node: usize| !own.contains(&node) && has_cpus(host, node);
        let away: u64 = bytes.iter().filter(|it| is_away(*it.0)).map(|it| it.1).sum();
        (all > 0 && !own.is_empty()).then(|| away as f64 / all as f64)
    };
    let worst = host.ranks.iter().filter_map(share).fold(0.0, f64::max);
    if worst <= AWAY {
        return None;
    }
    let measured = format!("{:.0} % of the memory of a rank, by numa_maps", 100.0 * worst);
    Some(finding(host, FindingKind::MemoryNode, WRONG_NODE, measured, LOCAL, None))
}

/// Ranks with more threads than a node has cores.
fn spread(host: &HostFacts) -> Option<Finding> {
    let with_cpus = host.counters.nodes.iter().filter(|node| !node.cpus.is_empty());
    let cores: Vec<usize> = with_cpus.map(|node| host.cores_of(&node.cpus).len()).collect();
    let (nodes, a_node) = (cores.len(), cores.iter().copied().max()?);
    let threads = host.ranks.iter().map(|rank| rank.threads).max()?;
    if !host.is_launched || nodes < 2 || threads <= a_node {
        return None;
    }
    let measured = format!("{threads} threads a rank, {nodes} nodes of {a_node} cores");
    let remedy = format!(
        "one rank a node: mpirun --map-by ppr:{nodes}:node --bind-to none, with --threads {a_node}"
    );
    let what = "the threads of a rank are on several NUMA nodes, its memory on few of them";
    Some(finding(host, FindingKind::SeveralNodes, what, measured, remedy, None))
}

fn huge_pages(host: &HostFacts) -> Option<Finding> {
    let file = "/sys/kernel/mm/transparent_hugepage/enabled";
    host.counters.huge_pages.as_ref().filter(|setting| *setting == "never")?;
    let what = "private memory gets no huge pages";
    let measured = format!("{file} is never");
    let remedy = format!("echo madvise > {file} (as root)");
    Some(finding(host, FindingKind::HugePages, what, measured, remedy, None))
}

fn errors(host: &HostFacts) -> Option<Finding> {
    let errors = &host.counters.memory_errors;
    let mut words: Vec<String> = errors
        .controllers
        .iter()
        .map(|(name, corrected, uncorrected)| {
            format!("{name}: {corrected} corrected and {uncorrected} uncorrected")
        })
        .collect();
    let machine_checks = errors.machine_checks.unwrap_or(0);
    if machine_checks > 0 {
        words.push(format!("{machine_checks} machine check exception(s)"));
    }
    if words.is_empty() {
        return None;
    }
    let are_corrected = errors.controllers.iter().all(|(_, _, uncorrected)| *uncorrected == 0);
    let (what, remedy) = if are_corrected && machine_checks == 0 {
        (
            "memory errors were corrected since the host was started: no harm, unless they continue",
            "look again later: if the number grows, ras-mc-ctl --errors, or dmesg, names the \
             module: have it replaced",
        )
    } else {
        (
            "the memory has had errors since the host was started: it may be slow or wrong",
            "ras-mc-ctl --errors, or dmesg, names the module: have it replaced, leave the host out \
             until then",
        )
    };
    Some(finding(host, FindingKind::MemoryErrors, what, words.join(", "), remedy, None))
}
