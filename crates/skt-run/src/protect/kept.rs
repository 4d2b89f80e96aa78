//! What earlier starts of a run have chosen for themselves, as far as anything is left of them.
//!
//! A start has to know it before its first call of the BLAS, when no test is opened yet. So each
//! start notes it in the ledger, on all nodes, before it has data of a test. Where all memory is
//! lost, the images of a level have it in their states.

use super::Settings;
use super::chosen::Chosen;
use super::ledger::{self, LedgerError};
use skt_checkpoint::checkpoint::agree::Resume;
use skt_checkpoint::checkpoint::level::folder;
use skt_comm::{Comm, collect};
use skt_store::store::Store;

/// What the last start of the run has chosen, the same on all ranks; none if no start has left
/// anything, or the run begins from scratch. One process of each store `is_keeper`, and looks for
/// it. Collective.
pub(crate) fn kept_choices(
    world: &Comm,
    store: &(dyn Store + Send + Sync),
    settings: &Settings,
    is_keeper: bool,
) -> Result<Option<Chosen>, LedgerError> {
    if !settings.is_on() || settings.resume == Resume::Never {
        return Ok(None);
    }
    if let Some(noted) = ledger::noted(world, store, &settings.run_id, is_keeper)? {
        return Ok(Some(noted));
    }
    // Images of a level that fails now are found, and compared, when the test is opened.
    let states =
        settings.levels.0.iter().filter(|_| is_keeper).filter_map(|level| {
            folder::newest_state(&level.folder, &settings.run_id).ok().flatten()
        });
    let newest = states.max_by_key(|found| found.at);
    let newest = newest.and_then(|found| Some((found.at, Chosen::kept_in(&found.state)?)));
    let all = collect::all_gather_some_json(world, newest.as_ref())?.into_iter();
    let newest = all.map(|(_, found)| found).max_by(|a: &(_, Chosen), b| a.0.cmp(&b.0));
    Ok(newest.map(|(_, chosen)| chosen))
}
