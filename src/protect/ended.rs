//! What a node remembers of runs that have ended while segments of theirs were out of
//! reach: so that these, when they come back, are known for what they are, and do not
//! block the next run of that name.
//!
//! A mark is one small segment of each node. It names, exactly, starts that were
//! superseded when something was out of reach: whoever still has one of them as its
//! lineage has missed the rest of a run whose result is reported.

use super::ledger::{self, Content, LedgerError};
use super::memory::parse_role;
use crate::checkpoint::header::{Attempt, HeaderLayout};
use crate::checkpoint::store::{Store, StoreError};
use crate::comm::{Comm, CommError, collect};

/// What the part of a mark in a run begins with.
pub const ROLE: &str = "ended.a";
/// Starts that a node remembers; of more, the latest.
const ENDED_MAX: usize = 64;

/// Finds the marks of all nodes, and removes what they say is left over, of the tests
/// for which `header` knows the form of the segments' headers. Returns the number of
/// segments removed. Collective, with the run held on all nodes; one process of each
/// node `is_keeper`.
///
/// # Errors
/// A rank is lost, or the store refuses.
pub fn remove_left_over<C: Comm>(
    world: &C,
    store: &dyn Store,
    run: &str,
    is_keeper: bool,
    header: impl Fn(usize) -> Option<HeaderLayout>,
) -> Result<u64, LedgerError> {
    let own = if is_keeper { read(store, run)? } else { Vec::new() };
    let ended = union(world, &own)?;
    let mut removed = [0];
    if is_keeper && !ended.is_empty() {
        for info in store.list()?.into_iter().filter(|info| info.name.run() == run) {
            let of = match parse_role(info.name.role()) {
                Some((test, _)) => header(test).and_then(|header| {
                    let mut bytes = vec![0; header.bytes()];
                    store.peek(&info.name, &mut bytes).transpose()?.ok()?;
                    Some(header.decode_record(&bytes)?.lineage)
                }),
                None => ledger::life(store, &info)?,
            };
            // What a process is attached to is not ours to take.
            if of.is_some_and(|start| ended.contains(&start)) && store.remove_unused(&info.name)? {
                removed[0] += 1;
            }
        }
    }
    // Nobody looks before all is removed.
    collect::all_reduce(world, &mut removed, |a, b| a + b)?;
    Ok(removed[0])
}

/// Remembers that the run of these starts has ended. `rank`: of this process, the one
/// that keeps its node's marks.
///
/// # Errors
/// When the store refuses; the mark before stays.
pub fn remember(
    store: &dyn Store,
    run: &str,
    rank: usize,
    ended: &[Attempt],
) -> Result<(), StoreError> {
    let mut all = read(store, run)?;
    all.extend(ended);
    let left = newest(all);
    let number = ledger::found(store, run, ROLE)?.iter().map(|(_, number, _)| *number).max();
    let content = Content { left, ..Content::default() };
    ledger::keep(store, run, ROLE, number.unwrap_or(0) + 1, rank, &content)
}

/// All that the marks of this node name.
fn read(store: &dyn Store, run: &str) -> Result<Vec<Attempt>, StoreError> {
    let found = ledger::found(store, run, ROLE)?;
    let contents = found.into_iter().filter_map(|(_, _, content)| content);
    Ok(newest(contents.flat_map(|content| content.left).collect()))
}

/// In order, each once; of very many the latest.
fn newest(mut starts: Vec<Attempt>) -> Vec<Attempt> {
    starts.sort_unstable();
    starts.dedup();
    starts.split_off(starts.len().saturating_sub(ENDED_MAX))
}

/// The starts that any rank names, on all. Collective.
pub(super) fn union<C: Comm>(world: &C, own: &[Attempt]) -> Result<Vec<Attempt>, CommError> {
    let bytes = serde_json::to_vec(own).expect("plain data");
    let all = collect::all_gather_bytes(world, &bytes)?;
    let read = |bytes: &Vec<u8>| -> Vec<Attempt> {
        serde_json::from_slice(bytes).expect("written just now")
    };
    let mut all: Vec<Attempt> = all.iter().flat_map(read).collect();
    all.sort_unstable();
    all.dedup();
    Ok(all)
}
