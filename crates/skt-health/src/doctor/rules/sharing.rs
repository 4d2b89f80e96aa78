//! Ranks that share cores, hardware threads of one core, and limits of processor time.

use std::collections::BTreeSet;

use super::super::facts::HostFacts;
use super::super::finding::{Finding, FindingKind, Gain};
use super::{finding, list};
use skt_host::starter::Starter;

/// Ranks whose cores overlap.
#[derive(Debug, Default)]
struct CoreGroup {
    ranks: usize,
    threads: usize,
    cpus: BTreeSet<usize>,
    cores: BTreeSet<usize>,
}

fn groups(host: &HostFacts) -> Vec<CoreGroup> {
    let core_of = host.core_of();
    let mut groups: Vec<CoreGroup> = Vec::new();
    for rank in &host.ranks {
        let cores: BTreeSet<usize> =
            rank.mask.iter().filter_map(|cpu| core_of.get(cpu).copied()).collect();
        let mut merged = CoreGroup {
            ranks: 1,
            threads: rank.threads,
            cpus: rank.mask.iter().copied().collect(),
            cores,
        };
        let is_apart = |group: &CoreGroup| group.cores.is_disjoint(&merged.cores);
        let (apart, overlapping) = groups.into_iter().partition::<Vec<_>, _>(is_apart);
        groups = apart;
        for group in overlapping {
            merged.ranks += group.ranks;
            merged.threads += group.threads;
            merged.cpus.extend(group.cpus);
            merged.cores.extend(group.cores);
        }
        groups.push(merged);
    }
    groups
}

/// Finds the group of ranks with the most threads per core, if that is more than one.
pub(crate) fn crowded(host: &HostFacts) -> Option<Finding> {
    let crowd = |group: &CoreGroup| group.threads as f64 / group.cores.len() as f64;
    let crowded = |group: &CoreGroup| !group.cores.is_empty() && group.threads > group.cores.len();
    let groups: Vec<CoreGroup> = groups(host).into_iter().filter(crowded).collect();
    let worst = groups.iter().max_by(|a, b| crowd(a).total_cmp(&crowd(b)))?;
    let (threads, cores, usable) = (worst.threads, worst.cores.len(), host.usable_cores());
    let share = host.mean(|measured| Some(measured.cpu_share));
    let measured = format!(
        "{threads} thread(s) of {} rank(s) on {cores} core(s) (cpu {}){}",
        worst.ranks,
        list(worst.cpus.iter().copied()),
        share.map_or(String::new(), |share| {
            format!("; the threads of the host had a core for {:.0} % of the time", 100.0 * share)
        })
    );
    let could = threads.min((usable * threads / host.threads()).max(cores));
    let gain = (could > cores).then(|| Gain::computed(could as f64 / cores as f64)).flatten();
    if worst.ranks == 1 {
        let what = "a rank has more threads than the launcher gives it cores";
        let remedy = format!("{}; or fewer --threads", Starter::advice(threads));
        return Some(finding(host, FindingKind::TooFewCores, what, measured, remedy, gain));
    }
    let fit = host.threads().min(usable);
    let ranks = (fit * host.ranks.len() / host.threads()).max(1);
    let remedy = format!(
        "{ranks} rank(s) on this host, each on its own cores: mpirun --map-by core --bind-to \
         core -np {ranks}; srun --cpu-bind=cores --ntasks-per-node={ranks}"
    );
    let (kind, what) = if threads <= worst.cpus.len() {
        (
            FindingKind::SmtSiblings,
            "ranks run on both hardware threads of a core, which share its \
                                     vector units",
        )
    } else {
        (FindingKind::SharedCores, "ranks share cores")
    };
    Some(finding(host, kind, what, measured, remedy, gain))
}

/// The least share of the cores in use that a quota may leave without a finding.
const ENOUGH: f64 = 0.95;

/// A control group that gives the ranks less time than their cores have.
pub(crate) fn quota(host: &HostFacts) -> Option<Finding> {
    let quota = host.counters.quota.as_ref()?;
    let used = host.threads().min(host.cores_of(&Vec::from_iter(host.used_cpus())).len()) as f64;
    if quota.cores >= ENOUGH * used {
        return None;
    }
    let share = host.mean(|measured| Some(measured.cpu_share)).filter(|share| *share > 0.0);
    let file = quota.file.display();
    let measured = format!(
        "{file} leaves {:.2} of {used} core(s){}",
        quota.cores,
        share.map_or(String::new(), |share| {
            format!("; the threads had a core for {:.0} % of the time", 100.0 * share)
        })
    );
    let none = if quota.version == 1 { "-1" } else { "max" };
    let remedy = format!(
        "echo {none} > {file} (as root, outside of the container), or docker update --cpus {used} \
         CONTAINER; or {} rank(s) with one thread",
        quota.cores.floor().max(1.0)
    );
    let gain = Gain::computed(used / quota.cores.max(1e-3));
    let what = "a control group limits the processor time";
    Some(finding(host, FindingKind::Quota, what, measured, remedy, gain))
}
