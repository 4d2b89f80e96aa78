//! The checkpoints that are there to be chosen by their numbers (`--resume`).

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use skt_checkpoint::checkpoint::header::newest_checkpoint;
use skt_store::memory::Memory;
use skt_store::segments::role::parse_role;
use skt_store::segments::{Plain, RunSegments};
use skt_store::store::{Store, StoreError};

/// A checkpoint of a run in the memory of this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct StoredCheckpoint {
    /// The test of the run.
    pub test: usize,
    /// The number, by which a start goes back to it.
    pub epoch: u64,
    /// The columns that were factored, if the state is of this program.
    pub column: Option<usize>,
}

/// The columns that were factored according to a state of this program.
pub fn column_in(state: &[u8]) -> Option<usize> {
    #[derive(Deserialize)]
    struct State {
        column: usize,
    }
    serde_json::from_slice(state).ok().map(|State { column }| column)
}

/// The newest checkpoint of each test of each run that has segments on this node.
pub fn stored_checkpoints(
    store: &(dyn Store + Send + Sync),
) -> Result<BTreeMap<String, Vec<StoredCheckpoint>>, StoreError> {
    let mut all: BTreeMap<(String, usize), StoredCheckpoint> = BTreeMap::new();
    let tests: BTreeSet<(String, usize)> = (store.list()?.iter())
        .filter(|info| info.is_ready)
        .filter_map(|info| Some((info.name.run().to_owned(), parse_role(info.name.role())?.0)))
        .collect();
    for (run, test) in tests {
        let mut segments = RunSegments::new(store, &run, test, Plain);
        for id in segments.list().unwrap_or_default() {
            let Some((epoch, state)) = newest_checkpoint(&mut segments, id) else { continue };
            let found = StoredCheckpoint { test, epoch, column: column_in(&state) };
            let newest = all.entry((run.clone(), test)).or_insert(found);
            *newest = found.max(*newest);
        }
    }
    let mut runs: BTreeMap<String, Vec<StoredCheckpoint>> = BTreeMap::new();
    for ((run, _), found) in all {
        runs.entry(run).or_default().push(found);
    }
    Ok(runs)
}
