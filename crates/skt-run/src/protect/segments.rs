//! The segments of a node, as the checkpoint protocol uses them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Mutex, Once};
use std::time::Instant;

use serde::Deserialize;
use skt_host::shown::{and_more, shell_quoted};
use skt_host::units;

use crate::heartbeat;
use skt_checkpoint::checkpoint::header::newest_checkpoint;
use skt_checkpoint::checkpoint::protocol::Config;
use skt_config::protection::Settings;
use skt_host::{launcher_rank, messages, waits};
use skt_solver::team::Team;
use skt_store::memory::Memory;
use skt_store::segments::role::parse_role;
use skt_store::segments::{Plain, Process, RunSegments};
use skt_store::store::{NewSegment, Store, StoreError};

/// The most bytes that a thread touches between two heartbeats.
const TOUCHED_BYTES: usize = 256 << 20;

/// A longer wait is reported to the user.
const SILENT_SECONDS: f64 = 2.0;
const WAITS: &str =
    "waits for another start of the same run to end, which still holds its memory here";
static REPORTED: Once = Once::new();

/// The process of a rank, by its threads.
#[derive(Clone, Copy)]
pub struct RankProcess<'a>(pub &'a Team);

pub type TestSegments<'a> = RunSegments<'a, RankProcess<'a>>;

/// The name of the segments of test `part` of a run, which their headers hold.
pub(super) fn run_of_test(run: &str, part: usize) -> String {
    format!("{run}-t{part}")
}

/// The configuration for `Checkpointer::open`, besides `memory`, which is of the same run.
///
/// - `application`: all parameters without which a checkpoint would be useless.
/// - `host`: the host of this process, which is its failure domain unless the settings name
///   another.
/// - `state_bytes`: the longest state that a checkpoint takes.
pub fn checkpoint_config(
    settings: &Settings,
    memory: &TestSegments,
    application: String,
    host: &str,
    state_bytes: usize,
) -> io::Result<Config> {
    let config = Config {
        application,
        method: settings.method,
        members: settings.group_size,
        parities: settings.parities,
        message_bytes: settings.message_bytes,
        allow_shared_domains: settings.allow_shared_domains,
        resume: settings.resume,
        domain: settings.domain_of(host),
        state_capacity_bytes: state_bytes,
        ..Config::new(&run_of_test(&settings.run_id, memory.part()), settings.codec)
    };
    config.identified(memory, host)
}

/// The memory of a segment, of which `done_bytes` are reserved after `seconds`.
fn reserving(seconds: f64, done_bytes: usize, bytes: usize) -> String {
    let (done, bytes) = (done_bytes.clamp(1, bytes) as u64, bytes as u64);
    let left_seconds = (bytes - done) as f64 * seconds / done as f64;
    let (done, bytes) = (units::bytes(done), units::bytes(bytes));
    format!("memory: {done} of {bytes} a rank, ETA {}", units::span(left_seconds))
}

impl Process for RankProcess<'_> {
    fn touch(&self, new: &NewSegment, bytes: usize) -> Result<(), StoreError> {
        // Touching all of a large memory takes minutes, in which the others wait.
        let parts_a_thread = bytes.div_ceil(self.0.threads()).div_ceil(TOUCHED_BYTES).max(1);
        let parts = self.0.threads() * parts_a_thread;
        let (failed, done) = (Mutex::new(None), Mutex::new(0u64));
        let begun = Instant::now();
        // Each thread touches a part, so that its pages are near the cores that use them.
        self.0.split(parts, 1, |range| {
            for part in range {
                if let Err(error) = new.touch(part, parts) {
                    failed.lock().expect("touch lock").get_or_insert(error);
                }
                let mut done = done.lock().expect("touch lock");
                *done += 1;
                let seconds = begun.elapsed().as_secs_f64();
                heartbeat::wait(seconds, *done, 0.0);
                waits::restate(reserving(seconds, bytes.div_ceil(parts) * *done as usize, bytes));
            }
        });
        failed.into_inner().expect("touch lock").map_or(Ok(()), Err)
    }

    fn reserves(&self, seconds: f64, done_bytes: usize, bytes: usize) {
        heartbeat::wait(seconds, done_bytes as u64, 0.0);
        waits::restate(reserving(seconds, done_bytes, bytes));
    }

    /// Any rank reports this, because rank 0 may have no memory to pass over.
    fn passes(&self, seconds: f64, pieces: usize) {
        heartbeat::wait(seconds, pieces as u64, 0.0);
    }

    fn waits(&self, seconds: f64) {
        heartbeat::wait(seconds, seconds as u64, 0.0);
        if seconds > SILENT_SECONDS && launcher_rank::is_first() {
            REPORTED.call_once(|| messages::print(format_args!("{WAITS}")));
        }
    }

    fn supervisor(&self) -> Option<String> {
        heartbeat::run()
    }
}

/// The highest test of `run` that has segments on this node.
pub(crate) fn found_test(store: &dyn Store, run: &str) -> Result<Option<usize>, StoreError> {
    let of_run = store.list_once()?.into_iter().filter(|info| info.name.run() == run);
    Ok(of_run.filter_map(|info| parse_role(info.name.role())).map(|(test, _)| test).max())
}

/// The flag that names the store to `skt-hpl store`, after a blank; empty for the default store.
pub(crate) fn store_flag(store: &str) -> String {
    match store {
        "sysv" => String::new(),
        store => format!(" --store {}", shell_quoted(store)),
    }
}

/// Lists what runs other than `run` have left without a process on this node, in the store of this
/// name.
pub fn left_by_others(
    store: &dyn Store,
    name: &str,
    run: Option<&str>,
) -> Result<Option<String>, StoreError> {
    let mut runs: BTreeMap<String, u64> = BTreeMap::new();
    for info in store.list()? {
        if !info.in_use && Some(info.name.run()) != run {
            *runs.entry(info.name.run().to_owned()).or_default() += info.bytes as u64;
        }
    }
    let bytes = runs.values().sum();
    let Some((largest, _)) = runs.iter().max_by_key(|(_, bytes)| **bytes) else { return Ok(None) };
    let others = and_more(runs.len(), 1);
    Ok(Some(format!(
        "runs that are not running keep {} of shared memory ({largest}{others}): `skt-hpl store \
         list{flag}` shows it, `skt-hpl store clean --run {largest}{flag}` removes it",
        units::bytes(bytes),
        flag = store_flag(name)
    )))
}

/// Removes what `run` has left on this node of tests that `is_meant` selects.
pub(crate) fn sweep_tests(
    store: &dyn Store,
    run: &str,
    is_meant: impl Fn(usize) -> bool,
) -> Result<(), StoreError> {
    for info in store.list_once()?.into_iter().filter(|info| info.name.run() == run) {
        if parse_role(info.name.role()).is_some_and(|(of, _)| is_meant(of)) {
            store.remove(&info.name)?;
        }
    }
    Ok(())
}

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
    let tests: BTreeSet<(String, usize)> = (store.list()?.iter())
        .filter(|info| info.is_ready)
        .filter_map(|info| Some((info.name.run().to_owned(), parse_role(info.name.role())?.0)))
        .collect();
    let mut runs: BTreeMap<String, Vec<StoredCheckpoint>> = BTreeMap::new();
    for (run, test) in tests {
        let mut segments = RunSegments::new(store, &run, test, Plain);
        let ids = segments.list().unwrap_or_default().into_iter();
        let found = ids.filter_map(|id| {
            let (epoch, state) = newest_checkpoint(&mut segments, id)?;
            Some(StoredCheckpoint { test, epoch, column: column_in(&state) })
        });
        if let Some(newest) = found.max() {
            runs.entry(run).or_default().push(newest);
        }
    }
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::Settings;
    use super::*;
    use skt_checkpoint::checkpoint::hook::NoHook;
    use skt_checkpoint::checkpoint::protocol::{CheckpointError, Checkpointer, Opened};
    use skt_solver::comm::threads;
    use skt_store::layout::RegionShape;
    use skt_store::store::Files;

    #[test]
    fn memory_that_is_reserved_has_a_rate() {
        let line = |done_gib: usize| reserving(10.0, done_gib << 30, 4 << 30);
        assert_eq!(line(1), "memory: 1.0 GiB of 4.0 GiB a rank, ETA 30 s");
        assert_eq!(line(5), "memory: 4.0 GiB of 4.0 GiB a rank, ETA 0 s");
    }

    #[test]
    fn opened_run_is_held_until_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let ran = threads::run(2, |comm| {
            let (store, team) = (Files::in_folder(folder.path()), Team::solo());
            let locks = || {
                comm.barrier().unwrap();
                let list = store.list().unwrap();
                let count = list.iter().filter(|info| info.name.role() == "lock").count();
                comm.barrier().unwrap();
                count
            };
            let settings = Settings { allow_shared_domains: true, ..Settings::new("run") };
            let memory = TestSegments::new(&store, "run", 0, RankProcess(&team));
            let config =
                checkpoint_config(&settings, &memory, String::new(), "node", 8).expect("a config");
            let shape = RegionShape { rows: 4, pitch_bytes: 64 };
            let opened = Checkpointer::open(&comm, memory, config, &[shape], Arc::new(NoHook))?;
            let Opened::Ready(saved) = opened else { panic!("nothing is there") };
            let (saved, _) = saved.recover()?;
            assert_eq!(locks(), 2, "each process has its own hold");
            let done = saved.finish(b"done")?;
            assert_eq!(locks(), 2);
            done.clear()?;
            assert_eq!(locks(), 0);
            Ok::<_, CheckpointError>(())
        });
        assert!(ran.into_iter().all(|rank| rank.is_ok()));
    }
}
