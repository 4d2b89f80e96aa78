//! A process's hold on a run, and how long to wait for the end of another process that holds it.
//!
//! A process that was killed keeps what it is attached to, including its hold on the run, until the
//! system has freed its memory: with hundreds of GB in small pages that takes longer than the next
//! start. So each holder writes into the hold which process it is. The next start waits for an
//! ending process as long as freeing its memory takes, by a measurement; a process at work belongs
//! to another job.

use std::sync::Mutex;
use std::time::Duration;

use super::{Process, mpi_files, run_bytes};
use crate::store::{Segment, SegmentName, Store, StoreError};
use skt_comm::pages;
use skt_host::process::{self, Liveness};
use skt_host::wait_clock::WaitClock;
use skt_host::waits::Announced;

/// How long to wait for a process at work: a launcher may return before it has signalled all of its
/// ranks to end.
const IN_USE_PATIENCE: Duration = Duration::from_secs(10);
/// Freeing what a run has on a node may take this many times as long as a sample predicts, as other
/// processes end at the same time.
const ENDING_FACTOR: f64 = 10.0;
/// Bytes that a holder writes: words that identify it, the number of its MPI job, and the last job
/// that had the run's folders of images ([`RunLock::folder_owner`]).
const HOLDER_BYTES: usize = FOLDER_OWNER + size_of::<u64>();
const FOLDER_OWNER: usize = WORDS_BYTES + size_of::<u64>();
const WORDS_BYTES: usize = 240;

/// A process's hold on a run, which keeps other jobs of that name from starting on this store. It
/// is released when dropped; after a death the next start takes it over.
pub struct RunLock {
    segment: Mutex<Segment>,
    folder_owner: Option<u64>,
}

/// Another process holds the run.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages describe the fields")]
pub enum RunInUse {
    /// The process is at work, as far as can be seen.
    #[error(
        "run `{run}` is running on host {host} ({location}): another job with the same \
         configuration, or one that has not ended yet. Wait for it, or give this one another run id"
    )]
    AtWork {
        run: String,
        host: String,
        location: String,
        /// Whether the supervisor of this job has started the process.
        is_own: bool,
    },
    /// The process has ended, or is about to, and its memory is still being freed.
    #[error(
        "run `{run}` is still held on host {host} ({location}) by a process that was ended: the \
         system has not given its memory back in {waited_seconds:.0} s. Start again when it has"
    )]
    Ending { run: String, host: String, location: String, waited_seconds: f64 },
}

impl RunInUse {
    /// Whether the hold ends without intervention, so that the same start succeeds later.
    pub fn passes(&self) -> bool {
        matches!(self, Self::Ending { .. } | Self::AtWork { is_own: true, .. })
    }
}

/// The process that holds a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Holder {
    liveness: Liveness,
    /// Whether the supervisor of this job has started the process.
    is_own: bool,
}

impl Holder {
    /// What this process writes into its hold.
    fn this(process: &dyn Process) -> [u8; FOLDER_OWNER] {
        let run = process.supervisor().unwrap_or_default();
        let words = format!("{} {run}", process::this_process());
        let mut bytes = [0; FOLDER_OWNER];
        // A run name that is too long is cut, and then belongs to no supervisor.
        let len = words.len().min(WORDS_BYTES);
        bytes[..len].copy_from_slice(&words.as_bytes()[..len]);
        bytes[WORDS_BYTES..].copy_from_slice(&mpi_files::own_job().to_le_bytes());
        bytes
    }

    /// Reads what a process has written, for `this` process. A process that had no time to write is
    /// of unknown liveness.
    fn read(bytes: &[u8], this: &dyn Process) -> Self {
        let bytes = &bytes[..bytes.len().min(WORDS_BYTES)];
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        let words = std::str::from_utf8(&bytes[..end]).unwrap_or_default();
        let (process, run) = words.split_once(' ').unwrap_or((words, ""));
        let is_own = !run.is_empty() && this.supervisor().as_deref() == Some(run);
        Self { liveness: process::holder_liveness(process), is_own }
    }

    fn inspect(store: &dyn Store, name: &SegmentName, this: &dyn Process) -> Self {
        let mut bytes = [0; HOLDER_BYTES];
        match store.peek(name, &mut bytes) {
            Ok(Some(len)) => Self::read(&bytes[..len.min(HOLDER_BYTES)], this),
            // The holder has removed it since it was found in use.
            Ok(None) => Self { liveness: Liveness::Dead, is_own: false },
            Err(_) => Self { liveness: Liveness::Unknown, is_own: false },
        }
    }
}

/// A wait for processes of an earlier start to release what they hold.
pub struct Patience<'a> {
    /// Bytes of memory that have to be freed.
    bytes: &'a dyn Fn() -> u64,
    /// The process that waits.
    process: &'a dyn Process,
    clock: WaitClock,
    /// The limit for processes that are ending; measured when it is first needed.
    ending: Option<Duration>,
}

impl<'a> Patience<'a> {
    /// Begins a wait of `process`. `bytes` gives the bytes on this node that ending processes have
    /// together.
    pub fn new(bytes: &'a dyn Fn() -> u64, process: &'a dyn Process) -> Self {
        Self { bytes, process, clock: WaitClock::new(IN_USE_PATIENCE), ending: None }
    }

    /// Seconds since the wait began.
    pub fn seconds(&self) -> f64 {
        self.clock.waited().as_secs_f64()
    }

    /// Whether the wait is over for a process at work or, with `is_ending`, for one that is ending.
    /// Also calls [`Process::waits`], a sign of life.
    pub fn is_over(&mut self, is_ending: bool) -> bool {
        self.process.waits(self.seconds());
        let limit = if is_ending { self.for_ending() } else { IN_USE_PATIENCE };
        self.clock.set_limit(limit);
        self.clock.is_over()
    }

    /// The limit for processes that are ending: the time to free their memory.
    fn for_ending(&mut self) -> Duration {
        *self.ending.get_or_insert_with(|| {
            let bytes = (self.bytes)() as f64;
            let seconds = ENDING_FACTOR * bytes * pages::unmap_seconds_a_byte();
            IN_USE_PATIENCE + Duration::from_secs_f64(seconds)
        })
    }
}

impl RunLock {
    fn new(segment: Segment) -> Self {
        let owner = word_at(&segment, FOLDER_OWNER);
        Self { segment: Mutex::new(segment), folder_owner: (owner != 0).then_some(owner) }
    }

    /// The last job that has had the run's folders of images and a process with this hold: that
    /// process has ended, without releasing the hold.
    pub fn folder_owner(&self) -> Option<u64> {
        self.folder_owner
    }

    /// Notes that this process's job has the folders of images.
    pub fn set_folder_owner(&self, job: u64) {
        let mut segment = self.segment.lock().expect("never held over a panic");
        segment.as_mut_slice()[FOLDER_OWNER..HOLDER_BYTES].copy_from_slice(&job.to_le_bytes());
    }

    /// Takes the hold of `process`, which runs on `host` and has the number `index` among those of
    /// the job that see this store. Waits a while for a process of an earlier start to end.
    pub fn take(
        store: &(dyn Store + Send + Sync),
        run: &str,
        host: &str,
        index: usize,
        process: &dyn Process,
    ) -> Result<Result<Self, RunInUse>, StoreError> {
        let name = SegmentName::new(run, "lock", index as u32)?;
        let bytes_of_run = || run_bytes(store, run).unwrap_or(0);
        let mut patience = Patience::new(&bytes_of_run, process);
        let _wait = Announced::begin(format!("the process that holds run {run} to end"));
        loop {
            let held = match store.attach(&name) {
                Ok(None) => store.create(&name, HOLDER_BYTES).map(Some),
                found => found,
            };
            match held {
                Ok(Some(mut held)) => {
                    let words = &mut held.as_mut_slice()[..HOLDER_BYTES];
                    let this = Holder::this(process);
                    if job_of(words) != job_of(&this) {
                        mpi_files::remove_of(job_of(words));
                    }
                    words[..FOLDER_OWNER].copy_from_slice(&this);
                    return Ok(Ok(Self::new(held)));
                }
                Ok(None) => {}
                Err(StoreError::InUse { location, .. } | StoreError::Exists { location, .. }) => {
                    let holder = Holder::inspect(store, &name, process);
                    let is_ending = holder.liveness == Liveness::Dead;
                    if patience.is_over(is_ending) {
                        let (run, host) = (run.to_owned(), host.to_owned());
                        let waited_seconds = patience.seconds();
                        return Ok(Err(if is_ending {
                            RunInUse::Ending { run, host, location, waited_seconds }
                        } else {
                            RunInUse::AtWork { run, host, location, is_own: holder.is_own }
                        }));
                    }
                }
                Err(error) => return Err(error),
            }
            // Two processes that have given way to each other must not do so again at the same
            // time.
            let pause_milliseconds = 30 + u64::from(std::process::id() % 41);
            std::thread::sleep(Duration::from_millis(pause_milliseconds));
        }
    }
}

/// The MPI job of a holder; 0 if it has written none.
fn job_of(bytes: &[u8]) -> u64 {
    word_at(bytes, WORDS_BYTES)
}

fn word_at(bytes: &[u8], at: usize) -> u64 {
    let word = bytes.get(at..at + size_of::<u64>());
    word.map_or(0, |word| u64::from_le_bytes(word.try_into().expect("as many bytes")))
}

/// Removes the files that the MPI job of the unused hold `name` has left on this node.
pub fn remove_mpi_files(store: &dyn Store, name: &SegmentName) {
    let mut bytes = [0; HOLDER_BYTES];
    if let Ok(Some(HOLDER_BYTES)) = store.peek(name, &mut bytes) {
        mpi_files::remove_of(job_of(&bytes));
    }
}

impl Drop for RunLock {
    fn drop(&mut self) {
        // If it cannot be removed now, the next start takes it over.
        let _ = self.segment.get_mut().expect("never held over a panic").remove();
    }
}

#[cfg(test)]
mod tests {
    use super::super::Plain;
    use super::*;
    use crate::store::Files;

    #[test]
    fn holder_is_identified_and_blank_holds_are_unknown() {
        let holder = Holder::read(&Holder::this(&Plain), &Plain);
        assert_eq!(holder, Holder { liveness: Liveness::Alive, is_own: false });
        for nothing in [&[][..], &[0; HOLDER_BYTES], &[0xff; 8], b"12.x"] {
            assert_eq!(Holder::read(nothing, &Plain).liveness, Liveness::Unknown, "{nothing:?}");
        }
    }

    /// The next try finds the hold free: a start that has waited long must not be refused for it.
    #[test]
    fn a_hold_that_is_gone_has_no_process_at_work() {
        let folder = tempfile::TempDir::new().unwrap();
        let store = Files::in_folder(folder.path());
        let name = SegmentName::new("run", "lock", 0).unwrap();
        assert_eq!(Holder::inspect(&store, &name, &Plain).liveness, Liveness::Dead);
        store.create(&name, HOLDER_BYTES).unwrap().as_mut_slice()[0] = 1;
        assert_eq!(Holder::inspect(&store, &name, &Plain).liveness, Liveness::Unknown);
    }

    #[test]
    fn a_process_that_ends_is_waited_for_by_its_memory() {
        assert_eq!(Patience::new(&|| 0, &Plain).for_ending(), IN_USE_PATIENCE);
        let terabyte = Patience::new(&|| 1 << 40, &Plain).for_ending();
        // The system frees 1 to 100 GB a second.
        assert!((20..100_000).contains(&terabyte.as_secs()), "{terabyte:?}");
    }
}
