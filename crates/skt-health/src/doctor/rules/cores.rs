//! Cores of several kinds, and cores that no rank uses.

use std::collections::BTreeMap;

use super::super::facts::HostFacts;
use super::super::finding::{Finding, FindingKind, Gain};
use super::{finding, list};
use skt_host::placement::SAME_KIND;

/// The least gain that is worth a finding.
const MIN_GAIN: f64 = 1.05;

/// Finds mixed and idle cores.
pub(crate) fn findings(host: &HostFacts) -> Vec<Finding> {
    [mixed(host), idle(host)].into_iter().flatten().collect()
}

/// Each core has an equal part of the matrix, so that all wait for the slowest.
fn mixed(host: &HostFacts) -> Option<Finding> {
    let used = host.used_cpus();
    let counters = &host.counters;
    let mut speeds: BTreeMap<usize, f64> = BTreeMap::new();
    for (cpu, speed) in counters.cpus.iter().zip(&counters.speeds) {
        if used.contains(&cpu.id) {
            speeds.insert(cpu.core, *speed);
        }
    }
    let fastest = speeds.values().copied().fold(0.0, f64::max);
    let is_fast = |speed: f64| speed >= SAME_KIND * fastest;
    let fast: Vec<usize> =
        speeds.iter().filter(|(_, speed)| is_fast(**speed)).map(|(core, _)| *core).collect();
    let threads = host.threads().min(speeds.len());
    if threads <= fast.len() {
        // The ranks are on cores of one kind, or can be.
        return None;
    }
    let slowest = speeds.values().copied().fold(f64::INFINITY, f64::min);
    let times = fast.len() as f64 * fastest / (threads as f64 * slowest);
    if times < MIN_GAIN {
        return None;
    }
    let cpus = list(fast.iter().copied());
    let measured = format!(
        "{} fast core(s) and {} with {:.0} % of their speed, for {threads} thread(s)",
        fast.len(),
        speeds.len() - fast.len(),
        100.0 * slowest / fastest
    );
    let remedy = format!(
        "taskset -c {cpus} mpirun --bind-to none -np {0} ... (one rank a fast core)",
        fast.len()
    );
    let what = "fast and slow cores work together, and all wait for the slow ones";
    Some(finding(host, FindingKind::MixedCores, what, measured, remedy, Gain::computed(times)))
}

/// The share of the cores that a job has to use where idle ones were not counted.
const USED_SHARE: f64 = 0.9;

/// Cores that the job may use and has no thread for. A single process without a launcher runs on
/// all of them in `doctor`, and has idle ones only if they were counted.
fn idle(host: &HostFacts) -> Option<Finding> {
    let (threads, ranks) = (host.threads(), host.ranks.len().max(1));
    let cores = match host.idle_cores {
        Some(idle) => threads + idle,
        None if !host.is_launched => threads,
        None if threads as f64 >= USED_SHARE * host.usable_cores() as f64 => threads,
        None => host.usable_cores(),
    };
    if cores <= threads {
        return None;
    }
    let measured = format!("{threads} thread(s) of {} rank(s), {cores} cores", host.ranks.len());
    let more_threads = (cores / ranks * ranks > threads).then_some(cores / ranks);
    let remedy = if host.is_launched {
        let threads = more_threads.map_or(String::new(), |threads| {
            format!(", or --threads {threads} a rank with --bind-to none")
        });
        format!("mpirun -np {cores} (per host: --map-by ppr:{cores}:node){threads}")
    } else {
        format!("mpirun -np {cores}, or --threads {cores} (as xhpl also OMP_NUM_THREADS={cores})")
    };
    let gain = Gain::computed(cores as f64 / threads as f64);
    let what = "no rank uses some of the cores";
    Some(finding(host, FindingKind::IdleCores, what, measured, remedy, gain))
}
