//! A node's record of runs that ended while some of their segments were unreachable. When those
//! segments come back, they are recognized as left over, and do not block the next run of that
//! name.
//!
//! A mark is one small segment on each node. It names the starts that were superseded while a node
//! was unreachable: a segment whose lineage is one of them has missed the rest of a run whose
//! result is reported.

use super::ledger::{self, Content};
use crate::error::JobError;
use skt_checkpoint::checkpoint::header::HeaderLayout;
use skt_checkpoint::checkpoint::record::StartId;
use skt_comm::{Comm, collect};
use skt_store::segments::role::{ENDED, parse_role};
use skt_store::store::{Store, StoreError};

/// How many starts a node remembers, and how many ledgers: the latest of each.
const ENDED_MAX: usize = 64;

/// Finds the marks of all nodes, and removes the segments that these mark as left over, as far as
/// `header` gives the layout of the segment headers of their tests. Returns the number of segments
/// removed. Collective, while all nodes hold the lock of the run; one process of each node
/// `is_keeper`.
pub(crate) fn remove_left_over(
    world: &Comm,
    store: &dyn Store,
    run: &str,
    is_keeper: bool,
    header: impl Fn(usize) -> Option<HeaderLayout>,
) -> Result<u64, JobError> {
    let own = if is_keeper { read(store, run)? } else { Vec::new() };
    let ended = ledger::union(world, &own)?;
    if ended.is_empty() {
        return Ok(0);
    }
    let mut removed = [0];
    if is_keeper {
        for info in store.list_once()?.into_iter().filter(|info| info.name.run() == run) {
            let of = match parse_role(info.name.role()) {
                Some((test, _)) => header(test).and_then(|header| {
                    let mut bytes = vec![0; header.bytes()];
                    store.peek(&info.name, &mut bytes).transpose()?.ok()?;
                    Some(header.decode_record(&bytes)?.lineage())
                }),
                None => ledger::life(store, &info)?,
            };
            // A segment that a process is attached to is not removed.
            if of.is_some_and(|start| ended.contains(&start)) && store.remove_unused(&info.name)? {
                removed[0] += 1;
            }
        }
    }
    // No rank looks for segments before all are removed.
    collect::all_reduce(world, &mut removed, |a, b| a + b)?;
    Ok(removed[0])
}

/// Remembers that the run of the starts `ended` has ended. `rank` is this process, which keeps its
/// node's marks.
/// If the store refuses, the earlier mark stays.
pub(crate) fn remember(
    store: &dyn Store,
    run: &str,
    rank: usize,
    ended: &[StartId],
) -> Result<(), StoreError> {
    let mut all = read(store, run)?;
    all.extend(ended);
    let left = newest(all);
    let number = ledger::found(store, run, ENDED)?.iter().map(|(_, number, _)| *number).max();
    let content = Content { left, ..Content::default() };
    ledger::keep(store, run, ENDED, number.unwrap_or(0) + 1, rank, &content)
}

/// All starts that the marks of this node name.
fn read(store: &dyn Store, run: &str) -> Result<Vec<StartId>, StoreError> {
    let found = ledger::found(store, run, ENDED)?;
    let contents = found.into_iter().filter_map(|(_, _, content)| content);
    Ok(newest(contents.flat_map(|content| content.left).collect()))
}

/// The latest starts and the latest ledgers, in order and each once. Starts count milliseconds and
/// ledgers nanoseconds, so in one list the ledgers would push the starts out.
fn newest(mut starts: Vec<StartId>) -> Vec<StartId> {
    starts.sort_unstable();
    starts.dedup();
    let (mut ledgers, mut starts): (Vec<_>, Vec<_>) =
        starts.into_iter().partition(ledger::is_of_a_ledger);
    let mut latest = starts.split_off(starts.len().saturating_sub(ENDED_MAX));
    latest.extend(ledgers.split_off(ledgers.len().saturating_sub(ENDED_MAX)));
    latest
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::segments::checkpoint_config;
    use super::super::split::state_bytes;
    use super::super::{RankProcess, Settings, TestSegments, header_layout};
    use super::*;
    use skt_checkpoint::checkpoint::decide::{Refusal, Resume};
    use skt_checkpoint::checkpoint::hook::NoHook;
    use skt_checkpoint::checkpoint::protocol::{CheckpointError, Checkpointer, Opened};
    use skt_solver::comm::threads;
    use skt_solver::team::Team;
    use skt_store::layout::{Active, RegionShape};
    use skt_store::store::Files;
    use tempfile::TempDir;

    const RANKS: usize = 4;
    /// A name whose header takes one more cache line with the test's number than without.
    const RUN: &str = "returns";

    /// How a start ends.
    #[derive(Clone, Copy, PartialEq)]
    enum End {
        /// The start dies after a checkpoint.
        Dies,
        /// The start dies between clearing its segments and writing the mark.
        Clears,
        /// The start completes.
        Marks,
    }

    /// Starts a job on these nodes. Returns the epoch that it resumes from, and the number of
    /// segments that it has removed as left over.
    fn start(nodes: &[&TempDir], resume: Resume, end: End) -> Result<(u64, u64), Refusal> {
        let ran = threads::run(RANKS, |world| {
            let (store, team) = (Files::in_folder(nodes[world.rank()].path()), Team::solo());
            let header = |test| (test == 0).then(|| header_layout(RUN, test, RANKS));
            let removed = remove_left_over(&world, &store, RUN, true, header).unwrap();
            let memory = TestSegments::new(&store, RUN, 0, RankProcess(&team));
            let host = format!("{}", nodes[world.rank()].path().display());
            let settings = Settings { resume, group_size: RANKS, ..Settings::new(RUN) };
            let config =
                checkpoint_config(&settings, &memory, String::new(), &host, state_bytes(RANKS))
                    .unwrap();
            let shape = RegionShape { rows: 8, pitch_bytes: 64 };
            let opened = Checkpointer::open(&world, memory, config, &[shape], Arc::new(NoHook));
            let saved = match opened {
                Ok(Opened::Ready(saved)) => saved,
                Ok(Opened::Finished(_)) => panic!("nothing was left of its end"),
                Err(CheckpointError::Refused(refusal)) => return Ok(Err(refusal)),
                Err(error) => return Err(error),
            };
            let (mut saved, _) = saved.recover()?;
            let epoch = saved.found().epoch;
            saved.checkpoint(&[Active::ALL], b"state")?;
            if end != End::Dies {
                let done = saved.finish(b"done")?;
                let left = done.left().to_vec();
                done.clear()?;
                world.barrier()?;
                if end == End::Marks && !left.is_empty() {
                    remember(&store, RUN, world.rank(), &left).unwrap();
                }
            }
            Ok::<_, CheckpointError>(Ok((epoch, removed)))
        });
        ran.into_iter().map(Result::unwrap).next().expect("rank 0")
    }

    fn nodes(count: usize) -> Vec<TempDir> {
        (0..count).map(|_| tempfile::tempdir().unwrap()).collect()
    }

    fn segments(node: &TempDir) -> usize {
        Files::in_folder(node.path()).list().unwrap().len()
    }

    /// Node 0 is lost with epoch 1; the others end the run with node 4.
    fn without_node_0(all: &[TempDir], end: End) {
        let all: Vec<&TempDir> = all.iter().collect();
        assert_eq!(start(&all[..4], Resume::Auto, End::Dies), Ok((0, 0)));
        assert_eq!(start(&[&all[1..4], &all[4..5]].concat(), Resume::Auto, end), Ok((1, 0)));
    }

    #[test]
    fn data_that_returns_after_the_end_of_its_run_is_removed() {
        let all = nodes(6);
        without_node_0(&all, End::Marks);
        assert_eq!(all.iter().map(segments).collect::<Vec<_>>(), [1, 1, 1, 1, 1, 0]);
        // One node that remembers is enough.
        let again = [&all[0], &all[5], &all[3], &nodes(1)[0]];
        assert_eq!(start(&again, Resume::Auto, End::Clears), Ok((0, 1)));
        assert_eq!(segments(&all[0]), 0);
    }

    #[test]
    fn death_before_the_mark_leads_to_a_refusal() {
        let all = nodes(5);
        without_node_0(&all, End::Clears);
        let all: Vec<&TempDir> = all.iter().collect();
        let again = start(&all[..4], Resume::Auto, End::Dies);
        assert!(matches!(again, Err(Refusal::Unrecoverable { epoch: 1, .. })), "{again:?}");
        assert_eq!(segments(all[0]), 1);
    }

    #[test]
    fn torn_mark_is_ignored() {
        let all = nodes(5);
        without_node_0(&all, End::Marks);
        for node in &all[1..] {
            let store = Files::in_folder(node.path());
            let [(name, ..)] = &ledger::found(&store, RUN, ENDED).unwrap()[..] else { panic!() };
            let mut segment = store.attach(name).unwrap().expect("a mark");
            let bytes = segment.as_mut_slice();
            let half = bytes.len() / 2;
            bytes[half..].fill(0);
        }
        let all: Vec<&TempDir> = all.iter().collect();
        assert!(start(&all[..4], Resume::Auto, End::Dies).is_err());
    }

    #[test]
    fn marks_of_an_ended_run_do_not_affect_the_next_one() {
        let all = nodes(6);
        without_node_0(&all, End::Marks);
        let all: Vec<&TempDir> = all.iter().collect();
        // If no node with a mark takes part, a person has to decide.
        let fresh = nodes(3);
        let next = [all[0], &fresh[0], &fresh[1], &fresh[2]];
        assert!(start(&next, Resume::Auto, End::Dies).is_err());
        assert_eq!(start(&next, Resume::Never, End::Dies), Ok((0, 0)));
        // Then a node with a mark replaces one of them.
        let next = [all[0], &fresh[0], &fresh[1], all[2]];
        assert_eq!(start(&next, Resume::Auto, End::Dies), Ok((1, 0)));
        // Nodes that were always there start, too, where nothing is remembered.
        let calm = nodes(4);
        let calm: Vec<&TempDir> = calm.iter().collect();
        assert_eq!(start(&calm, Resume::Auto, End::Dies), Ok((0, 0)));
        assert_eq!(start(&calm, Resume::Auto, End::Marks), Ok((1, 0)));
        assert!(calm.iter().all(|node| segments(node) == 0));
    }

    #[test]
    fn latest_of_many_starts_are_remembered() {
        let node = &nodes(1)[0];
        let store = Files::in_folder(node.path());
        for number in 0..2 * ENDED_MAX as u64 {
            let ledger = StartId { number: number * 1_000_000, nonce: 0 };
            remember(&store, RUN, 0, &[StartId { number, nonce: 1 }, ledger]).unwrap();
        }
        let all = read(&store, RUN).unwrap();
        let (ledgers, starts): (Vec<_>, Vec<_>) = all.into_iter().partition(ledger::is_of_a_ledger);
        let least = ENDED_MAX as u64;
        assert_eq!((starts.len(), starts[0].number), (ENDED_MAX, least));
        assert_eq!((ledgers.len(), ledgers[0].number), (ENDED_MAX, least * 1_000_000));
        assert_eq!(segments(node), 1);
    }
}
