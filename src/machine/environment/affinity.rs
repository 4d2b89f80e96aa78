//! Which processors a rank's threads run on.
//!
//! A thread that moves between cores loses its caches, and its memory ends up on another NUMA node.
//! So threads are pinned, one to a physical core, unless the launcher has already decided.

use std::collections::BTreeMap;
use std::io;

use crate::hpl::team::affinity::pin_as_planned;
pub use crate::machine::counters::topology::Cpu;
use crate::machine::counters::{Root, topology};

/// The placement of a rank's threads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CpuPlacement {
    /// Thread `t` is pinned to the `t`-th of these CPUs.
    Pin(Vec<usize>),
    /// Nothing is pinned.
    Leave(WhyNot),
}

/// Why no thread is pinned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WhyNot {
    /// The launcher gave this rank as many cores as it has threads.
    #[error("not pinned: the launcher has bound each rank to the {0} core(s) it needs")]
    LauncherDid(usize),
    /// The launcher gave this rank fewer cores than it has threads.
    #[error("not pinned: this rank may use {cores} core(s), but it runs {threads} threads")]
    LauncherTooTight {
        /// Cores this rank may use.
        cores: usize,
        /// Threads of the rank.
        threads: usize,
    },
    /// More threads than cores among the ranks that share a set of CPUs.
    #[error(
        "not pinned: {ranks} rank(s) of {threads} thread(s) on this host share {cores} core(s)"
    )]
    Oversubscribed {
        /// Ranks that may use the same CPUs.
        ranks: usize,
        /// Threads of each rank.
        threads: usize,
        /// Cores that the ranks share.
        cores: usize,
    },
    /// Ranks whose sets of CPUs differ and overlap.
    #[error(
        "not pinned: ranks on this host may use different, but overlapping sets of CPUs; let the \
         launcher bind them, or not at all"
    )]
    Overlap,
}

impl CpuPlacement {
    /// What pins thread number `thread` of the rank once that thread calls it; it does nothing
    /// where the threads are left to the system.
    pub fn pinner(&self) -> impl Fn(usize) + Clone + Send + Sync + use<> {
        let cpus = match self {
            Self::Pin(cpus) => cpus.clone(),
            Self::Leave(_) => Vec::new(),
        };
        move |thread| pin_as_planned(cpus.get(thread).copied())
    }
}

/// Plans for rank `index` of the ranks on this host. `masks` has the CPUs that each of these ranks
/// may use, `cpus` all that are online.
///
/// Ranks with the same mask divide its cores evenly, in the order of sockets; each takes the first
/// `threads` cores of its share, so that few ranks spread over sockets.
///
/// # Panics
/// When `index` is no rank of this host.
pub fn plan(cpus: &[Cpu], masks: &[Vec<usize>], index: usize, threads: usize) -> CpuPlacement {
    let mask = &masks[index];
    let cores = cores_in(cpus, mask);
    let restricted = cpus.iter().any(|cpu| !mask.contains(&cpu.id));
    let sharers: Vec<usize> = (0..masks.len()).filter(|&rank| masks[rank] == *mask).collect();
    let alone = sharers.len() == 1;
    if restricted && alone && cores.len() == threads {
        return CpuPlacement::Leave(WhyNot::LauncherDid(cores.len()));
    }
    if restricted && cores.len() < threads {
        return CpuPlacement::Leave(WhyNot::LauncherTooTight { cores: cores.len(), threads });
    }
    let overlaps = |other: &Vec<usize>| other != mask && other.iter().any(|id| mask.contains(id));
    if masks.iter().any(overlaps) {
        return CpuPlacement::Leave(WhyNot::Overlap);
    }
    let ranks = sharers.len();
    if ranks * threads > cores.len() {
        return CpuPlacement::Leave(WhyNot::Oversubscribed { ranks, threads, cores: cores.len() });
    }
    let place = sharers.iter().position(|&rank| rank == index).expect("a rank shares its mask");
    CpuPlacement::Pin(share(&cores, place, ranks, threads).to_vec())
}

/// The first `wanted` cores in the share of rank `place` of `ranks`, which divide `cores` evenly,
/// in order.
///
/// # Panics
/// When the share and what follows it have fewer than `wanted` cores.
pub(super) fn share(cores: &[usize], place: usize, ranks: usize, wanted: usize) -> &[usize] {
    let first = place * cores.len() / ranks;
    &cores[first..first + wanted]
}

/// One CPU of each physical core in the mask, socket by socket.
pub fn cores_in(cpus: &[Cpu], mask: &[usize]) -> Vec<usize> {
    let mut cores = BTreeMap::new();
    for cpu in cpus.iter().filter(|cpu| mask.contains(&cpu.id)) {
        let lowest = cores.entry((cpu.package, cpu.core)).or_insert(cpu.id);
        *lowest = cpu.id.min(*lowest);
    }
    cores.into_values().collect()
}

/// A list of CPUs as text: `0,1,4`.
pub fn list(cpus: &[usize]) -> String {
    cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// All CPUs that are online, with their cores and sockets.
///
/// # Errors
/// When the kernel does not tell (no `/sys`).
pub fn online() -> io::Result<Vec<Cpu>> {
    topology::online(&Root::of_this_machine())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::hpl::team::affinity::current_mask;

    /// Sockets of `cores` cores with two CPUs each, numbered as by Linux on x86: all cores first,
    /// then their siblings.
    pub fn machine(sockets: usize, cores: usize) -> Vec<Cpu> {
        let all = sockets * cores;
        (0..2 * all).map(|id| Cpu { id, core: id % all, package: id % all / cores }).collect()
    }

    pub fn all(cpus: &[Cpu]) -> Vec<usize> {
        cpus.iter().map(|cpu| cpu.id).collect()
    }

    #[test]
    fn ranks_spread_over_sockets_and_threads_take_whole_cores() {
        let cpus = machine(2, 4);
        let masks = vec![all(&cpus); 2];
        assert_eq!(plan(&cpus, &masks, 0, 3), CpuPlacement::Pin(vec![0, 1, 2]));
        assert_eq!(plan(&cpus, &masks, 1, 3), CpuPlacement::Pin(vec![4, 5, 6]));
    }

    #[test]
    fn no_cpu_is_given_twice() {
        for (sockets, cores) in [(1, 1), (1, 7), (2, 4), (4, 3)] {
            let cpus = machine(sockets, cores);
            for ranks in 1..=12 {
                for threads in 1..=12 {
                    let masks = vec![all(&cpus); ranks];
                    let mut used = Vec::new();
                    for rank in 0..ranks {
                        match plan(&cpus, &masks, rank, threads) {
                            CpuPlacement::Pin(pinned) => {
                                assert_eq!(pinned.len(), threads);
                                used.extend(pinned.iter().map(|id| cpus[*id].core));
                            }
                            CpuPlacement::Leave(why) => {
                                assert!(ranks * threads > sockets * cores);
                                assert!(matches!(why, WhyNot::Oversubscribed { .. }));
                            }
                        }
                    }
                    let count = used.len();
                    used.sort_unstable();
                    used.dedup();
                    assert_eq!(used.len(), count, "{ranks} ranks of {threads} threads");
                }
            }
        }
    }

    #[test]
    fn numbering_that_alternates_between_sockets_is_understood() {
        let cpus: Vec<Cpu> = (0..8).map(|id| Cpu { id, core: id, package: id % 2 }).collect();
        let masks = vec![all(&cpus); 2];
        assert_eq!(plan(&cpus, &masks, 1, 4), CpuPlacement::Pin(vec![1, 3, 5, 7]));
    }

    #[test]
    fn the_launchers_binding_is_left_alone() {
        let cpus = machine(1, 8);
        let masks = vec![vec![0, 1, 8, 9], vec![2, 3, 10, 11]];
        assert_eq!(plan(&cpus, &masks, 1, 2), CpuPlacement::Leave(WhyNot::LauncherDid(2)));
    }

    #[test]
    fn a_binding_that_is_too_tight_is_named() {
        let cpus = machine(1, 8);
        // A core and its sibling are one core.
        let why = WhyNot::LauncherTooTight { cores: 1, threads: 2 };
        assert_eq!(
            plan(&cpus, &[vec![3, 11], vec![4, 12]], 0, 2),
            CpuPlacement::Leave(why.clone())
        );
    }

    #[test]
    fn ranks_bound_to_a_socket_divide_it() {
        let cpus = machine(2, 4);
        let socket = |s: usize| -> Vec<usize> {
            cpus.iter().filter(|cpu| cpu.package == s).map(|cpu| cpu.id).collect()
        };
        let masks = [socket(0), socket(1), socket(0), socket(1)];
        assert_eq!(plan(&cpus, &masks, 0, 2), CpuPlacement::Pin(vec![0, 1]));
        assert_eq!(plan(&cpus, &masks, 3, 2), CpuPlacement::Pin(vec![6, 7]));
        let why = WhyNot::Oversubscribed { ranks: 2, threads: 3, cores: 4 };
        assert_eq!(plan(&cpus, &masks, 3, 3), CpuPlacement::Leave(why));
    }

    #[test]
    fn overlapping_bindings_are_left_alone() {
        let cpus = machine(1, 8);
        let masks = [vec![0, 1, 2, 3], vec![2, 3, 4, 5]];
        assert_eq!(plan(&cpus, &masks, 0, 1), CpuPlacement::Leave(WhyNot::Overlap));
    }

    #[test]
    fn the_cpus_of_this_thread_are_online() {
        let known = online().unwrap();
        let mask = current_mask().unwrap();
        assert!(mask.iter().all(|id| known.iter().any(|cpu| cpu.id == *id)));
    }
}
