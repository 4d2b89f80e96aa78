//! What is known of hosts and ranks.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::environment::BlasInfo;
use crate::environment::bf16::Bf16SelfTest;
use crate::environment::kernel::named_by;
use crate::environment::library::RatedBlas;
use skt_host::core_use::CoreUse;
use skt_host::counters::Counters;
use skt_host::counters::processor::Processor;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HostFacts {
    pub host: String,
    pub counters: Counters,
    pub blas: Option<CalledKernel>,
    /// The BLAS libraries that it has, as [`crate::environment::library`] tries them.
    pub libraries: Vec<RatedBlas>,
    pub ranks: Vec<RankFacts>,
    /// Whether a launcher started the ranks; otherwise one process stands for all cores it may use.
    pub is_launched: bool,
    /// Cores that the job may use and that nothing uses, if that was counted.
    pub idle_cores: Option<usize>,
    /// Gflop/s of DGEMM and of the vector units on a core at the start of a run.
    pub start_gflops: Option<(f64, f64)>,
}

/// A library, and the kernel that it has chosen.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CalledKernel {
    pub library: String,
    pub version: Option<String>,
    pub kernel: Option<String>,
    /// The variable of the environment that names the kernel.
    pub named_by: Option<String>,
}

impl From<&BlasInfo> for CalledKernel {
    fn from(blas: &BlasInfo) -> Self {
        Self {
            library: blas.library.clone(),
            version: blas.version.clone(),
            kernel: blas.kernel.clone(),
            named_by: named_by(blas).map(str::to_owned),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RankFacts {
    pub rank: usize,
    pub mask: Vec<usize>,
    /// Nodes of which it may take memory; none if that is not known.
    pub allowed_nodes: Vec<usize>,
    pub threads: usize,
    /// What was measured, with all ranks at work.
    pub measured: Option<RankMeasurement>,
}

/// What a rank has measured. Rates are of one thread, as the mean over the threads of the rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RankMeasurement {
    /// The rate of DGEMM in the fastest call, in Gflop/s.
    pub best_gflops: f64,
    /// The rate of DGEMM over the whole time, in Gflop/s.
    pub mean_gflops: f64,
    /// What the vector units do, in Gflop/s, if this program has a loop for them.
    pub units_gflops: Option<f64>,
    /// The share of the time during which the threads had a core.
    pub cpu_share: f64,
    /// The rate of SGEMM in the fastest call, in Gflop/s.
    pub sgemm_gflops: f64,
    /// The share of the time of SGEMM for which the threads had a core.
    pub sgemm_cpu_share: f64,
    /// The products of bf16 of each library that has such.
    pub bf16: Vec<Bf16SelfTest>,
    /// The clock without vector instructions, in GHz, if this program can measure it.
    pub light_gigahertz: Option<f64>,
    /// The clock among vector instructions of all ranks, after the DGEMM, in GHz.
    pub vector_gigahertz: Option<f64>,
    /// Bytes of the rank's private memory on each node.
    pub node_bytes: BTreeMap<usize, u64>,
    /// Events of throttling on the host during the measurement.
    pub throttled: u64,
    /// What its threads got of the cores during the DGEMM, and who used the rest.
    pub core_use: CoreUse,
}

impl HostFacts {
    /// A host whose ranks may use the CPUs `masks`, with `threads` threads each, and as much memory
    /// as this process.
    pub(crate) fn new(
        host: &str,
        counters: Counters,
        masks: &[Vec<usize>],
        threads: usize,
    ) -> Self {
        let rank = |(rank, mask): (usize, &Vec<usize>)| {
            let (mask, allowed_nodes) = (mask.clone(), counters.allowed_nodes.clone());
            RankFacts { rank, mask, allowed_nodes, threads, measured: None }
        };
        let ranks = masks.iter().enumerate().map(rank).collect();
        Self { host: host.to_owned(), counters, ranks, ..Self::default() }
    }

    pub(crate) fn threads(&self) -> usize {
        self.ranks.iter().map(|rank| rank.threads).sum()
    }

    /// The cores that these CPUs belong to.
    pub(crate) fn cores_of(&self, cpus: &[usize]) -> BTreeSet<usize> {
        let all = self.counters.cpus.iter();
        all.filter(|cpu| cpus.contains(&cpu.id)).map(|cpu| cpu.core).collect()
    }

    /// The number of cores that have a thread.
    pub(crate) fn cores_at_work(&self) -> usize {
        self.threads().min(self.cores_of(&Vec::from_iter(self.used_cpus())).len())
    }

    /// The cores that the job may use.
    pub(crate) fn usable_cores(&self) -> usize {
        self.cores_of(&self.counters.usable_cpus).len().max(1)
    }

    /// The CPUs that any rank may use.
    pub(crate) fn used_cpus(&self) -> BTreeSet<usize> {
        self.ranks.iter().flat_map(|rank| rank.mask.iter().copied()).collect()
    }

    pub(crate) fn measured(&self) -> impl Iterator<Item = &RankMeasurement> {
        self.ranks.iter().filter_map(|rank| rank.measured.as_ref())
    }

    /// The mean of a measured value over the ranks; `None` if a rank has none, or nothing was
    /// measured.
    pub(crate) fn mean(&self, value: impl Fn(&RankMeasurement) -> Option<f64>) -> Option<f64> {
        let values: Option<Vec<f64>> = self.measured().map(value).collect();
        let values = values.filter(|values| !values.is_empty())?;
        Some(values.iter().sum::<f64>() / values.len() as f64)
    }

    /// Gflop/s of DGEMM and of the vector units on a core.
    pub(crate) fn rate_and_units(&self) -> Option<(f64, f64)> {
        let measured = || {
            let units = self.mean(|it| it.units(&self.counters.processor))?;
            Some((self.mean(|it| Some(it.best_gflops))?, units))
        };
        self.start_gflops.or_else(measured)
    }

    /// The nominal clock in GHz, if the host reports it.
    pub(crate) fn nominal_gigahertz(&self) -> Option<f64> {
        let base = self.counters.frequencies.cpus.first().and_then(|clock| clock.base_khz);
        base.or(self.counters.processor.named_khz).map(|khz| khz as f64 / 1e6)
    }

    /// The highest clock in GHz, which a processor that boosts has for a while, or for few cores.
    pub(crate) fn highest_gigahertz(&self) -> Option<f64> {
        self.counters.frequencies.cpus.first().map(|clock| clock.most_khz as f64 / 1e6)
    }

    /// The theoretical peak of a core in Gflop/s, from its vector units and its nominal clock, or
    /// else its highest one.
    pub(crate) fn theoretical_gflops(&self) -> Option<f64> {
        let clock = self.nominal_gigahertz().or(self.highest_gigahertz())?;
        Some(clock * self.counters.processor.flops_a_cycle()?)
    }
}

impl RankMeasurement {
    /// The rate of the vector units of a core, in Gflop/s: measured, or from the measured clock.
    pub(crate) fn units(&self, processor: &Processor) -> Option<f64> {
        self.units_gflops.or_else(|| Some(self.vector_gigahertz? * processor.flops_a_cycle()?))
    }
}
