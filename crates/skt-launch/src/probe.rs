//! The answer of a node to the supervisor's question whether it can take part: `skt-hpl probe` on
//! the node gives it, see [`super::line`]. The probe also ends processes that an earlier start of
//! this run left on the node, because two jobs must not share segments.

use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

use nix::unistd::{AccessFlags, access};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use skt_checkpoint::heartbeat::{find_marked, marked_line};
use skt_terms::named;
use skt_terms::shown::shown_message;

use super::links::addresses::{self, Address};
use super::links::{Link, Partner, connect};
use super::process;
use skt_checkpoint::checkpoint::level::folder::{Remover, remove_images_of};
use skt_checkpoint::heartbeat::DataLocation;
use skt_host::counters::Root;
use skt_host::counters::oom_kills::OomKills;
use skt_host::process::ending_processes;
use skt_store::codec::checksum;
use skt_store::segments::node_store::{NodeStore, StoreRoom};
use skt_store::segments::role::is_mark;
use skt_store::segments::{self, lock};
use skt_store::store::{Store, StoreError, StoreKind, SysvLimits, host};

/// The mark before an answer: a login shell may print a greeting before it.
const MARK: &str = "@skt-hpl-probe@";

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Answer {
    /// The number of the question, from 0 on each line.
    pub question: u64,
    pub host: String,
    pub version: String,
    /// The checksum of the program's file on the node.
    pub program: u64,
    /// The checksum of the user's program on the node; `None` if it cannot be started there, or
    /// the question names none.
    pub program_of_user: Option<u64>,
    /// Number of ranks of an earlier start that were still running and have been ended.
    pub ended: usize,
    /// Number of ranks of an earlier start that cannot be ended.
    pub immortal: usize,
    /// Number of this user's processes that are ending, whose memory is still to be freed.
    pub ending: usize,
    /// Number of ranks of the run on the node, if the question was to look for them.
    pub ranks: usize,
    pub stopped: usize,
    pub run_bytes: u64,
    pub available_bytes: u64,
    /// Processes that the kernel has ended for want of memory.
    pub oom_kills: OomKills,
    /// The room in the store, if it is a folder of a file system that has a bound.
    pub store_room: Option<StoreRoom>,
    /// Limits of a store of System V segments, and how much of them other runs use.
    pub sysv: Option<SysvLimits>,
    /// Why the store of segments cannot be used; `None` if it can.
    pub no_store: Option<String>,
    /// Why no segment in the store outlives its processes; `None` if segments do.
    pub void_store: Option<String>,
    /// Why images of this run are still on the node's disks although they were to be removed.
    pub images_stay: Option<String>,
    /// Settings of the node by which a run may lose its segments.
    pub warnings: Vec<String>,
    pub addresses: Vec<Address>,
    /// What the node found about the links that it was to try.
    pub links: Vec<Link>,
}

#[derive(Debug, Clone)]
pub struct Question {
    /// Identifies the run, as in the heartbeat's token.
    pub run: String,
    /// Where the run keeps its data, if that is known.
    pub keeps: Option<DataLocation>,
    /// The program that the ranks run, if it is not this one.
    pub program: Option<PathBuf>,
    pub purpose: Purpose,
    pub partners: Vec<Partner>,
    pub number: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The job is to start: ranks of earlier starts are ended.
    Start,
    /// The job is silent: nothing is touched.
    Check,
    /// The links to other nodes are tried: nothing is touched.
    Links,
    /// The run is over: the node removes its segments, except the marks that the run is over, and
    /// its images on the node's own disks.
    Clean,
    /// The run is over and no node has segments of it: the marks are removed, too.
    Forget,
}

named!(Purpose { Start: "start", Check: "look", Links: "links", Clean: "clean", Forget: "forget" });

/// The paths of this process's program and working folder; they change when the program's file is
/// replaced or the folder is removed.
pub fn whereabouts() -> [Option<PathBuf>; 2] {
    ["/proc/self/exe", "/proc/self/cwd"].map(|link| fs::read_link(link).ok())
}

/// Carries out a question on this node and returns the answer.
pub fn answer(question: &Question) -> Answer {
    let (ended, immortal) = match question.purpose {
        Purpose::Check | Purpose::Links => (0, 0),
        Purpose::Start | Purpose::Clean | Purpose::Forget => process::sweep_ranks(&question.run),
    };
    let (ranks, stopped) = match question.purpose {
        Purpose::Check => process::count_ranks(&question.run),
        _ => (0, 0),
    };
    // Counted first, so that memory which the last of them frees is in the measurement.
    let ending = ending_processes();
    let (available_bytes, _) = host::Host::this().available_memory();
    let mut answer = Answer {
        question: question.number,
        host: process::this_host(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        program: program_checksum(),
        program_of_user: question.program.as_deref().and_then(checksum_of),
        ended,
        immortal,
        ending,
        ranks,
        stopped,
        available_bytes,
        oom_kills: OomKills::under(&Root::this_machine()),
        addresses: addresses::list_local(),
        ..Answer::default()
    };
    if question.purpose == Purpose::Links {
        answer.links = connect::all(&question.partners);
        return answer;
    }
    if let Some(keeps) = &question.keeps {
        probe_data(&mut answer, keeps, question);
    }
    answer
}

/// Reports the data of a run on this node, and removes it if that is the purpose.
fn probe_data(answer: &mut Answer, keeps: &DataLocation, question: &Question) {
    let (run_id, immortal, purpose) = (&keeps.run_id, answer.immortal, question.purpose);
    if purpose == Purpose::Clean && immortal == 0 {
        answer.images_stay = remove_images(&keeps.images, run_id, &question.run);
    }
    match keeps.store.parse::<StoreKind>() {
        Err(error) => answer.no_store = Some(error.to_string()),
        Ok(kind) => {
            let store = kind.open();
            let cleaned = match purpose {
                Purpose::Clean if immortal == 0 => remove_all(&*store, run_id, false),
                Purpose::Forget if immortal == 0 => remove_all(&*store, run_id, true),
                _ => Ok(()),
            };
            match cleaned.and_then(|()| segments::run_bytes(&*store, run_id)) {
                Ok(bytes) => answer.run_bytes = bytes,
                Err(error) => answer.no_store = Some(error.to_string()),
            }
            let store_answer = NodeStore::ask(&kind, &*store, run_id);
            (answer.sysv, answer.store_room) = (store_answer.sysv, store_answer.room);
            answer.void_store = store_answer.void;
            answer.warnings = store_answer.warnings;
        }
    }
}

/// Removes all segments of a run: its checkpoints and the locks that killed ranks left, and with
/// `with_marks` also the marks that the run is over. A segment that a process is attached to stays.
fn remove_all(store: &dyn Store, run_id: &str, with_marks: bool) -> Result<(), StoreError> {
    let of_run = store.list_once()?.into_iter().filter(|info| info.name.run() == run_id);
    for info in of_run.filter(|info| with_marks || !is_mark(info)) {
        if info.name.role() == "lock" && !info.in_use {
            lock::remove_mpi_files(store, &info.name);
        }
        store.remove_unused(&info.name)?;
    }
    Ok(())
}

/// Removes all images of a run, which has the name `supervised` for its supervisor, from `folders`;
/// returns why some stay. A missing folder has no images. Those of a job that no or another
/// supervisor has started stay.
fn remove_images(folders: &[PathBuf], run_id: &str, supervised: &str) -> Option<String> {
    let remover = Remover::Supervisor(supervised);
    let failed = |folder: &PathBuf| match remove_images_of(folder, run_id, remover, |_| true) {
        Err(error) if error.kind() != ErrorKind::NotFound => Some(error.to_string()),
        _ => None,
    };
    folders.iter().filter_map(failed).next()
}

/// The checksum of the file of a program; `None` if it cannot be read or executed. The file is read
/// again only after it has changed.
pub fn checksum_of(program: &Path) -> Option<u64> {
    static LAST: Mutex<Option<(PathBuf, FileId, u64)>> = Mutex::new(None);
    access(program, AccessFlags::X_OK).ok()?;
    let found = fs::metadata(program).ok().filter(Metadata::is_file)?;
    let id = (found.dev(), found.ino(), found.mtime(), found.mtime_nsec(), found.size());
    let mut last = LAST.lock().expect("never held over a panic");
    match &*last {
        Some((known, known_id, sum)) if known == program && *known_id == id => Some(*sum),
        _ => {
            let sum = checksum(&fs::read(program).ok()?);
            *last = Some((program.to_owned(), id, sum));
            Some(sum)
        }
    }
}

/// What distinguishes a file from an earlier one of the same path: device, inode, time and size.
type FileId = (u64, u64, i64, i64, u64);

/// The checksum of this program's file; 0 if it cannot be read.
pub fn program_checksum() -> u64 {
    static SUM: OnceLock<u64> = OnceLock::new();
    *SUM.get_or_init(|| fs::read("/proc/self/exe").map_or(0, |bytes| checksum(&bytes)))
}

impl Answer {
    pub fn line(&self) -> String {
        marked_line(MARK, self)
    }

    /// Finds the answer to question `number` in the output of a node.
    pub(crate) fn find(said: &str, number: u64) -> Option<Answer> {
        let answers = said.lines().filter_map(|line| {
            let (_, mut value) = find_marked::<Value>(line, MARK)?;
            make_safe(&mut value);
            serde_json::from_value::<Answer>(value).ok()
        });
        { answers }.find(|answer| answer.question == number)
    }

    /// Whether the node could remove what the run left there.
    pub(crate) fn is_clean(&self) -> bool {
        self.immortal == 0 && self.no_store.is_none()
    }
}

/// Makes text from another machine safe to show.
fn make_safe(value: &mut Value) {
    match value {
        Value::String(text) => *text = shown_message(text),
        Value::Array(all) => all.iter_mut().for_each(make_safe),
        Value::Object(all) => all.values_mut().for_each(make_safe),
        _ => {}
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::answer as answer_of;
    use super::*;
    use skt_checkpoint::checkpoint::level::folder::{ImageFolder, stored_images};
    use skt_checkpoint::checkpoint::level::{Disk, Generation, Slot, SpacedRanks};
    use skt_checkpoint::checkpoint::record::StartId;

    /// The answer of a healthy node to the first question.
    pub(crate) fn answer() -> Answer {
        Answer {
            host: "n1".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            program: program_checksum(),
            available_bytes: 1 << 30,
            ..Answer::default()
        }
    }

    fn question(store: String, image_folders: Vec<PathBuf>, purpose: Purpose) -> Question {
        let (run, run_id) = ("r".to_owned(), "r".to_owned());
        let keeps = Some(DataLocation { run_id, store, images: image_folders });
        Question { run, keeps, program: None, purpose, partners: vec![], number: 0 }
    }

    #[test]
    fn only_images_of_the_finished_run_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let store = format!("file:{}", folder.path().display());
        let generation = Generation { start: StartId::default(), epoch: 3 };
        let slot = Slot { rank: 1, ranks: SpacedRanks::alone(1), bytes: 100 };
        for run in ["r", "another"] {
            let disk = ImageFolder::open(folder.path(), run, 0, None).unwrap();
            disk.create(generation, &slot).unwrap();
        }
        let folders = vec![folder.path().join("nowhere"), folder.path().to_owned()];
        let ask = |purpose| answer_of(&question(store.clone(), folders.clone(), purpose));
        let left = || stored_images(folder.path()).unwrap().into_iter().map(|images| images.run);
        for purpose in [Purpose::Start, Purpose::Check] {
            ask(purpose);
            assert_eq!(left().count(), 2);
        }
        assert_eq!(ask(Purpose::Clean).images_stay, None);
        assert_eq!(left().collect::<Vec<_>>(), ["another"]);
        assert_eq!(ask(Purpose::Clean).images_stay, None, "there are none");
        // What cannot be removed is reported.
        let path = ImageFolder::path_of(folder.path(), "r");
        std::os::unix::fs::symlink(folder.path(), &path).unwrap();
        let why = ask(Purpose::Clean).images_stay.expect("reported");
        assert!(why.contains(&path.display().to_string()), "{why}");
    }

    #[test]
    fn node_reports_the_free_space_of_its_store() {
        let folder = tempfile::tempdir().unwrap();
        let store = format!("file:{}", folder.path().display());
        let question = question(store, Vec::new(), Purpose::Check);
        let free = answer_of(&question).store_room.map(|room| room.free_bytes);
        assert!(free.is_some_and(|bytes| bytes > 0 && bytes < u64::MAX), "{free:?}");
        let keeps = question.keeps.map(|keeps| DataLocation { store: "sysv".into(), ..keeps });
        assert_eq!(answer_of(&Question { keeps, ..question }).store_room, None);
    }
}
