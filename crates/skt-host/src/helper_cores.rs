//! Cores of a host that are kept from the solver, for other threads: the one that writes images,
//! and the one that encodes while the solver computes.

use crate::placement::{HostCpus, cores_in, divide, share};
use crate::starter::UNBOUND;

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

/// Why there are no helper cores.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // each message names its fields
pub enum NotGiven {
    /// The ranks may not use the same CPUs.
    #[error(
        "the ranks are bound to different cores; start them unbound ({UNBOUND}), and skt-hpl pins \
         their threads"
    )]
    Bound,
    /// Other processes are pinned to cores that are needed.
    #[error(
        "{wanted} core(s) are needed and {free} of {cores} are free; others are in use by {users}"
    )]
    InUse { wanted: usize, free: usize, cores: usize, users: String },
    /// Ranks, threads and helper cores need more cores than there are.
    #[error(
        "{ranks} rank(s) of {threads} thread(s) and {helpers} helper core(s) take {} cores, and they \
         may use {cores}; start fewer ranks there, lower --threads or, if they are bound, start \
         them unbound ({UNBOUND})",
        ranks * threads + helpers
    )]
    TooFew { ranks: usize, threads: usize, helpers: usize, cores: usize },
}

/// Plans for rank `index` of the ranks on this host, of `threads` threads each, which keep
/// `helpers` of its free cores from the solver. `masks` has the CPUs that each of these ranks may
/// use.
///
/// The helper cores are the last ones of equal parts of all cores, so that each socket has its part
/// of them, and a rank gets one near its own cores.
///
/// # Errors
/// When there are too few cores, or the launcher has bound ranks to different ones.
///
/// # Panics
/// When `index` is no rank of this host, or `helpers` is 0.
pub fn plan(
    host: &HostCpus,
    masks: &[Vec<usize>],
    index: usize,
    threads: usize,
    helpers: usize,
) -> Result<HelperCores, NotGiven> {
    assert!(helpers > 0);
    let (mask, ranks) = (&masks[index], masks.len());
    if masks.iter().any(|other| other != mask) {
        return Err(NotGiven::Bound);
    }
    let (wanted, cores) = (ranks * threads + helpers, cores_in(&host.cpus, mask).len());
    if wanted > cores {
        return Err(NotGiven::TooFew { ranks, threads, helpers, cores });
    }
    let free = host.free(mask);
    if wanted > free.len() {
        let (free, users) = (free.len(), host.users(mask));
        return Err(NotGiven::InUse { wanted, free, cores, users });
    }
    let kept: Vec<usize> =
        (1..=helpers).map(|part| free[part * free.len() / helpers - 1].0).collect();
    let others: Vec<_> = free.into_iter().filter(|(cpu, _)| !kept.contains(cpu)).collect();
    let solver = divide(&others, ranks, threads).swap_remove(index);
    let helper = share(&kept, index, ranks, 1)[0];
    Ok(HelperCores { solver, helper, kept })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::Cpu;
    use crate::placement::tests::{all, host, machine};

    fn plan(
        cpus: &[Cpu],
        masks: &[Vec<usize>],
        index: usize,
        threads: usize,
        helpers: usize,
    ) -> Result<HelperCores, NotGiven> {
        super::plan(&host(cpus), masks, index, threads, helpers)
    }

    #[test]
    fn helper_cores_are_spread_over_sockets_near_their_ranks() {
        let cpus = machine(2, 4);
        let masks = vec![all(&cpus); 4];
        let plans: Vec<_> = (0..4).map(|rank| plan(&cpus, &masks, rank, 1, 2).unwrap()).collect();
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
                let plans: Result<Vec<_>, _> =
                    (0..ranks).map(|rank| plan(&cpus, &masks, rank, threads, helpers)).collect();
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
        let helpers = (0..8).map(|rank| plan(&cpus, &masks, rank, 1, 3).unwrap().helper);
        assert_eq!(helpers.collect::<Vec<_>>(), [3, 3, 3, 7, 7, 7, 11, 11]);
    }

    #[test]
    fn the_launchers_binding_is_named_with_what_to_do() {
        let cpus = machine(1, 4);
        let bound = [vec![0, 4], vec![1, 5]];
        assert_eq!(plan(&cpus, &bound, 0, 1, 1), Err(NotGiven::Bound));
        assert!(NotGiven::Bound.to_string().contains("--bind-to none"));
        // A rank that is alone on its host, and bound to the core that it needs.
        let why = plan(&cpus, &[vec![2, 6]], 0, 1, 1).unwrap_err();
        let want = NotGiven::TooFew { ranks: 1, threads: 1, helpers: 1, cores: 1 };
        assert_eq!(why, want);
        assert!(why.to_string().contains("--bind-to none"), "{why}");
    }

    #[test]
    fn too_few_cores_are_counted() {
        let cpus = machine(1, 4);
        let why = plan(&cpus, &vec![all(&cpus); 4], 2, 1, 1).unwrap_err().to_string();
        let want = "4 rank(s) of 1 thread(s) and 1 helper core(s) take 5 cores, and they may use 4; \
                    start fewer ranks there, lower --threads or, if they are bound, start them \
                    unbound (Open MPI: --bind-to none; srun: --cpu-bind=none; no taskset)";
        assert_eq!(why, want);
        // A part of the host that all ranks may use works like a whole host.
        let half = vec![vec![0, 1, 2, 4, 5, 6]; 2];
        let given = plan(&cpus, &half, 1, 1, 1).unwrap();
        assert_eq!(given, HelperCores { solver: vec![1], helper: 2, kept: vec![2] });
    }
}
