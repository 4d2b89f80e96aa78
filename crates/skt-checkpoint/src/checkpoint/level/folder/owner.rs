//! The owner of a run's folder of images: the one job that writes and removes files there.
//!
//! Jobs on hosts that share nothing but a file system cannot see each other's locks, and file
//! systems of clusters may have none. So each job that wants the folder keeps a record there, in
//! the file `owner.JOB`, which a thread rewrites about once a second. A job is alive if its record
//! changes while another job watches it; only the clock of the watcher counts.
//!
//! 1. *Claim*: make the own file; list those of other jobs that are not known to have ended.
//! 2. If one of them owns the folder, or claims it with a smaller number: remove the own file, and
//!    watch that one. If it changes, this job is refused; if it is silent, it has ended: back to 1.
//! 3. If one of them claims it with a larger number: watch it until it gives way, owns, or is
//!    silent; back to the list of 1.
//! 4. If there is none: *own*, which the record contains from then on. Records of jobs that have
//!    ended are removed.
//!
//! - Two jobs never own at once. A job owns after a list without others, taken while its own file
//!   existed. Of two such lists the later one shows the earlier job's file.
//! - Two claims do not wait for each other: the smaller number waits, the larger one gives way.
//! - A job that stood still for so long that another one took its folder finds its own file gone
//!   ([`ImageFolder::guard`]). To the job the level has failed then: it continues without.
//! - A restart need not watch a job of which a process is known to have ended, because MPI ends the
//!   others: by the hold that this process has left (`RunLock::folder_owner`), or, if it kept the
//!   record and this kernel can look for it, by its number.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::{SFlag, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use serde::{Deserialize, Serialize};
use skt_host::process::{self, Liveness, ProcessId};
use skt_host::wait_clock::WaitClock;
use skt_host::{launcher_rank, messages};

use super::{ImageFolder, Remover, at, file_type, folder_of, remove_empty};
use skt_store::segments::{Plain, Process};

const PREFIX: &str = "owner.";
/// The time between two rewrites of a record; the measured one, which the record states, counts.
const INTERVAL: Duration = Duration::from_secs(1);
/// A job that misses this many intervals has ended. It may have missed some by chance, and if it
/// only stood still, it loses its images.
const SILENT_INTERVALS: f64 = 8.0;
/// What is left of a long interval in the next one, so that one pause is not stated for ever.
const INTERVAL_DECAY: f64 = 0.9;
const POLL: Duration = Duration::from_millis(50);
/// A longer wait is reported to the user.
const SILENT: Duration = Duration::from_secs(2);
const MAX_RECORD_BYTES: u64 = 4096;

/// A job that wants the folders of a run's images.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageJob {
    /// A random number that all processes of the job share.
    pub number: u64,
    /// The host of the process that keeps the record.
    pub host: String,
    /// The run whose supervisor has started the job, if one has.
    pub supervisor: Option<String>,
    /// Whether the job continues when a process is lost, so that an ended process proves nothing.
    pub outlives_losses: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Record {
    host: String,
    process: String,
    supervisor: Option<String>,
    outlives_losses: bool,
    /// Whether the job owns the folder, or only claims it.
    owns: bool,
    /// The time between two rewrites of late, in seconds.
    interval_seconds: f64,
    rewrites: u64,
}

impl Record {
    fn new(job: &ImageJob) -> Self {
        let ImageJob { number: _, host, supervisor, outlives_losses } = job.clone();
        let interval_seconds = INTERVAL.as_secs_f64();
        let (process, owns, rewrites) = (process::this_process(), false, 0);
        Self { host, process, supervisor, outlives_losses, owns, interval_seconds, rewrites }
    }

    /// Whether its process has ended, as far as this kernel knows, and with it the job.
    fn has_ended(&self) -> bool {
        let process = ProcessId::parse(&self.process).filter(ProcessId::is_of_this_boot);
        let is_dead = || process::holder_liveness(&self.process) == Liveness::Dead;
        !self.outlives_losses && process.is_some() && is_dead()
    }

    fn note_interval(&mut self, seconds: f64) {
        let least = INTERVAL.as_secs_f64().max(INTERVAL_DECAY * self.interval_seconds);
        self.interval_seconds = seconds.max(least);
        self.rewrites += 1;
    }
}

#[derive(Debug, Clone)]
struct Rival {
    number: u64,
    bytes: Vec<u8>,
    /// `None` if its process died, or is, while it writes: it counts as an owner.
    record: Option<Record>,
}

impl Rival {
    fn owns(&self) -> bool {
        self.record.as_ref().is_none_or(|record| record.owns)
    }

    /// How long its record may stay the same while the job is alive.
    fn patience(&self) -> Duration {
        let stated = self.record.as_ref().map(|record| record.interval_seconds);
        let least = INTERVAL.as_secs_f64();
        let seconds = stated.filter(|seconds| seconds.is_finite()).unwrap_or(least).max(least);
        Duration::try_from_secs_f64(SILENT_INTERVALS * seconds).unwrap_or(Duration::MAX)
    }
}

impl fmt::Display for Rival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.record {
            Some(Record { host, process, .. }) => {
                let pid = ProcessId::parse(process).map_or(0, |process| process.pid());
                write!(f, "process {pid} on host {host}")
            }
            None => write!(f, "a process that has not written its name"),
        }
    }
}

/// Another job is at work on the images of this run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the images of this run in {folder} belong to a job that is running ({rival}): another job \
     with the same configuration, or one that has not ended yet. Wait for it, name this run with \
     another run id, or give it another folder"
)]
pub(crate) struct OwnedByAnother {
    folder: String,
    rival: String,
    /// Whether the supervisor of this job has started that job, too.
    pub is_own: bool,
}

/// The jobs that have ended: one that is known to have, whatever its record contains (`None`); a
/// silent one, with the record that did not change.
type Ended = BTreeMap<u64, Option<Vec<u8>>>;

/// A job's ownership of the folder of a run's images. It ends when this is dropped.
#[derive(Debug)]
pub struct FolderOwner {
    record: Arc<KeptRecord>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct KeptRecord {
    folder: ImageFolder,
    number: u64,
    record: Mutex<Record>,
    is_over: Mutex<bool>,
    end: Condvar,
}

enum Settled {
    Owns,
    GivesWayTo(Rival),
}

enum Watched {
    Changed,
    Silent,
}

impl FolderOwner {
    /// Takes the folder, which `open` opens, for `job`. A process of each of the jobs `ended` has
    /// ended. If the job has the folder already, by another process, this one keeps the record,
    /// too. `process` waits for another job to show whether it is alive.
    pub(crate) fn take(
        open: &dyn Fn() -> io::Result<ImageFolder>,
        job: &ImageJob,
        ended: &[u64],
        process: &dyn Process,
    ) -> io::Result<Result<Self, OwnedByAnother>> {
        let mut ended: Ended = ended.iter().map(|&number| (number, None)).collect();
        loop {
            let folder = open()?;
            let settled = Self::claim(folder.reopened()?, job)
                .and_then(|owner| Ok((owner.settle(&mut ended, process)?, owner)));
            let rival = match settled {
                Ok((Settled::Owns, owner)) => return Ok(Ok(owner)),
                Ok((Settled::GivesWayTo(rival), owner)) => {
                    drop(owner);
                    rival
                }
                // Another job has removed the empty folder, or this record, which it thought to be
                // of a job that has ended.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                // On a full disk, or one that can only be read, a restart uses the images of a job
                // that has ended.
                Err(error) => match folder.rivals(job.number, &mut ended)?.pop() {
                    Some(rival) => rival,
                    None => return Err(error),
                },
            };
            if let Watched::Changed = folder.watch(&rival, &mut ended, process)? {
                let Some(rival) = folder.rival(rival.number)? else { continue };
                let of_rival = rival.record.as_ref().and_then(|record| record.supervisor.as_ref());
                let is_own = of_rival.is_some() && of_rival == job.supervisor.as_ref();
                let folder = folder.path.display().to_string();
                return Ok(Err(OwnedByAnother { folder, rival: rival.to_string(), is_own }));
            }
        }
    }

    fn claim(folder: ImageFolder, job: &ImageJob) -> io::Result<Self> {
        let (is_over, end) = (Mutex::new(false), Condvar::new());
        let (number, record) = (job.number, Mutex::new(Record::new(job)));
        let record = Arc::new(KeptRecord { folder, number, record, is_over, end });
        match record.write(OFlag::O_CREAT | OFlag::O_EXCL, |_| ()) {
            // Another process of this job has made it.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => {
                // A full disk has an empty one, which others would take for a job's.
                let _ = record.folder.remove_record(number);
                return Err(error);
            }
            Ok(()) => {}
        }
        let kept = record.clone();
        let thread = thread::Builder::new().name("image owner".into());
        let thread = thread.spawn(move || kept.rewrite_until_over());
        let mut owner = Self { record, thread: None };
        owner.thread = Some(thread?);
        Ok(owner)
    }

    /// Decides between this claim and those of other jobs: steps 2 to 4.
    fn settle(&self, ended: &mut Ended, process: &dyn Process) -> io::Result<Settled> {
        let KeptRecord { folder, number, .. } = &*self.record;
        loop {
            let rivals = folder.rivals(*number, ended)?;
            let Some(rival) = rivals.into_iter().min_by_key(|it| (!it.owns(), it.number)) else {
                self.record.write(OFlag::empty(), |record| record.owns = true)?;
                for number in ended.keys().filter(|of| *of != number) {
                    folder.remove_record(*number)?;
                }
                return Ok(Settled::Owns);
            };
            if rival.owns() || rival.number < *number {
                return Ok(Settled::GivesWayTo(rival));
            }
            folder.watch(&rival, ended, process)?;
        }
    }
}

impl Drop for FolderOwner {
    fn drop(&mut self) {
        *self.record.is_over.lock().expect("never held over a panic") = true;
        self.record.end.notify_all();
        if let Some(thread) = self.thread.take() {
            // Its panic was printed.
            let _ = thread.join();
        }
        let folder = &self.record.folder;
        // If they cannot be removed now, the next start waits until it knows this job to be over.
        let _ = folder.remove_record(self.record.number).and_then(|()| remove_empty(&folder.path));
    }
}

impl KeptRecord {
    fn write(&self, flags: OFlag, change: impl FnOnce(&mut Record)) -> io::Result<()> {
        let mut record = self.record.lock().expect("never held over a panic");
        change(&mut record);
        let text = serde_json::to_vec(&*record).expect("plain data");
        // Opened and closed each time, so that other hosts see what a network file system has.
        let mut file = self.folder.file(&record_name(self.number), OFlag::O_WRONLY | flags)?;
        file.write_all(&text)?;
        file.set_len(text.len() as u64)
    }

    fn rewrite_until_over(&self) {
        let mut last = Instant::now();
        loop {
            let is_over = self.is_over.lock().expect("never held over a panic");
            let waited = self.end.wait_timeout_while(is_over, INTERVAL, |is_over| !*is_over);
            if *waited.expect("never held over a panic").0 {
                return;
            }
            let seconds = last.elapsed().as_secs_f64();
            last = Instant::now();
            match self.write(OFlag::empty(), |record| record.note_interval(seconds)) {
                // Another job has taken the folder.
                Err(error) if error.kind() == ErrorKind::NotFound => return,
                // The file system may work again.
                _ => {}
            }
        }
    }
}

fn record_name(number: u64) -> String {
    format!("{PREFIX}{number:016x}")
}

impl ImageFolder {
    fn reopened(&self) -> io::Result<Self> {
        let Self { path, run, test, job } = self;
        Ok(Self { path: path.clone(), run: run.try_clone()?, test: *test, job: *job })
    }

    /// Checks that the job of this folder still owns it.
    pub(super) fn guard(&self) -> io::Result<()> {
        let Some(number) = self.job else { return Ok(()) };
        match self.file(&record_name(number), OFlag::O_RDONLY) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let text = "another job has taken this folder, as this one stood still or could \
                            not write there; the images stay as that job needs them";
                let text = format!("{}: {text}", self.path.display());
                Err(io::Error::new(ErrorKind::PermissionDenied, text))
            }
            Err(error) => Err(error),
        }
    }

    /// The jobs other than `own` that own or claim the folder, without those known to have ended.
    fn rivals(&self, own: u64, ended: &mut Ended) -> io::Result<Vec<Rival>> {
        let mut rivals = Vec::new();
        for number in self.jobs()?.into_iter().filter(|number| *number != own) {
            let Some(rival) = self.rival(number)? else { continue };
            let record = rival.record.as_ref();
            let has_ended = match ended.get(&number) {
                Some(None) => record.is_none_or(|record| !record.outlives_losses),
                Some(Some(bytes)) => *bytes == rival.bytes,
                None => record.is_some_and(Record::has_ended),
            };
            if has_ended {
                ended.entry(number).or_insert_with(|| Some(rival.bytes));
            } else {
                rivals.push(rival);
            }
        }
        Ok(rivals)
    }

    /// The numbers of all jobs with a record. What is known to be no file is none.
    fn jobs(&self) -> io::Result<Vec<u64>> {
        let number = |name: &String| u64::from_str_radix(name.strip_prefix(PREFIX)?, 16).ok();
        let mut jobs: Vec<u64> = self.names()?.iter().filter_map(number).collect();
        jobs.retain(|number| {
            let name = record_name(*number);
            let stat = fstatat(&self.run, name.as_str(), AtFlags::AT_SYMLINK_NOFOLLOW);
            stat.map_or(true, |stat| file_type(&stat) == SFlag::S_IFREG)
        });
        Ok(jobs)
    }

    /// The job with this number; `None` if it has no record.
    fn rival(&self, number: u64) -> io::Result<Option<Rival>> {
        let file = match self.file(&record_name(number), OFlag::O_RDONLY) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let mut bytes = Vec::new();
        file.take(MAX_RECORD_BYTES).read_to_end(&mut bytes)?;
        let record = serde_json::from_slice(&bytes).ok();
        Ok(Some(Rival { number, bytes, record }))
    }

    /// Watches another job until its record changes or is gone, or has been the same for so long
    /// that the job has ended, which is noted.
    fn watch(
        &self,
        rival: &Rival,
        ended: &mut Ended,
        process: &dyn Process,
    ) -> io::Result<Watched> {
        let (mut clock, mut is_reported) = (WaitClock::new(rival.patience()), false);
        loop {
            let now = self.rival(rival.number)?;
            if now.is_none_or(|now| now.bytes != rival.bytes) {
                return Ok(Watched::Changed);
            }
            let seconds = clock.waited().as_secs_f64();
            process.passes(seconds, seconds as usize);
            if clock.waited() > SILENT && !is_reported && launcher_rank::is_first() {
                is_reported = true;
                messages::print(format_args!(
                    "waits to see whether {rival}, which has used the images in {}, is still at \
                     work: at most {:.0} s",
                    self.path.display(),
                    clock.limit().as_secs_f64()
                ));
            }
            if clock.is_over() {
                ended.insert(rival.number, Some(rival.bytes.clone()));
                return Ok(Watched::Silent);
            }
            thread::sleep(POLL);
        }
    }

    /// Removes the records of the jobs that `remover` names; an error when another one is here.
    pub(super) fn release_for(&self, remover: Remover) -> io::Result<()> {
        for number in self.jobs()? {
            let Some(rival) = self.rival(number)? else { continue };
            let supervisor = rival.record.as_ref().and_then(|record| record.supervisor.as_deref());
            match remover {
                Remover::Job(job) if job == Some(number) => {}
                Remover::Supervisor(run) if supervisor == Some(run) => {
                    self.remove_record(number)?
                }
                Remover::User => self.remove_record(number)?,
                _ => {
                    let text = format!(
                        "{}: it belongs to a job of {rival}; the images stay",
                        self.path.display()
                    );
                    return Err(io::Error::new(ErrorKind::PermissionDenied, text));
                }
            }
        }
        Ok(())
    }

    fn remove_record(&self, number: u64) -> io::Result<()> {
        match unlinkat(&self.run, record_name(number).as_str(), UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// A job that is at work on the images of `run` in `parent`, in words; watches the records there.
pub fn job_at_work(parent: &Path, run: &str) -> io::Result<Option<String>> {
    let above = File::open(parent).map_err(at(parent))?;
    let Some(folder) = folder_of(&above, parent, run, 0)? else { return Ok(None) };
    for number in folder.jobs()? {
        let Some(rival) = folder.rival(number)? else { continue };
        let watched = folder.watch(&rival, &mut Ended::new(), &Plain)?;
        if matches!(watched, Watched::Changed) && folder.rival(number)?.is_some() {
            return Ok(Some(rival.to_string()));
        }
    }
    Ok(None)
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    pub(crate) fn job(number: u64) -> ImageJob {
        let host = format!("host{number}");
        ImageJob { number, host, supervisor: None, outlives_losses: false }
    }

    pub(crate) fn take(
        above: &Path,
        job: &ImageJob,
        ended: &[u64],
    ) -> Result<FolderOwner, OwnedByAnother> {
        let open = || ImageFolder::open(above, "run", 0, Some(job.number));
        FolderOwner::take(&open, job, ended, &Plain).expect("a folder")
    }

    /// The folder in `above`, which job `number` has until this is dropped.
    pub(crate) fn own(above: &Path, number: u64) -> FolderOwner {
        take(above, &job(number), &[]).expect("no other job")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use proptest::prelude::*;

    use super::super::super::super::record::StartId;
    use super::super::super::disk::{Disk as _, Generation, Slot};
    use super::super::super::ranks::SpacedRanks;
    use super::super::{close_folder, remove_images_of, tests_with_images};
    use super::testing::{job, own, take};
    use super::*;

    const IMAGE: Generation = Generation { start: StartId { number: 1, nonce: 2 }, epoch: 3 };

    fn folder(above: &Path, number: u64) -> ImageFolder {
        ImageFolder::open(above, "run", 0, Some(number)).expect("a folder")
    }

    fn slot() -> Slot {
        Slot { rank: 0, ranks: SpacedRanks::alone(0), bytes: 4096 }
    }

    /// Writes the record of a job that does not rewrite it, made by this process in another boot.
    fn plant(above: &Path, number: u64, change: impl FnOnce(&mut Record)) {
        let mut record = Record { owns: true, ..Record::new(&job(number)) };
        record.process = "17.1.1.another-boot".into();
        change(&mut record);
        let path = folder(above, number).path.join(record_name(number));
        std::fs::write(path, serde_json::to_vec(&record).unwrap()).unwrap();
    }

    #[test]
    fn a_second_job_is_refused_by_name_while_the_first_is_at_work() {
        let above = tempfile::tempdir().unwrap();
        let first = own(above.path(), 7);
        for number in [3, 9] {
            let refused = take(above.path(), &job(number), &[]).expect_err("it is taken");
            let text = refused.to_string();
            assert!(text.contains("host host7") && !refused.is_own, "{text}");
            let pid = format!("process {} ", std::process::id());
            assert!(text.contains(&pid), "{text}");
        }
        assert!(job_at_work(above.path(), "run").unwrap().is_some());
        drop(first);
        assert_eq!(job_at_work(above.path(), "run").unwrap(), None);
        drop(own(above.path(), 3));
        let left = std::fs::read_dir(above.path()).unwrap().count();
        assert_eq!(left, 0, "the empty folder goes with its last owner");
    }

    /// Another supervisor of the same run waits until that job has ended.
    #[test]
    fn job_of_the_same_supervisor_passes() {
        let above = tempfile::tempdir().unwrap();
        let supervised = |number| ImageJob { supervisor: Some("run".into()), ..job(number) };
        let _first = take(above.path(), &supervised(1), &[]).expect("no other job");
        assert!(take(above.path(), &supervised(2), &[]).expect_err("it is taken").is_own);
        assert!(!take(above.path(), &job(3), &[]).expect_err("it is taken").is_own);
    }

    #[test]
    fn two_processes_of_a_job_share_its_folder() {
        let above = tempfile::tempdir().unwrap();
        let (first, second) = (own(above.path(), 7), own(above.path(), 7));
        folder(above.path(), 7).guard().expect("it has the folder");
        drop((first, second));
    }

    /// The record keeps changing, so only the proof counts. A job that outlives losses continues
    /// without the process that has ended.
    #[test]
    fn job_that_is_known_to_have_ended_is_not_watched() {
        let above = tempfile::tempdir().unwrap();
        let first = own(above.path(), 7);
        let second = take(above.path(), &job(8), &[5, 7]).expect("that job has ended");
        drop((first, second));
        let outlives = ImageJob { outlives_losses: true, ..job(7) };
        let _first = take(above.path(), &outlives, &[]).expect("no other job");
        take(above.path(), &job(8), &[7]).expect_err("the others may be at work");
    }

    /// A process of this boot that has ended is found by its number; one of another boot, or of a
    /// job that outlives losses, is watched.
    #[test]
    fn record_of_a_process_of_this_boot_is_checked_at_once() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let process = ProcessId::this().text().replacen(
            &std::process::id().to_string(),
            &child.id().to_string(),
            1,
        );
        child.wait().unwrap();
        let record = Record { process, ..Record::new(&job(1)) };
        assert!(record.has_ended());
        assert!(!Record { outlives_losses: true, ..record.clone() }.has_ended());
        assert!(!Record { process: "17.1.1.another-boot".into(), ..record }.has_ended());
        assert!(!Record::new(&job(1)).has_ended());
    }

    /// What a power cut leaves: a record that no process rewrites, or the beginning of one.
    #[test]
    fn silent_jobs_lose_the_folder_and_find_out() {
        let above = tempfile::tempdir().unwrap();
        plant(above.path(), 7, |_| ());
        let other = |number| folder(above.path(), 0).path.join(record_name(number));
        std::fs::write(other(6), "{\"ho").unwrap();
        std::fs::create_dir(other(5)).unwrap();
        std::os::unix::fs::symlink(other(7), other(4)).unwrap();
        let stopped = folder(above.path(), 7);
        stopped.create(IMAGE, &slot()).expect("it had the folder until now");
        let _owner = own(above.path(), 8);
        assert_eq!(folder(above.path(), 8).jobs().unwrap(), [8]);
        // The job that stood still continues.
        for refused in [
            stopped.create(Generation { epoch: 4, ..IMAGE }, &slot()).map(drop),
            stopped.remove(stopped.list().unwrap()[0]),
            remove_images_of(above.path(), "run", Remover::Job(Some(7)), |_| true).map(drop),
        ] {
            let why = refused.expect_err("it has lost the folder");
            assert_eq!(why.kind(), ErrorKind::PermissionDenied, "{why}");
        }
        assert_eq!(tests_with_images(above.path(), "run").unwrap().len(), 1);
        folder(above.path(), 8).create(Generation { epoch: 5, ..IMAGE }, &slot()).unwrap();
    }

    #[test]
    fn images_are_removed_by_those_who_may() {
        let above = tempfile::tempdir().unwrap();
        let remove = |remover| remove_images_of(above.path(), "run", remover, |_| true);
        let owned = |number| {
            let supervised = ImageJob { supervisor: Some("mine".into()), ..job(number) };
            let owner = take(above.path(), &supervised, &[]).expect("no other job");
            folder(above.path(), number).create(IMAGE, &slot()).unwrap();
            owner
        };
        let owner = owned(7);
        for other in [Remover::Job(Some(8)), Remover::Job(None), Remover::Supervisor("other")] {
            let why = remove(other).expect_err("another job has them").to_string();
            assert!(why.contains("host host7"), "{why}");
        }
        assert_eq!(remove(Remover::Job(Some(7))).unwrap().0, 1);
        drop(owner);
        for remover in [Remover::Supervisor("mine"), Remover::User] {
            let owner = owned(7);
            assert_eq!(remove(remover).unwrap().0, 1);
            drop(owner);
        }
        close_folder(above.path(), "run").unwrap();
        assert_eq!(std::fs::read_dir(above.path()).unwrap().count(), 0);
    }

    #[test]
    fn interval_follows_the_pauses_of_late() {
        let mut record = Record::new(&job(1));
        record.note_interval(30.0);
        assert_eq!(record.interval_seconds, 30.0);
        (0..100).for_each(|_| record.note_interval(1.0));
        assert_eq!(record.interval_seconds, 1.0);
        let rival = |interval_seconds| Rival {
            number: 1,
            bytes: Vec::new(),
            record: Some(Record { interval_seconds, ..Record::new(&job(1)) }),
        };
        assert_eq!(rival(30.0).patience(), Duration::from_secs(240));
        for unread in [f64::NAN, -1.0, 0.0, f64::INFINITY] {
            assert_eq!(rival(unread).patience(), Duration::from_secs(8), "{unread}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]

        #[test]
        fn no_two_jobs_have_the_folder_at_once(
            numbers in prop::collection::btree_set(1u64..100, 2..5),
            pauses_ms in prop::collection::vec(0u64..20, 4),
        ) {
            let above = tempfile::tempdir().unwrap();
            let owner = AtomicU64::new(0);
            let work = |number: u64, pause_ms: u64| {
                for _ in 0..2 {
                    thread::sleep(Duration::from_millis(pause_ms));
                    // A job that is refused tries again later.
                    let Ok(taken) = take(above.path(), &job(number), &[]) else { continue };
                    // A job that gets no core for long loses the folder, and finds out.
                    if folder(above.path(), number).guard().is_ok() {
                        let before = owner.swap(number, Ordering::SeqCst);
                        assert!(before == 0 || folder(above.path(), before).guard().is_err());
                        thread::sleep(Duration::from_millis(pause_ms));
                        owner.store(0, Ordering::SeqCst);
                    }
                    drop(taken);
                }
            };
            thread::scope(|scope| {
                for (number, pause_ms) in numbers.iter().zip(pauses_ms) {
                    scope.spawn(move || work(*number, pause_ms));
                }
            });
        }
    }
}
