//! Collects the facts of all ranks on rank 0.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::facts::{HostFacts, RankFacts};
use super::measure;
use super::names::{self, View};
use super::trial::{self, Trial};
use crate::environment::library::{Products, RatedBlas, rated_here};
use skt_comm::{Comm, CommError, collect};
use skt_host::core_use::JobPart;
use skt_host::counters::{Counters, Root};
use skt_host::placement::{self, HostCpus};
use skt_solver::blas::library;

/// The most names that each host looks up.
const MAX_NAMES: usize = 256;

/// Why the facts cannot be collected.
#[derive(Debug, thiserror::Error)]
pub enum GatherError {
    /// A rank was lost.
    #[error(transparent)]
    Comm(#[from] CommError),
    /// A rank could not measure.
    #[error("rank {rank} ({host}) cannot measure: {why}")]
    Measure {
        /// The rank.
        rank: usize,
        /// The rank's host.
        host: String,
        /// The reason.
        why: String,
    },
}

/// What rank 0 has: the hosts, and what they know of each other's names.
pub type Gathered = (Vec<HostFacts>, Vec<View>);

/// What a rank sends to rank 0.
#[derive(Serialize, Deserialize)]
struct RankReport {
    host: String,
    facts: RankFacts,
    /// The report on the host, from its first rank alone.
    first: Option<HostReport>,
    /// Why the rank could not measure.
    failed: Option<String>,
}

/// What the first rank of a host reports about it.
#[derive(Serialize, Deserialize)]
struct HostReport {
    counters: Counters,
    trial: Option<Trial>,
    libraries: Vec<RatedBlas>,
    view: Option<View>,
}

/// The facts of all ranks, on rank 0, and what the hosts know of each other's names; `None` on the
/// other ranks. `threads` is the number of threads of a rank; `None` stands for all cores that it
/// may use. Collective.
///
/// # Errors
/// When a rank is lost or cannot measure; on each rank, or on rank 0.
pub fn gather(
    world: &Comm,
    threads: Option<usize>,
    is_launched: bool,
) -> Result<Option<Gathered>, GatherError> {
    library::use_one_thread();
    let counters = Counters::read(&Root::this_machine());
    let mask = counters.allowed_cpus.clone();
    let cores = placement::cores_in(&counters.cpus, &mask).len();
    let threads = threads.unwrap_or(cores).max(1);
    let place = (world.host(), mask.clone(), std::process::id());
    let places = collect::all_gather_json(world, &place)?;
    let here: Vec<usize> =
        (0..places.len()).filter(|&rank| places[rank].0 == places[world.rank()].0).collect();
    let is_first = here[0] == world.rank();
    let index = here.iter().position(|&rank| rank == world.rank()).expect("its own neighbour");
    let masks: Vec<Vec<usize>> = here.iter().map(|&rank| places[rank].1.clone()).collect();
    // Others are not avoided: what they take from this machine is to be measured.
    let cpus = HostCpus::from_counters(&counters);
    let pin = placement::plan(&cpus, &masks, index, threads).pinner();
    pin(0);
    let team = library::start_team(threads, pin);
    let job = is_first.then(|| JobPart {
        processes: here.iter().map(|&rank| places[rank].2).collect(),
        cpus: masks.concat(),
    });
    world.barrier()?;
    let measured = match &team {
        Ok(team) => measure::measure(team, &mask, job).map_err(|why| why.to_string()),
        Err(why) => Err(format!("{threads} threads: {why}")),
    };
    let (measured, failed) = match measured {
        Ok(measured) => (Some(measured), None),
        Err(why) => (None, Some(why)),
    };
    drop(team);
    // The processes of the trials are to have a core.
    world.barrier()?;
    let blas = library::loaded();
    let first = is_first.then(|| HostReport {
        trial: measured.as_ref().map(|measured| {
            let units = measured.units(&counters.processor);
            trial::try_kernels(&blas, &counters.processor, measured.best_gflops, units)
        }),
        libraries: rated_here(&Products::default()),
        view: view(&places, world.rank()),
        counters: counters.clone(),
    });
    let allowed_nodes = counters.allowed_nodes;
    let (rank, kernel) = (world.rank(), blas.kernel);
    let facts = RankFacts { rank, mask, allowed_nodes, threads, kernel, measured };
    let report = RankReport { host: places[world.rank()].0.clone(), facts, first, failed };
    let all = collect::gather_json(world, &report, 0)?;
    all.map(|all| by_host(all, is_launched)).transpose()
}

/// What this host knows of the names of all, if there are several.
fn view(places: &[(String, Vec<usize>, u32)], rank: usize) -> Option<View> {
    let names: BTreeSet<&String> = places.iter().map(|(host, ..)| host).collect();
    let names: Vec<String> = names.into_iter().take(MAX_NAMES).cloned().collect();
    (names.len() > 1).then(|| names::look_up(&places[rank].0, &names))
}

fn by_host(all: Vec<RankReport>, is_launched: bool) -> Result<Gathered, GatherError> {
    let (mut hosts, mut views): (Vec<HostFacts>, Vec<View>) = (Vec::new(), Vec::new());
    for report in all {
        if let Some(why) = report.failed {
            return Err(GatherError::Measure { rank: report.facts.rank, host: report.host, why });
        }
        if let Some(HostReport { counters, trial, libraries, view }) = report.first {
            let (host, ranks) = (report.host.clone(), Vec::new());
            let idle_cores = None;
            let facts =
                HostFacts { host, counters, trial, libraries, ranks, is_launched, idle_cores };
            hosts.push(facts);
            views.extend(view);
        }
        let host = hosts.iter_mut().find(|host| host.host == report.host);
        host.expect("its first rank came before").ranks.push(report.facts);
    }
    Ok((hosts, views))
}

/// The facts of a machine of which only the files under `root` are known; nothing is measured.
pub fn from_tree(root: &Root, host: &str) -> HostFacts {
    let counters = Counters::read(root);
    let mask = counters.allowed_cpus.clone();
    let threads = placement::cores_in(&counters.cpus, &mask).len();
    let allowed_nodes = counters.allowed_nodes.clone();
    let rank = RankFacts { rank: 0, mask, allowed_nodes, threads, kernel: None, measured: None };
    let (host, ranks) = (host.to_owned(), vec![rank]);
    let (trial, libraries) = (None, Vec::new());
    HostFacts { host, counters, trial, libraries, ranks, is_launched: false, idle_cores: None }
}
