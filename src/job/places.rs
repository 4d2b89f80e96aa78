//! Which ranks run on which hosts, and what each host has.

use serde::{Deserialize, Serialize};

use crate::comm::{Comm, CommError, collect};
use crate::environment::HostRanks;
use crate::environment::memory;
use crate::environment::preflight::HostShare;

/// What a rank tells the others of its place.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Place {
    /// Its host.
    pub host: String,
    /// CPUs it may use.
    pub mask: Vec<usize>,
    /// Memory that is free on the host.
    available_bytes: Option<u64>,
    /// Memory that its control groups leave.
    limit_bytes: Option<u64>,
}

/// The places of all ranks, in their order. `held_bytes` is what the run holds
/// on this host already, from an earlier start: as good as free. Collective.
pub fn gather<C: Comm>(
    world: &C,
    mask: Vec<usize>,
    held_bytes: u64,
) -> Result<Vec<Place>, CommError> {
    let memory = memory::this_process();
    let place = Place {
        host: world.host(),
        mask,
        available_bytes: memory.available_bytes.map(|bytes| bytes + held_bytes),
        limit_bytes: memory.cgroup.map(|group| group.left_bytes() + held_bytes),
    };
    let bytes = serde_json::to_vec(&place).expect("names and numbers become JSON");
    let all = collect::all_gather_bytes(world, &bytes)?;
    Ok(all.iter().map(|bytes| serde_json::from_slice(bytes).expect("what a rank sent")).collect())
}

/// Ranks on the host of `rank`, in order, and the place of `rank` among them.
pub fn neighbours(places: &[Place], rank: usize) -> (Vec<usize>, usize) {
    let here: Vec<usize> =
        (0..places.len()).filter(|&other| places[other].host == places[rank].host).collect();
    let index = here.iter().position(|&other| other == rank).expect("its own neighbour");
    (here, index)
}

/// Hosts in the order of their first ranks, with what `ranks` of them share.
pub fn shares(places: &[Place]) -> Vec<HostShare> {
    let mut shares: Vec<HostShare> = Vec::new();
    for place in places {
        match shares.iter_mut().find(|share| share.host == place.host) {
            Some(share) => share.ranks += 1,
            None => shares.push(HostShare {
                host: place.host.clone(),
                ranks: 1,
                available_bytes: place.available_bytes,
                limit_bytes: place.limit_bytes,
            }),
        }
    }
    shares
}

/// The same for the report.
pub fn hosts(places: &[Place]) -> Vec<HostRanks> {
    shares(places)
        .into_iter()
        .map(|share| HostRanks { host: share.host, ranks: share.ranks })
        .collect()
}
