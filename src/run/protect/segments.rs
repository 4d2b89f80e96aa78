//! The segments of a node, as the checkpoint protocol uses them.

use std::collections::BTreeMap;
use std::io;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use skt_terms::shown::shell_quoted;
use skt_terms::units;

use super::hold::{Patience, RunLock, remove_mpi_files};
use super::role::{is_mark, of_test, parse_role};
use crate::checkpoint::header::SegmentId;
use crate::checkpoint::protocol::{Memory, Peer};
use crate::checkpoint::store::{Flaw, Segment, SegmentName, Store, StoreError, Stub, View};
use crate::machine::team::Team;
use crate::report::heartbeat;

/// The most bytes that a thread touches between two signs of life.
const TOUCHED_BYTES: usize = 256 << 20;

/// The segments of one test of a run on this node.
pub struct TestSegments<'a> {
    store: &'a (dyn Store + Send + Sync),
    run: String,
    test: usize,
    team: &'a Team,
    lock: Option<Arc<RunLock>>,
}

impl<'a> TestSegments<'a> {
    /// The segments of test number `test` of `run`. The threads of `team` touch new ones.
    pub fn new(
        store: &'a (dyn Store + Send + Sync),
        run: &str,
        test: usize,
        team: &'a Team,
    ) -> Self {
        Self { store, run: run.to_owned(), test, team, lock: None }
    }

    /// Uses a hold that this process already has on the run.
    pub fn under(self, lock: Option<Arc<RunLock>>) -> Self {
        Self { lock, ..self }
    }

    /// The threads of this rank.
    pub fn team(&self) -> &'a Team {
        self.team
    }

    /// The number of the test.
    pub fn test(&self) -> usize {
        self.test
    }

    /// Identifies the memory: the same for all processes that see its segments. It is the value for
    /// [`crate::checkpoint::protocol::Config::node`].
    ///
    /// # Errors
    /// When the store cannot tell.
    pub fn node(&self) -> io::Result<String> {
        Ok(self.store.id().map_err(other)?.memory)
    }

    fn name(&self, id: SegmentId) -> io::Result<SegmentName> {
        let role = of_test(self.test, id.attempt);
        SegmentName::new(&self.run, &role, id.rank as u32).map_err(other)
    }
}

/// Removes from the store what is certainly this user's and useless to any run. Returns a line
/// about each segment that was damaged.
///
/// # Errors
/// When the store cannot be listed, or something cannot be removed.
pub fn tidy(store: &dyn Store) -> Result<Vec<String>, StoreError> {
    let removed = store.remove_dead_stubs()?;
    let line =
        |stub: &Stub| format!("{} was damaged and is removed: {}", stub.location, stub.why());
    Ok(removed.iter().filter(|stub| stub.flaw != Flaw::Unnamed).map(line).collect())
}

/// A line about each thing in the place of a segment that no run uses, and that may not be this
/// user's, or that another user has planted.
///
/// # Errors
/// When the store cannot be listed.
pub fn doubtful(store: &dyn Store) -> Result<Vec<String>, StoreError> {
    let stubs = store.stubs()?;
    let is_told = |stub: &&Stub| matches!(stub.flaw, Flaw::Doubtful(_) | Flaw::Planted(_));
    let line = |stub: &Stub| {
        let (location, why) = (&stub.location, stub.why());
        format!("{location} is not used: {why} (`skt-hpl store clean --force` removes it)")
    };
    Ok(stubs.iter().filter(is_told).map(line).collect())
}

/// The highest test of `run` that has segments on this node.
///
/// # Errors
/// When the store cannot be listed.
pub fn found_test(store: &dyn Store, run: &str) -> Result<Option<usize>, StoreError> {
    let of_run = store.look()?.into_iter().filter(|info| info.name.run() == run);
    Ok(of_run.filter_map(|info| parse_role(info.name.role())).map(|(test, _)| test).max())
}

/// Bytes of all segments of `run` on this node, which a restart does not need again.
///
/// # Errors
/// When the store cannot be listed.
pub fn run_bytes(store: &dyn Store, run: &str) -> Result<u64, StoreError> {
    let of_run = store.look()?.into_iter().filter(|info| info.name.run() == run);
    Ok(of_run.map(|info| info.bytes as u64).sum())
}

/// The flag that names the store to `skt-hpl store`, after a blank; empty for the default store.
pub fn store_flag(store: &str) -> String {
    match store {
        "sysv" => String::new(),
        store => format!(" --store {}", shell_quoted(store)),
    }
}

/// Says what runs other than `run` have left without a process on this node, in the store of this
/// name.
///
/// # Errors
/// When the store cannot be listed.
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
    let others = match runs.len() {
        1 => String::new(),
        count => format!(" and {} more", count - 1),
    };
    Ok(Some(format!(
        "runs that are not running keep {} of shared memory ({largest}{others}): `skt-hpl store \
         list{flag}` shows it, `skt-hpl store clean --run {largest}{flag}` removes it",
        units::bytes(bytes),
        flag = store_flag(name)
    )))
}

/// Removes what `run` has left on this node of tests that `is_meant` selects.
///
/// # Errors
/// When the store cannot be listed, or a segment cannot be removed.
pub fn sweep_tests(
    store: &dyn Store,
    run: &str,
    is_meant: impl Fn(usize) -> bool,
) -> Result<(), StoreError> {
    for info in store.look()?.into_iter().filter(|info| info.name.run() == run) {
        if parse_role(info.name.role()).is_some_and(|(of, _)| is_meant(of)) {
            store.remove(&info.name)?;
        }
    }
    Ok(())
}

/// Removes what `run` has left on this node of test `test`, of earlier tests, and of no test.
///
/// # Errors
/// When the store cannot be listed, or a segment cannot be removed.
pub fn sweep(store: &dyn Store, run: &str, test: usize) -> Result<(), StoreError> {
    for info in store.look()?.into_iter().filter(|info| info.name.run() == run) {
        // Holds are removed by their holders, unless these were lost; marks of ended runs stay.
        if info.name.role() == "lock" {
            if !info.in_use {
                remove_mpi_files(store, &info.name);
            }
            store.remove_unused(&info.name)?;
            continue;
        }
        if !is_mark(&info) && parse_role(info.name.role()).is_none_or(|(of, _)| of <= test) {
            store.remove(&info.name)?;
        }
    }
    Ok(())
}

fn other(error: StoreError) -> io::Error {
    io::Error::other(error)
}

fn not_found() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "the segment is gone")
}

/// A segment, as bytes.
pub struct Bytes(Segment);

impl Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.0.as_slice()
    }
}

impl DerefMut for Bytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.as_mut_slice()
    }
}

/// Another rank's segment, as bytes.
pub struct PeerBytes(View);

impl Peer for PeerBytes {
    unsafe fn bytes(&self, range: Range<usize>) -> &[u8] {
        // SAFETY: the caller's promise.
        unsafe { self.0.bytes(range) }
    }

    fn will_read(&self, range: Range<usize>) {
        self.0.map_pages(range);
    }
}

impl<'a> Memory for TestSegments<'a> {
    type Segment = Bytes;
    type Peer = PeerBytes;
    type Lock = Arc<RunLock>;

    fn lock(&mut self, index: usize) -> io::Result<Self::Lock> {
        if let Some(lock) = &self.lock {
            return Ok(lock.clone());
        }
        let host = nix::unistd::gethostname()?;
        let taken = RunLock::take(self.store, &self.run, &host.to_string_lossy(), index);
        taken.map_err(other)?.map(Arc::new).map_err(io::Error::other)
    }

    fn list(&mut self) -> io::Result<Vec<SegmentId>> {
        let list = self.store.look().map_err(other)?;
        Ok(list
            .iter()
            .filter(|info| info.name.run() == self.run && info.is_ready)
            .filter_map(|info| {
                let (test, attempt) = parse_role(info.name.role())?;
                (test == self.test)
                    .then_some(SegmentId { rank: info.name.rank() as usize, attempt })
            })
            .collect())
    }

    fn read_header(&mut self, id: SegmentId, into: &mut [u8]) -> io::Result<usize> {
        self.store.peek(&self.name(id)?, into).map_err(other)?.ok_or_else(not_found)
    }

    fn create(&mut self, id: SegmentId, bytes: usize) -> io::Result<Bytes> {
        let new = self.store.begin(&self.name(id)?, bytes.next_multiple_of(8)).map_err(other)?;
        // Each part is a sign of life: touching all of a large memory takes minutes.
        let parts_a_thread = bytes.div_ceil(self.team.threads()).div_ceil(TOUCHED_BYTES).max(1);
        let parts = self.team.threads() * parts_a_thread;
        let failed = std::sync::Mutex::new(None);
        // Each thread touches a part, so that its pages are near the cores that use them.
        self.team.split(parts, 1, |range| {
            for part in range {
                if let Err(error) = new.touch(part, parts) {
                    failed.lock().expect("touch lock").get_or_insert(error);
                }
                heartbeat::piece();
            }
        });
        match failed.into_inner().expect("touch lock") {
            Some(error) => Err(other(error)),
            None => {
                let segment = new.finish().map_err(other)?;
                // What this node lacks, others will lack as well.
                if let Some(note) = segment.note().filter(|_| id.rank == 0) {
                    eprintln!("warning: rank 0: {note}");
                }
                Ok(Bytes(segment))
            }
        }
    }

    fn attach(&mut self, id: SegmentId) -> io::Result<Bytes> {
        let bytes_of_run = || run_bytes(self.store, &self.run).unwrap_or(0);
        let (name, mut patience) = (self.name(id)?, Patience::new(&bytes_of_run));
        loop {
            match self.store.attach(&name) {
                // The process that held the run has released it, so it is ending.
                Err(StoreError::InUse { .. }) if !patience.is_over(true) => {}
                found => {
                    let segment = found.map_err(other)?.ok_or_else(not_found)?;
                    segment.map_pages();
                    return Ok(Bytes(segment));
                }
            }
        }
    }

    fn peer(&mut self, id: SegmentId) -> io::Result<Option<PeerBytes>> {
        let view = self.store.view(&self.name(id)?).map_err(other)?;
        Ok(view.map(PeerBytes))
    }

    fn remove(&mut self, id: SegmentId) -> io::Result<()> {
        self.store.remove(&self.name(id)?).map(|_| ()).map_err(other)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Settings;
    use super::*;
    use crate::checkpoint::hook::NoHook;
    use crate::checkpoint::layout::RegionShape;
    use crate::checkpoint::protocol::{CheckpointError, Checkpointer, Opened};
    use crate::checkpoint::store::Files;
    use crate::hpl::comm::{Comm as _, threads};

    #[test]
    fn who_opens_a_run_holds_it_until_its_end() {
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
            let memory = TestSegments::new(&store, "run", 0, &team);
            let config = settings.config(&memory, String::new(), "node", 8).expect("a config");
            let shape = RegionShape { rows: 4, pitch_bytes: 64 };
            let opened = Checkpointer::open(&comm, memory, config, &[shape], Arc::new(NoHook))?;
            let Opened::Ready(saved) = opened else { panic!("nothing is there") };
            let (saved, _) = saved.recover()?;
            assert_eq!(locks(), 2, "each process has a hold of its own");
            let done = saved.finish(b"done")?;
            assert_eq!(locks(), 2);
            done.clear()?;
            assert_eq!(locks(), 0);
            Ok::<_, CheckpointError>(())
        });
        assert!(ran.into_iter().all(|rank| rank.is_ok()));
    }
}
