//! The cores of a rank's threads.

use serde::{Deserialize, Serialize};

use super::places::RankCores;
use skt_comm::{Comm, CommError, collect};
use skt_config::Pin;
use skt_host::core_use::{self, CoreClaims};
use skt_host::placement::{self, CpuPlacement, HelperCores, HostCpus, NoHelpers, WhyNot};
use skt_host::starter::{Starter, UNBOUND};
use skt_solver::blas::library;
use skt_solver::team::Team;

/// What a rank wants of its host.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PinningRequest {
    /// Threads of each rank.
    pub threads: usize,
    /// Cores of each host that are kept from the solver.
    pub helper_cores: usize,
    /// Whether threads are pinned.
    pub pin: Pin,
}

/// The cores of a rank's threads.
#[derive(Debug)]
pub(crate) struct Pinning {
    pub plan: RankPlan,
    /// On the first rank of a host: the cores of all its ranks.
    pub host: Option<HostPlan>,
}

/// The cores of the ranks of a host.
#[derive(Debug)]
pub(crate) struct HostPlan {
    /// All CPUs, and who else uses them.
    pub cpus: HostCpus,
    /// The CPUs that each rank may use.
    pub masks: Vec<Vec<usize>>,
    /// The CPUs of threads that have a core of their own, and of helper cores.
    pub used: Vec<usize>,
    /// Threads without a core of their own.
    pub floating: usize,
    /// Keeps other runs away from these cores while the job runs.
    _claims: CoreClaims,
}

/// The cores of a rank, which the first rank of its host has chosen.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct RankPlan {
    /// The plan of the solver's threads; `None` where the system does not list its processors.
    solver: Option<CpuPlacement>,
    /// The CPU of the other threads, if one is kept for them.
    helper_cpu: Option<usize>,
    /// The CPUs of this host that are kept from the solver.
    pub kept: Vec<usize>,
    /// Why there are no helper cores although they were requested.
    pub refusal: Option<String>,
    /// Processes on the cores to which the launcher has bound the rank, in words.
    shared_with: Option<String>,
}

impl RankPlan {
    fn with_solver(solver: Option<CpuPlacement>) -> Self {
        Self { solver, ..Self::default() }
    }

    fn refused(why: String) -> Self {
        Self { refusal: Some(why), ..Self::default() }
    }

    /// The CPUs that the rank uses alone or with other ranks of its job. `mask` are those that it
    /// may use.
    fn used(&self, cpus: &HostCpus, mask: &[usize]) -> Vec<usize> {
        let solver = match &self.solver {
            Some(CpuPlacement::Pin(pinned)) => pinned.clone(),
            Some(CpuPlacement::Leave(WhyNot::LauncherDid(_) | WhyNot::LauncherTooTight { .. })) => {
                placement::cores_in(&cpus.cpus, mask)
            }
            _ => Vec::new(),
        };
        [solver, self.kept.clone()].concat()
    }
}

/// Plans the cores of all ranks of a host with these `masks`.
fn plans(
    cpus: &HostCpus,
    masks: &[Vec<usize>],
    wanted: &PinningRequest,
    host: &str,
) -> Vec<RankPlan> {
    let PinningRequest { threads, helper_cores, .. } = *wanted;
    let one = |index: usize| {
        if helper_cores == 0 {
            let solver = placement::plan(cpus, masks, index, threads);
            let is_bound = is_bound(&solver);
            let there = core_use::within(&cpus.cpus, &masks[index], &cpus.occupants);
            let shared_with = (is_bound && !there.is_empty()).then(|| core_use::words(there));
            return RankPlan { shared_with, ..RankPlan::with_solver(Some(solver)) };
        }
        match placement::plan_with_helpers(cpus, masks, index, threads, helper_cores) {
            Ok(HelperCores { solver, helper, kept }) => RankPlan {
                helper_cpu: Some(helper),
                kept,
                ..RankPlan::with_solver(Some(CpuPlacement::Pin(solver)))
            },
            // Others may be on these cores for a short time, for which no run is given up.
            Err(NoHelpers::InUse(why)) => RankPlan::with_solver(Some(CpuPlacement::Leave(why))),
            Err(NoHelpers::Refused(why)) => {
                RankPlan::refused(format!("--helper-cores {helper_cores}: on {host} {why}"))
            }
        }
    };
    (0..masks.len()).map(one).collect()
}

/// Whether the launcher has bound a rank to the cores that it needs, or fewer.
fn is_bound(placement: &CpuPlacement) -> bool {
    use CpuPlacement::Leave;
    use WhyNot::{LauncherDid, LauncherTooTight};
    matches!(placement, Leave(LauncherDid(_) | LauncherTooTight { .. }))
}

/// Chooses the cores of the ranks of this machine, of which the first is on `host`.
fn choose(
    cores: &[RankCores],
    host: &str,
    wanted: &PinningRequest,
) -> (Option<HostPlan>, Vec<RankPlan>) {
    let all = cores.len();
    let masks: Vec<_> = cores.iter().map(RankCores::mask).collect();
    let known = HostCpus::online().ok().filter(|_| !masks.iter().any(Vec::is_empty));
    let Some(mut cpus) = known else {
        let unknown = "the system does not report which processors there are";
        let plan = || match wanted.helper_cores {
            0 => RankPlan::with_solver(None),
            helpers => RankPlan::refused(format!("--helper-cores {helpers}: on {host} {unknown}")),
        };
        return (None, (0..all).map(|_| plan()).collect());
    };
    if wanted.pin == Pin::None {
        let declined = || Some(CpuPlacement::Leave(WhyNot::Declined));
        let plans = (0..all).map(|_| RankPlan::with_solver(declined())).collect();
        let (used, floating) = (Vec::new(), all * wanted.threads);
        let _claims = CoreClaims::none();
        return (Some(HostPlan { cpus, masks, used, floating, _claims }), plans);
    }
    let own: Vec<u32> = cores.iter().map(|cores| cores.process).collect();
    // A rank that is bound has no other core: what shares its own is named. Others take no core to
    // which something narrower than their mask is pinned.
    let bound: Vec<bool> = (0..all)
        .map(|index| is_bound(&placement::plan(&cpus, &masks, index, wanted.threads)))
        .collect();
    cpus.occupants = core_use::find(&own, |pinned| {
        masks.iter().zip(&bound).any(|(mask, is_bound)| {
            (pinned.len() < mask.len() || (*is_bound && pinned.len() == mask.len()))
                && pinned.iter().all(|cpu| mask.binary_search(cpu).is_ok())
        })
    });
    let listed = cpus.cpus.clone();
    let (_claims, (cpus, plans, used)) = CoreClaims::take(&listed, |claims| {
        cpus.occupants.extend(claims);
        let plans = plans(&cpus, &masks, wanted, host);
        let of_rank = |(plan, mask): (&RankPlan, &Vec<usize>)| plan.used(&cpus, mask);
        let used: Vec<usize> = plans.iter().zip(&masks).flat_map(of_rank).collect();
        ((cpus, plans, used.clone()), used)
    });
    let floats = |plan: &&RankPlan| match &plan.solver {
        Some(CpuPlacement::Pin(_)) => false,
        Some(other) => !is_bound(other),
        None => true,
    };
    let floating = plans.iter().filter(floats).count() * wanted.threads;
    (Some(HostPlan { cpus, masks, used, floating, _claims }), plans)
}

impl Pinning {
    /// Chooses among the `cores` of all ranks of `machine`. Its first rank looks once at what other
    /// processes use there, and chooses for all. Collective.
    pub(crate) fn new(
        machine: &Comm,
        cores: &[RankCores],
        wanted: &PinningRequest,
    ) -> Result<Self, CommError> {
        let (host, plans) = match machine.rank() {
            0 => choose(cores, &machine.host(), wanted),
            _ => (None, Vec::new()),
        };
        let mut plans: Vec<RankPlan> = collect::broadcast_json(machine, &plans, 0)?;
        Ok(Self { plan: plans.swap_remove(machine.rank()), host })
    }

    /// Starts the solver's threads; the calling one is the first.
    pub(crate) fn start_team(&self, threads: usize) -> std::io::Result<Team> {
        let pinner = self.plan.solver.as_ref().map(CpuPlacement::pinner);
        let pin = move |thread: usize| pinner.iter().for_each(|pin| pin(thread));
        pin(0);
        Ok(library::start_team(threads, pin)?.with_helper_cpu(self.plan.helper_cpu))
    }

    /// Explains that the threads of a rank on `host` have fewer cores than threads, or share them
    /// with other processes, and what to change; empty if they have enough.
    pub(crate) fn lack(&self, host: &str) -> String {
        let solver = self.plan.solver.as_ref();
        match (solver, &self.plan.shared_with) {
            (Some(CpuPlacement::Leave(WhyNot::LauncherTooTight { cores, threads })), _) => format!(
                "on {host} a rank of {threads} threads may use {cores} core(s): {}",
                Starter::advice(*threads)
            ),
            (
                Some(CpuPlacement::Leave(
                    why @ (WhyNot::Oversubscribed { .. } | WhyNot::InUse { .. }),
                )),
                _,
            ) => format!("on {host} {why}: start fewer ranks or threads there"),
            (_, Some(others)) => format!(
                "on {host} a rank is bound to cores that are in use by {others}: bind no ranks \
                 ({UNBOUND}), and skt-hpl takes free ones"
            ),
            _ => String::new(),
        }
    }

    /// The placement of the solver's threads, for the report.
    pub(crate) fn words(&self) -> String {
        match &self.plan.solver {
            None => "not pinned: the system does not report which processors there are".into(),
            Some(CpuPlacement::Pin(cpus)) => {
                let list = placement::list(cpus.iter().copied());
                format!("each thread to its own core; rank 0 to cpu {list}")
            }
            Some(CpuPlacement::Leave(why)) => why.to_string(),
        }
    }
}
