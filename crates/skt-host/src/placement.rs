//! Which processors a rank's threads run on.
//!
//! A thread that moves between cores loses its caches, and its memory ends up on another NUMA node.
//! So threads are pinned, one to a physical core that no other process is pinned to, unless the
//! launcher has already decided.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use serde::{Deserialize, Serialize};

use super::core_use::{self, Occupant};
use crate::affinity::pin_as_planned;
pub use crate::counters::topology::Cpu;
use crate::counters::{Counters, Root, topology};
use crate::starter::UNBOUND;

/// The processors of a machine, and who uses them.
#[derive(Debug, Clone)]
pub struct HostCpus {
    pub cpus: Vec<Cpu>,
    /// The speed of each relative to the fastest.
    pub speeds: Vec<f64>,
    /// Threads of processes outside of the job.
    pub occupants: Vec<Occupant>,
}

impl HostCpus {
    /// All CPUs that are online, without occupants.
    pub fn online() -> io::Result<Self> {
        let root = Root::this_machine();
        let cpus = topology::online(&root)?;
        let ids: Vec<usize> = cpus.iter().map(|cpu| cpu.id).collect();
        Ok(Self { speeds: topology::speeds(&root, &ids), cpus, occupants: Vec::new() })
    }

    /// The CPUs that these counters list, without occupants.
    pub fn from_counters(counters: &Counters) -> Self {
        let (cpus, speeds) = (counters.cpus.clone(), counters.speeds.clone());
        Self { cpus, speeds, occupants: Vec::new() }
    }

    /// One CPU of each physical core of the mask that no occupant uses, with its speed, socket by
    /// socket.
    fn free(&self, mask: &[usize]) -> Vec<(usize, f64)> {
        let taken = core_use::taken(&self.cpus, mask, &self.occupants);
        let core_of: BTreeMap<usize, (usize, f64)> = (self.cpus.iter().zip(&self.speeds))
            .map(|(cpu, speed)| (cpu.id, (cpu.core, *speed)))
            .collect();
        let with_speed = |cpu: usize| (cpu, core_of[&cpu]);
        let all = cores_in(&self.cpus, mask).into_iter().map(with_speed);
        let free = all.filter(|(_, (core, _))| !taken.contains_key(core));
        free.map(|(cpu, (_, speed))| (cpu, speed)).collect()
    }

    /// The processes on cores of the mask, in words.
    fn users(&self, mask: &[usize]) -> String {
        core_use::words(core_use::taken(&self.cpus, mask, &self.occupants).into_values())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CpuPlacement {
    /// Thread `t` is pinned to the `t`-th of these CPUs.
    Pin(Vec<usize>),
    Leave(WhyNot),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum WhyNot {
    #[error("not pinned (--pin none)")]
    Declined,
    /// Other processes are pinned to cores that the ranks need.
    #[error(
        "not pinned: of {cores} core(s) {free} are free for {ranks} rank(s) of {threads} \
         thread(s); others are in use by {users}"
    )]
    InUse { ranks: usize, threads: usize, free: usize, cores: usize, users: String },
    /// The launcher gave this rank as many cores as it has threads.
    #[error("not pinned: each rank is bound to the {0} core(s) it needs")]
    LauncherDid(usize),
    /// The launcher gave this rank fewer cores than it has threads.
    #[error("not pinned: this rank may use {cores} core(s), but it runs {threads} threads")]
    LauncherTooTight { cores: usize, threads: usize },
    /// More threads than cores among the ranks that share a set of CPUs.
    #[error(
        "not pinned: {ranks} rank(s) of {threads} thread(s) on this host share {cores} core(s)"
    )]
    Oversubscribed { ranks: usize, threads: usize, cores: usize },
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
/// may use.
///
/// Ranks with the same mask divide its free cores evenly, in the order of sockets; each takes the
/// first `threads` cores of its share, so that few ranks spread over sockets. Where some cores are
/// slower than others, the fastest are taken.
///
/// # Panics
/// When `index` is no rank of this host.
pub fn plan(host: &HostCpus, masks: &[Vec<usize>], index: usize, threads: usize) -> CpuPlacement {
    let mask = &masks[index];
    let cores = cores_in(&host.cpus, mask);
    let restricted = host.cpus.iter().any(|cpu| !mask.contains(&cpu.id));
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
    let (ranks, cores) = (sharers.len(), cores.len());
    if ranks * threads > cores {
        return CpuPlacement::Leave(WhyNot::Oversubscribed { ranks, threads, cores });
    }
    let free = host.free(mask);
    if ranks * threads > free.len() {
        let (free, users) = (free.len(), host.users(mask));
        return CpuPlacement::Leave(WhyNot::InUse { ranks, threads, free, cores, users });
    }
    let place = sharers.iter().position(|&rank| rank == index).expect("a rank shares its mask");
    CpuPlacement::Pin(divide(&free, ranks, threads).swap_remove(place))
}

/// The placement of a rank's threads on a host with helper cores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HelperCores {
    /// Thread `t` of the solver is pinned to the `t`-th of these CPUs.
    pub solver: Vec<usize>,
    /// Other threads are pinned to this CPU, which ranks may share.
    pub helper: usize,
    /// One CPU of each core that is kept, for all ranks of the host.
    pub kept: Vec<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoHelpers {
    /// Others are on these cores, perhaps for a short time.
    InUse(WhyNot),
    Refused(String),
}

/// Plans for rank `index` of the ranks on this host, of `threads` threads each, which keep
/// `helpers` of its free cores from the solver: for the threads that write images, and encode while
/// the solver computes. `masks` has the CPUs that each of these ranks may use.
///
/// The helper cores are the last ones of equal parts of all cores, so that each socket has its part
/// of them, and a rank gets one near its own cores.
///
/// # Panics
/// When `index` is no rank of this host, or `helpers` is 0.
pub fn plan_with_helpers(
    host: &HostCpus,
    masks: &[Vec<usize>],
    index: usize,
    threads: usize,
    helpers: usize,
) -> Result<HelperCores, NoHelpers> {
    assert!(helpers > 0);
    let (mask, ranks) = (&masks[index], masks.len());
    if masks.iter().any(|other| other != mask) {
        return Err(NoHelpers::Refused(format!(
            "the ranks are bound to different cores: start them unbound ({UNBOUND})"
        )));
    }
    let (wanted, cores) = (ranks * threads + helpers, cores_in(&host.cpus, mask).len());
    if wanted > cores {
        return Err(NoHelpers::Refused(format!(
            "{ranks} rank(s) of {threads} thread(s) and {helpers} helper core(s) take {wanted} \
             cores, and they may use {cores}: start fewer ranks there or, if they are bound, start \
             them unbound ({UNBOUND})"
        )));
    }
    let free = host.free(mask);
    if wanted > free.len() {
        let (free, users) = (free.len(), host.users(mask));
        return Err(NoHelpers::InUse(WhyNot::InUse { ranks, threads, free, cores, users }));
    }
    let kept: Vec<usize> =
        (1..=helpers).map(|part| free[part * free.len() / helpers - 1].0).collect();
    let others: Vec<_> = free.into_iter().filter(|(cpu, _)| !kept.contains(cpu)).collect();
    let solver = divide(&others, ranks, threads).swap_remove(index);
    let helper = share(&kept, index, ranks, 1)[0];
    Ok(HelperCores { solver, helper, kept })
}

/// Cores within this share of the fastest are of its kind: the best core of a processor may have a
/// somewhat higher clock.
pub const SAME_KIND: f64 = 0.9;

/// The CPUs of each of `ranks` ranks with `threads` threads, among `cores` in the order of sockets,
/// with their speeds. Cores of the fastest kinds are taken first, all of them; those of the last
/// kind that is needed are taken at equal distances.
///
/// # Panics
/// When there are too few cores.
fn divide(cores: &[(usize, f64)], ranks: usize, threads: usize) -> Vec<Vec<usize>> {
    let mut left: Vec<usize> = (0..cores.len()).collect();
    let mut chosen = BTreeSet::new();
    loop {
        let fastest = left.iter().map(|&at| cores[at].1).fold(0.0, f64::max);
        let (kind, slower): (Vec<usize>, _) =
            left.iter().partition(|&&at| cores[at].1 >= SAME_KIND * fastest);
        let wanted = ranks * threads - chosen.len();
        if chosen.is_empty() && kind.len() >= wanted {
            let cpus: Vec<usize> = kind.iter().map(|&at| cores[at].0).collect();
            return (0..ranks).map(|rank| share(&cpus, rank, ranks, threads).to_vec()).collect();
        }
        if kind.len() >= wanted {
            chosen.extend((0..wanted).map(|nth| kind[nth * kind.len() / wanted]));
            let cpus: Vec<usize> = chosen.into_iter().map(|at| cores[at].0).collect();
            return cpus.chunks(threads).map(<[usize]>::to_vec).collect();
        }
        chosen.extend(kind);
        left = slower;
    }
}

/// The first `wanted` cores in the share of rank `place` of `ranks`, which divide `cores` evenly,
/// in order.
///
/// # Panics
/// When the share and what follows it have fewer than `wanted` cores.
fn share(cores: &[usize], place: usize, ranks: usize, wanted: usize) -> &[usize] {
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

/// A list of numbers as text, with ranges: `0-3,8`.
pub fn list(numbers: impl IntoIterator<Item = usize>) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let word = |&(first, last): &(usize, usize)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    ranges.iter().map(word).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::affinity::current_mask;

    /// Sockets of `cores` cores with two CPUs each, numbered as by Linux on x86: all cores first,
    /// then their siblings.
    fn machine(sockets: usize, cores: usize) -> Vec<Cpu> {
        let all = sockets * cores;
        (0..2 * all).map(|id| Cpu { id, core: id % all, package: id % all / cores }).collect()
    }

    fn all(cpus: &[Cpu]) -> Vec<usize> {
        cpus.iter().map(|cpu| cpu.id).collect()
    }

    /// Equal CPUs that no other process uses.
    fn host(cpus: &[Cpu]) -> HostCpus {
        let speeds = vec![1.0; cpus.len()];
        HostCpus { cpus: cpus.to_vec(), speeds, occupants: Vec::new() }
    }

    fn plan(cpus: &[Cpu], masks: &[Vec<usize>], index: usize, threads: usize) -> CpuPlacement {
        super::plan(&host(cpus), masks, index, threads)
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
    fn lists_have_ranges() {
        assert_eq!(list([0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
        assert_eq!(list([]), "");
    }

    #[test]
    fn the_cpus_of_this_thread_are_online() {
        let known = HostCpus::online().unwrap();
        let mask = current_mask().unwrap();
        assert!(mask.iter().all(|id| known.cpus.iter().any(|cpu| cpu.id == *id)));
    }

    #[test]
    fn the_fastest_cores_are_taken_first() {
        // Two efficiency cores, two performance cores, two more efficiency cores.
        let cores: Vec<(usize, f64)> =
            [0.4, 0.4, 1.0, 0.95, 0.4, 0.4].into_iter().enumerate().collect();
        assert_eq!(divide(&cores, 2, 1), [[2], [3]]);
        assert_eq!(divide(&cores, 1, 2), [[2, 3]]);
        assert_eq!(divide(&cores, 2, 2), [[0, 2], [3, 4]]);
        assert_eq!(divide(&cores, 3, 2), [[0, 1], [2, 3], [4, 5]]);
    }

    fn pinned(cpu: usize) -> Occupant {
        Occupant { cpus: vec![cpu], threads: 1, pid: None }
    }

    #[test]
    fn cores_in_use_are_left_alone_and_their_users_named() {
        let cpus = machine(1, 4);
        let masks = [all(&cpus)];
        let mut host = host(&cpus);
        // CPU 4 is the second one of core 0.
        host.occupants = vec![pinned(4), pinned(2)];
        assert_eq!(super::plan(&host, &masks, 0, 2), CpuPlacement::Pin(vec![1, 3]));
        let CpuPlacement::Leave(why) = super::plan(&host, &masks, 0, 3) else { panic!("no room") };
        assert_eq!(
            why.to_string(),
            "not pinned: of 4 core(s) 2 are free for 1 rank(s) of 3 thread(s); others are in use \
             by a run of skt-hpl in another container"
        );
        // What the launcher has bound stays there.
        let bound = CpuPlacement::Leave(WhyNot::LauncherDid(1));
        assert_eq!(super::plan(&host, &[vec![0, 4]], 0, 1), bound);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Runs that start one after the other, each seeing the claims of those before it.
        #[test]
        fn runs_have_disjoint_cores_while_enough_are_free(
            (sockets, cores) in (1usize..4, 1usize..9),
            foreign in prop::collection::vec(0usize..64, 0..8),
            runs in prop::collection::vec((1usize..4, 1usize..4), 1..6),
            slow in any::<u64>(),
        ) {
            let cpus = machine(sockets, cores);
            let mut host = host(&cpus);
            let count = sockets * cores;
            host.occupants = foreign.iter().map(|cpu| pinned(cpu % cpus.len())).collect();
            host.speeds = cpus.iter().map(|cpu| if slow >> cpu.core & 1 == 1 { 0.4 } else { 1.0 }).collect();
            let mut used: BTreeSet<usize> =
                host.occupants.iter().map(|occupant| occupant.cpus[0] % count).collect();
            for (ranks, threads) in runs {
                let masks = vec![all(&cpus); ranks];
                // A machine of one core is as wide as any occupant of it.
                let free = if count == 1 { 1 } else { count - used.len() };
                for rank in 0..ranks {
                    match super::plan(&host, &masks, rank, threads) {
                        CpuPlacement::Pin(pinned) => {
                            prop_assert!(ranks * threads <= free);
                            for cpu in pinned {
                                prop_assert!(used.insert(cpus[cpu].core) || count == 1);
                            }
                        }
                        CpuPlacement::Leave(why) => prop_assert!(ranks * threads > free, "{}", why),
                    }
                }
                let claims: Vec<_> = used.iter().map(|core| pinned(*core)).collect();
                host.occupants.extend(claims);
            }
        }
    }

    fn plan_helpers(
        cpus: &[Cpu],
        masks: &[Vec<usize>],
        index: usize,
        threads: usize,
        helpers: usize,
    ) -> Result<HelperCores, NoHelpers> {
        plan_with_helpers(&host(cpus), masks, index, threads, helpers)
    }

    #[test]
    fn helper_cores_are_spread_over_sockets_near_their_ranks() {
        let cpus = machine(2, 4);
        let masks = vec![all(&cpus); 4];
        let plans: Vec<_> =
            (0..4).map(|rank| plan_helpers(&cpus, &masks, rank, 1, 2).unwrap()).collect();
        assert!(plans.iter().all(|plan| plan.kept == [3, 7]));
        assert_eq!([0, 1, 2, 3].map(|rank| plans[rank].helper), [3, 3, 7, 7]);
        assert_eq!([0, 1, 2, 3].map(|rank| plans[rank].solver[0]), [0, 1, 4, 5]);
    }

    #[test]
    fn no_core_is_given_twice_and_all_ranks_name_the_same_ones() {
        for (sockets, cores) in [(1, 2), (1, 7), (2, 4), (4, 3)] {
            let cpus = machine(sockets, cores);
            for (ranks, threads, helpers) in triples(8) {
                let masks = vec![all(&cpus); ranks];
                let plans: Result<Vec<_>, _> = (0..ranks)
                    .map(|rank| plan_helpers(&cpus, &masks, rank, threads, helpers))
                    .collect();
                let Ok(plans) = plans else {
                    assert!(ranks * threads + helpers > sockets * cores);
                    continue;
                };
                let kept = &plans[0].kept;
                assert_eq!(kept.len(), helpers);
                assert!(plans.iter().all(|plan| plan.kept == *kept && kept.contains(&plan.helper)));
                let mut used: Vec<usize> =
                    plans.iter().flat_map(|plan| &plan.solver).copied().collect();
                assert_eq!(used.len(), ranks * threads);
                used.extend(kept);
                let mut used: Vec<usize> = used.iter().map(|id| cpus[*id].core).collect();
                used.sort_unstable();
                used.dedup();
                assert_eq!(used.len(), ranks * threads + helpers, "{ranks} x {threads}, {helpers}");
            }
        }
    }

    fn triples(most: usize) -> impl Iterator<Item = (usize, usize, usize)> {
        let pairs = (1..=most).flat_map(move |a| (1..=most).map(move |b| (a, b)));
        pairs.flat_map(move |(a, b)| (1..=most).map(move |c| (a, b, c)))
    }

    #[test]
    fn helper_cores_are_shared_evenly() {
        let cpus = machine(1, 12);
        let masks = vec![all(&cpus); 8];
        let helpers = (0..8).map(|rank| plan_helpers(&cpus, &masks, rank, 1, 3).unwrap().helper);
        assert_eq!(helpers.collect::<Vec<_>>(), [3, 3, 3, 7, 7, 7, 11, 11]);
    }

    #[test]
    fn helper_cores_that_ranks_may_not_have_are_refused() {
        let cpus = machine(1, 4);
        let bound = "the ranks are bound to different cores: start them unbound (Open MPI: \
                     --bind-to none; srun: --cpu-bind=none; no taskset)";
        for (masks, words) in [
            (vec![vec![0, 4], vec![1, 5]], bound),
            // A rank that is alone on its host, and bound to the core that it needs.
            (vec![vec![2, 6]], "1 rank(s) of 1 thread(s) and 1 helper core(s) take 2 cores"),
            (vec![all(&cpus); 4], "take 5 cores, and they may use 4: start fewer ranks there or"),
        ] {
            let refused = plan_helpers(&cpus, &masks, 0, 1, 1).unwrap_err();
            assert!(
                matches!(&refused, NoHelpers::Refused(why) if why.contains(words)),
                "{refused:?}"
            );
        }
        // A part of the host that all ranks may use works like a whole host.
        let half = vec![vec![0, 1, 2, 4, 5, 6]; 2];
        let given = plan_helpers(&cpus, &half, 1, 1, 1).unwrap();
        assert_eq!(given, HelperCores { solver: vec![1], helper: 2, kept: vec![2] });
    }
}
