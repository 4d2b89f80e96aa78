//! Collects the facts of all ranks on rank 0.

use serde::{Deserialize, Serialize};

use super::facts::{CalledKernel, HostFacts, RankFacts};
use super::measure;
use crate::environment::library::{Products, rated_here};
use skt_comm::{Comm, CommError, collect};
use skt_host::core_use::JobPart;
use skt_host::counters::{Counters, Root};
use skt_host::placement::{self, HostCpus};
use skt_solver::blas::library;
use skt_solver::team::Team;

/// Where a rank is, for the ranks that share its host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Place {
    pub host: String,
    pub process: u32,
    pub mask: Vec<usize>,
}

impl Place {
    pub fn here(world: &Comm, counters: &Counters) -> Self {
        let (host, mask) = (world.host(), counters.allowed_cpus.clone());
        Self { host, process: std::process::id(), mask }
    }
}

/// The part of a job that is on this host.
pub fn job_part(places: &[Place], host: &str) -> JobPart {
    let here = || places.iter().filter(|place| place.host == host);
    JobPart {
        processes: here().map(|place| place.process).collect(),
        cpus: here().flat_map(|place| place.mask.clone()).collect(),
    }
}

/// Starts the threads of rank `own`, each on a separate core where there are enough. Other programs
/// are not avoided: what they take from this machine is to be measured.
pub fn start_team(
    counters: &Counters,
    places: &[Place],
    own: usize,
    threads: usize,
) -> Result<Team, String> {
    let is_here = |place: &&Place| place.host == places[own].host;
    let masks: Vec<Vec<usize>> =
        places.iter().filter(is_here).map(|place| place.mask.clone()).collect();
    let index = places[..own].iter().filter(is_here).count();
    let cpus = HostCpus::from_counters(counters);
    let pin = placement::plan(&cpus, &masks, index, threads).pinner();
    pin(0);
    library::start_team(threads, pin).map_err(|why| format!("{threads} threads: {why}"))
}

/// What a rank sends to rank 0.
#[derive(Serialize, Deserialize)]
struct RankReport {
    /// The host with this rank; its first rank adds what is known of it.
    host: HostFacts,
    failed: Option<String>,
}

/// The facts of all ranks, on rank 0; `None` on the other ranks. The inner error is a rank's that
/// cannot measure. `threads` is the number of threads of a rank; `None` stands for all cores that it
/// may use. Collective.
pub fn gather(
    world: &Comm,
    threads: Option<usize>,
    is_launched: bool,
) -> Result<Option<Result<Vec<HostFacts>, String>>, CommError> {
    library::use_one_thread();
    let counters = Counters::read(&Root::this_machine());
    let mask = counters.allowed_cpus.clone();
    let cores = placement::cores_in(&counters.cpus, &mask).len();
    let threads = threads.unwrap_or(cores).max(1);
    let places = collect::all_gather_json(world, &Place::here(world, &counters))?;
    let own = &places[world.rank()];
    let is_first = places.iter().find(|it| it.host == own.host).is_some_and(|it| it == own);
    let team = start_team(&counters, &places, world.rank(), threads);
    let job = is_first.then(|| job_part(&places, &own.host));
    world.barrier()?;
    let measured = team
        .as_ref()
        .map_err(Clone::clone)
        .and_then(|team| measure::measure(team, &mask, job).map_err(|why| why.to_string()));
    let (measured, failed) = match measured {
        Ok(measured) => (Some(measured), None),
        Err(why) => (None, Some(why)),
    };
    drop(team);
    // The processes of the trials are to have a core.
    world.barrier()?;
    let blas = library::loaded();
    let rank = RankFacts {
        rank: world.rank(),
        mask,
        allowed_nodes: counters.allowed_nodes.clone(),
        threads,
        measured,
    };
    let mut host = HostFacts {
        host: own.host.clone(),
        ranks: vec![rank],
        is_launched,
        ..HostFacts::default()
    };
    if is_first {
        let blas = Some(CalledKernel::from(&blas));
        host = HostFacts { counters, blas, libraries: rated_here(&Products::default()), ..host };
    }
    let all = collect::gather_json(world, &RankReport { host, failed }, 0)?;
    Ok(all.map(by_host))
}

fn by_host(all: Vec<RankReport>) -> Result<Vec<HostFacts>, String> {
    let mut hosts: Vec<HostFacts> = Vec::new();
    for RankReport { host, failed } in all {
        if let Some(why) = failed {
            return Err(format!(
                "rank {} ({}) cannot measure: {why}",
                host.ranks[0].rank, host.host
            ));
        }
        match hosts.iter_mut().find(|known| known.host == host.host) {
            Some(known) => known.ranks.extend(host.ranks),
            // Its first rank comes first.
            None => hosts.push(host),
        }
    }
    Ok(hosts)
}

/// The facts of a machine of which only the files under `root` are known; nothing is measured.
pub fn from_tree(root: &Root, host: &str) -> HostFacts {
    let counters = Counters::read(root);
    let mask = counters.allowed_cpus.clone();
    let threads = placement::cores_in(&counters.cpus, &mask).len();
    HostFacts::new(host, counters, &[mask], threads)
}
