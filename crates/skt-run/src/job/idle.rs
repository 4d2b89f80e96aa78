//! Cores that the job may use and that nothing uses.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use std::{env, thread};

use super::pinning::HostPlan;
use skt_host::core_use::{self, CpuTicks};
use skt_host::counters::topology::Cpu;
use skt_host::counters::{Root, cgroup};
use skt_host::launcher_rank;

/// The least time during which CPUs are watched: the system counts in ticks of 10 ms.
const SAMPLE: Duration = Duration::from_millis(50);
/// CPUs of this host that Slurm has given to the job's step.
const SLURM_CPUS: &str = "SLURM_CPUS_ON_NODE";

/// Watches the CPUs of a machine that its ranks do not use, from now on.
pub(crate) struct IdleWatch<'a> {
    host: &'a HostPlan,
    root: Root,
    since: Instant,
    before: BTreeMap<usize, CpuTicks>,
}

impl<'a> IdleWatch<'a> {
    pub(crate) fn start(host: &'a HostPlan) -> Self {
        let root = Root::this_machine();
        let before = core_use::read_cpus(&root);
        Self { host, root, since: Instant::now(), before }
    }

    /// The number of idle cores, with `threads` threads in each rank. Waits for the end of the
    /// sample if there may be some.
    pub(crate) fn idle_cores(self, threads: usize) -> usize {
        let HostPlan { cpus, masks, used, floating, .. } = self.host;
        let usable = self.usable_cpus();
        let taken = core_use::taken(&cpus.cpus, &usable, &cpus.occupants);
        let spare: BTreeSet<usize> = cores(&cpus.cpus, &usable)
            .difference(&cores(&cpus.cpus, used))
            .filter(|core| !taken.contains_key(core))
            .copied()
            .collect();
        // Threads that are not pinned will run on some of these cores. Control groups and Slurm may
        // leave the job less time than its cores have.
        let bound = self.cores_max(&cpus.cpus).saturating_sub(masks.len() * threads);
        let most = spare.len().saturating_sub(*floating).min(bound);
        if most == 0 {
            return 0;
        }
        thread::sleep(SAMPLE.saturating_sub(self.since.elapsed()));
        let idle_cpus = core_use::idle_since(&core_use::read_cpus(&self.root), &self.before);
        let is_idle = |core: &&usize| {
            let mut cpus = cpus.cpus.iter().filter(|cpu| cpu.core == **core);
            cpus.all(|cpu| idle_cpus.contains(&cpu.id))
        };
        spare.iter().filter(is_idle).count().min(most)
    }

    /// The CPUs that the job may use: those of its ranks and of their launcher, which may have
    /// bound each rank to some of them, as far as the control groups leave them to the job.
    fn usable_cpus(&self) -> Vec<usize> {
        let of_ranks = self.host.masks.iter().flatten().copied();
        let of_launcher = launcher_rank::launcher_mask().unwrap_or_default();
        let left = cgroup::cpus(&self.root);
        let is_left = |cpu: &usize| left.as_ref().is_none_or(|left| left.contains(cpu));
        let all: BTreeSet<usize> = of_ranks.chain(of_launcher).filter(is_left).collect();
        all.into_iter().collect()
    }

    /// The most cores for which the job has processor time.
    fn cores_max(&self, cpus: &[Cpu]) -> usize {
        let quota = cgroup::quota(&self.root).map(|quota| quota.cores as usize);
        let slurm = env::var(SLURM_CPUS).ok().and_then(|text| text.trim().parse::<usize>().ok());
        let all: BTreeSet<usize> = cpus.iter().map(|cpu| cpu.core).collect();
        // Slurm counts hardware threads.
        let slurm = slurm.map(|given| given * all.len() / cpus.len().max(1));
        quota.into_iter().chain(slurm).min().unwrap_or(usize::MAX)
    }
}

fn cores(cpus: &[Cpu], mask: &[usize]) -> BTreeSet<usize> {
    cpus.iter().filter(|cpu| mask.contains(&cpu.id)).map(|cpu| cpu.core).collect()
}
