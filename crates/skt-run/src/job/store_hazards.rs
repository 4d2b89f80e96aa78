//! Checks that the hosts' stores can keep the segments of a job, and warns of what may remove them.

use serde::{Deserialize, Serialize};

use super::places::Places;
use super::print_warnings;
use crate::error::JobError;
use crate::protect::{self, Settings};
use skt_comm::{Comm, collect};
use skt_config::{RunSpec, TestSpec};
use skt_health::environment::preflight::largest_that;
use skt_store::segments::node_store::NodeStore;
use skt_store::segments::run_segments;
use skt_store::store::{Store, StoreKind};

/// The report of one process of each store.
#[derive(Debug, Serialize, Deserialize)]
struct HostReport {
    host: String,
    /// Why the store cannot keep the segments.
    lack: Option<String>,
    /// Bytes that the segments may take together there, if the store has a bound.
    room_bytes: Option<u64>,
    warnings: Vec<String>,
}

/// Refuses tests whose segments a host's store cannot keep. Rank 0 prints warnings of what may
/// remove them. `index` is the index of this rank among those that see
/// its store. Collective.
pub(crate) fn refuse(
    world: &Comm,
    spec: &RunSpec,
    settings: &Settings,
    store: &(dyn Store + Send + Sync),
    places: &Places,
    index: usize,
) -> Result<(), JobError> {
    // For each test: its ranks that see this rank's store, and the bytes of the largest segment.
    let need = |test: TestSpec| {
        (ranks_in_store(&test, places, world.rank()), rank_bytes(&test, settings, places))
    };
    let needs: Vec<(u64, u64)> = spec.tests().into_iter().map(need).collect();
    // No test is protected, which all ranks know.
    if needs.iter().all(|(_, rank_bytes)| *rank_bytes == 0) {
        return Ok(());
    }
    let kind: Option<StoreKind> = settings.store.parse().ok();
    let report = kind.filter(|_| index == 0).map(|kind| {
        // A store that cannot be listed is refused elsewhere.
        let segments = run_segments(store, &settings.run_id).unwrap_or_default();
        let node = NodeStore::ask(&kind, store, &segments);
        let lack = needs.iter().find_map(|&(ranks, bytes)| node.lack(ranks, bytes));
        let room_bytes = node.room_bytes();
        HostReport { host: world.host(), lack, room_bytes, warnings: node.warnings }
    });
    let all = collect::all_gather_some_json(world, report.as_ref())?;
    if world.rank() == 0 {
        let of_host = |(_, report): &(usize, HostReport)| {
            let HostReport { host, warnings, .. } = report;
            warnings.iter().map(|text| format!("{host}: {text}")).collect::<Vec<_>>()
        };
        print_warnings(&all.iter().flat_map(of_host).collect::<Vec<_>>());
    }
    let lacking = all.iter().find_map(|(_, report)| Some((&report.host, report.lack.as_ref()?)));
    lacking.map_or(Ok(()), |(host, lack)| {
        let rooms = all.iter();
        let rooms = rooms.filter_map(|(rank, report)| Some((*rank, report.room_bytes?))).collect();
        let largest = largest_n(spec, settings, places, rooms);
        let fits = largest.map(|n| format!(". The largest N that fits there is {n}"));
        Err(JobError::refused(format!("host {host}: {lack}{}", fits.unwrap_or_default())))
    })
}

/// The largest order of the test with the largest segments whose segments fit into the `rooms`,
/// each the bytes that a rank's store has. `None` if the test itself fits, or none does.
fn largest_n(
    spec: &RunSpec,
    settings: &Settings,
    places: &Places,
    rooms: Vec<(usize, u64)>,
) -> Option<usize> {
    let bytes = |test: &TestSpec| rank_bytes(test, settings, places);
    let test = spec.tests().into_iter().max_by_key(bytes)?;
    let rooms: Vec<(u64, u64)> = rooms
        .into_iter()
        .map(|(rank, room_bytes)| (ranks_in_store(&test, places, rank), room_bytes))
        .collect();
    let fits = |n: usize| {
        let need_bytes = bytes(&TestSpec { n, ..test.clone() });
        rooms.iter().all(|(ranks, room_bytes)| ranks.saturating_mul(need_bytes) <= *room_bytes)
    };
    if fits(test.n) { None } else { largest_that(fits, test.n) }
}

/// The number of ranks of a test that see the store of `rank`.
fn ranks_in_store(test: &TestSpec, places: &Places, rank: usize) -> u64 {
    let ranks = places.iter().take(test.ranks());
    ranks.filter(|place| place.memory == places[rank].memory).count() as u64
}

/// Bytes of the largest segment of a test.
fn rank_bytes(test: &TestSpec, settings: &Settings, places: &Places) -> u64 {
    protect::segment_bytes(test, settings, places.hosts_of(test.ranks()))
}
