//! The answer of a node to the supervisor's question whether it can take part: `skt-hpl probe` on
//! the node gives it, see [`super::line`]. The probe also ends processes that an earlier start of
//! this run left on the node, because two jobs must not share segments.

use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use nix::unistd::{AccessFlags, access};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use skt_checkpoint::heartbeat::{find_marked, marked_line};
use skt_host::named;
use skt_host::shown::shown_message;
use skt_host::units::bytes_unlike;

use super::links::addresses::{self, Address};
use super::links::{Link, Partner, connect};
use super::process;
use super::program::Program;
use skt_checkpoint::checkpoint::level::folder::{Remover, remove_images_of};
use skt_checkpoint::heartbeat::DataLocation;
use skt_host::counters::Root;
use skt_host::counters::oom_kills::OomKills;
use skt_host::process::ending_processes;
use skt_store::codec::checksum;
use skt_store::segments::node_store::NodeStore;
use skt_store::segments::role::is_mark;
use skt_store::segments::{self, lock};
use skt_store::store::{Store, StoreError, StoreKind, host};

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
    pub available_bytes: u64,
    /// Processes that the kernel has ended for want of memory.
    pub oom_kills: OomKills,
    pub store: NodeStore,
    /// Why the store of segments cannot be used; `None` if it can.
    pub no_store: Option<String>,
    /// Why images of this run are still on the node's disks although they were to be removed.
    pub images_stay: Option<String>,
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

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Purpose {
    /// The job is to start: ranks of earlier starts are ended.
    #[default]
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
    let run = &question.run;
    let (mut counts, mut swept, mut program_of_user) = ((0, 0), (0, 0), None);
    match question.purpose {
        Purpose::Check => counts = process::count_ranks(run),
        Purpose::Links => {}
        Purpose::Start | Purpose::Clean | Purpose::Forget => swept = process::sweep_ranks(run),
    }
    if question.purpose == Purpose::Start {
        program_of_user = question.program.as_deref().and_then(checksum_of);
    }
    // Counted first, so that memory which the last of them frees is in the measurement.
    let ending = ending_processes();
    let (available_bytes, _) = host::Host::this().available_memory();
    let mut answer = Answer {
        question: question.number,
        host: process::this_host(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        program: program_checksum(),
        program_of_user,
        ended: swept.0,
        immortal: swept.1,
        ending,
        ranks: counts.0,
        stopped: counts.1,
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
    let kind = match keeps.store.parse::<StoreKind>() {
        Ok(kind) => kind,
        Err(error) => return answer.no_store = Some(error.to_string()),
    };
    let store = kind.open();
    let cleaned = match purpose {
        Purpose::Clean | Purpose::Forget if immortal == 0 => {
            remove_all(&*store, run_id, purpose == Purpose::Forget)
        }
        _ => Ok(()),
    };
    let listed = cleaned.and_then(|()| segments::run_segments(&*store, run_id));
    answer.store = NodeStore::ask(&kind, &*store, listed.as_deref().unwrap_or_default());
    answer.no_store = listed.err().map(|error| error.to_string());
}

/// Removes all segments of a run: its checkpoints and the locks that killed ranks left, and with
/// `with_marks` also the marks that the run is over. A segment that a process is attached to stays.
fn remove_all(store: &dyn Store, run_id: &str, with_marks: bool) -> Result<(), StoreError> {
    let segments = segments::run_segments(store, run_id)?.into_iter();
    for info in segments.filter(|info| with_marks || !is_mark(info)) {
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

/// The checksum of the file of a program; `None` if it cannot be read or executed.
pub fn checksum_of(program: &Path) -> Option<u64> {
    access(program, AccessFlags::X_OK).ok()?;
    fs::metadata(program).ok().filter(Metadata::is_file)?;
    Some(checksum(&fs::read(program).ok()?))
}

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
        said.lines().find_map(|line| {
            let (_, mut value) = find_marked::<Value>(line, MARK)?;
            make_safe(&mut value);
            let answer = serde_json::from_value::<Answer>(value).ok()?;
            (answer.question == number).then_some(answer)
        })
    }

    /// The memory for a run that needs `need_bytes`, if it is too little. The start waits for memory
    /// that ending processes give back.
    pub(crate) fn too_little(&self, need_bytes: u64) -> Option<u64> {
        let have_bytes = self.available_bytes.saturating_add(self.store.run_bytes);
        (self.ending == 0 && have_bytes < need_bytes).then_some(have_bytes)
    }

    /// Why the node cannot take part with `ranks` ranks of this program or the user's; `None` if it
    /// can. `need_bytes` is the size of a rank's segments on the nodes that have some,
    /// `planned_bytes` their size by the configuration.
    pub(crate) fn fault(
        &self,
        ranks: u64,
        need_bytes: u64,
        planned_bytes: u64,
        of_user: Option<&Program>,
    ) -> Option<String> {
        let ours = env!("CARGO_PKG_VERSION");
        if self.version != ours {
            return Some(format!("has version {} of skt-hpl, not {ours}", self.version));
        }
        if self.program != program_checksum() {
            let why =
                "has another build of skt-hpl of the same version: copy this one's file there";
            return Some(why.to_owned());
        }
        if let Some(why) = &self.no_store {
            return Some(format!("has no shared memory for us: {why}"));
        }
        if self.immortal > 0 {
            return Some(format!("{} rank(s) of an earlier start cannot be ended", self.immortal));
        }
        if let Some(why) = self.store.lack(ranks, planned_bytes.max(need_bytes)) {
            return Some(why);
        }
        let need = need_bytes.saturating_mul(ranks);
        if let Some(have) = self.too_little(need) {
            let (have, need) = (bytes_unlike(have, need), bytes_unlike(need, have));
            return Some(format!("{have} of {need} of memory are available"));
        }
        let Program { file, checksum } = of_user?;
        let file = file.display();
        match self.program_of_user {
            None => Some(format!("has no {file} that it can start")),
            Some(other) if other != *checksum => {
                Some(format!("has another {file} than the launching machine: copy it there"))
            }
            Some(_) => None,
        }
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
mod tests {
    use std::num::NonZeroU64;

    use super::answer as answer_of;
    use super::*;
    use crate::tests::answer;
    use skt_checkpoint::checkpoint::level::folder::{ImageFolder, stored_images};
    use skt_checkpoint::checkpoint::level::{Disk, Generation, Slot, SpacedRanks};
    use skt_checkpoint::checkpoint::record::StartId;
    use skt_store::segments::node_store::StoreRoom;
    use skt_store::store::SysvLimits;

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
        let free = answer_of(&question).store.room.map(|room| room.free_bytes);
        assert!(free.is_some_and(|bytes| bytes > 0 && bytes < u64::MAX), "{free:?}");
        let keeps = question.keeps.map(|keeps| DataLocation { store: "sysv".into(), ..keeps });
        assert_eq!(answer_of(&Question { keeps, ..question }).store.room, None);
    }

    #[test]
    fn node_needs_an_identical_program_file() {
        let program = Program { file: "/home/me/heat".into(), checksum: 7 };
        let fault = |program_of_user| {
            let why = Answer { program_of_user, ..answer() }.fault(1, 0, 0, Some(&program));
            why.unwrap_or_default()
        };
        assert_eq!(fault(None), "has no /home/me/heat that it can start");
        assert!(fault(Some(8)).starts_with("has another /home/me/heat than"));
        assert_eq!(fault(Some(7)), "");
    }

    #[test]
    fn store_needs_room_for_the_data_of_the_ranks() {
        let mebibytes = |count: u64| count << 20;
        let fault = |free: Option<u64>, run_bytes| {
            let room = |free| StoreRoom {
                folder: "/dev/shm/of me".into(),
                free_bytes: mebibytes(free),
                tmpfs: Some((mebibytes(500), "/dev/shm".into())),
            };
            let run_bytes = mebibytes(run_bytes);
            let store = NodeStore { room: free.map(room), run_bytes, ..NodeStore::default() };
            Answer { store, ..answer() }.fault(2, 0, mebibytes(100), None)
        };
        assert_eq!(
            fault(Some(190), 0).unwrap(),
            "its store /dev/shm/of me has 190.0 MiB free, and the segments of 2 ranks need 200.0 \
             MiB: enlarge it (as root: mount -o remount,size=513M /dev/shm), or take another \
             store (--store sysv)"
        );
        for (free, held) in [(Some(200), 0), (Some(0), 200), (None, 0)] {
            assert_eq!(fault(free, held), None);
        }
    }

    #[test]
    fn volatile_store_is_a_fault_for_protected_runs_only() {
        let store = NodeStore { void: Some("forced".to_owned()), ..NodeStore::default() };
        let answer = Answer { store, ..answer() };
        let fault = |bytes| answer.fault(2, 0, bytes, None);
        assert_eq!(fault(0), None);
        assert_eq!(fault(1).as_deref(), Some("its store keeps nothing: forced"));
    }

    #[test]
    fn reclaimable_memory_is_no_fault() {
        let fault =
            |ending| Answer { available_bytes: 199, ending, ..answer() }.fault(2, 100, 100, None);
        let why = fault(0).unwrap();
        assert_eq!((why.as_str(), fault(1)), ("199 B of 200 B of memory are available", None));
    }

    #[test]
    fn system_v_limits_are_checked_before_the_start() {
        let limits = SysvLimits {
            shmmax_bytes: 100 * 4096,
            shmall_pages: 1000,
            shmmni: 4096,
            used_pages: 0,
            page_bytes: NonZeroU64::new(4096).unwrap(),
            segments: 0,
        };
        let low = |limits| {
            let store = NodeStore { sysv: Some(limits), ..NodeStore::default() };
            Answer { store, ..answer() }.fault(2, 0, 98 * 4096, None)
        };
        assert_eq!((low(limits), low(SysvLimits { used_pages: 800, ..limits })), (None, None));
        for (limits, said) in [
            (SysvLimits { shmmax_bytes: 99 * 4096, ..limits }, "kernel.shmmax = 405504, 409600 is"),
            (SysvLimits { used_pages: 801, ..limits }, "kernel.shmall = 1000, 1001 is"),
            (SysvLimits { segments: 4096 - 5, ..limits }, "kernel.shmmni = 4096, 4097 is"),
        ] {
            let why = low(limits).unwrap();
            assert!(why.contains(&format!("do not suffice: {said} needed")), "{why}");
        }
        // Each rank takes 7 of these pages, and 2 more.
        let large_pages = SysvLimits { page_bytes: NonZeroU64::new(65_536).unwrap(), ..limits };
        assert_eq!(low(SysvLimits { used_pages: 982, ..large_pages }), None);
        assert!(low(SysvLimits { used_pages: 983, ..large_pages }).is_some());
    }
}
