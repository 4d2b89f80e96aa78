//! The guarantees of every store: memory outlives its process, is complete or absent, and that of
//! other users is never touched.

use std::cell::RefCell;
use std::io::Read as _;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::skipped::skipped;
use skt_checkpoint::checkpoint::header::SegmentId;
use skt_checkpoint::checkpoint::protocol::Memory as _;
use skt_hpl::cli::store::{self, CleanOptions, Cleaned};
use skt_run::protect::hold::RunLock;
use skt_store::segments::{Plain, RunSegments};
use skt_store::store::{Files, Liveness, SegmentName, Stage, Store, StoreError, StoreKind, SysV};
use tempfile::TempDir;

/// What takes longer is not waited for, however busy this machine is.
const HANG: Duration = Duration::from_secs(600);

/// A store with a run id that no other test has; dropping it removes the run's segments, also when
/// a test panics.
struct Fixture {
    store: Box<dyn Store + Send + Sync>,
    kind: StoreKind,
    run: String,
    _folder: Option<TempDir>,
}

impl Fixture {
    fn new(kind: StoreKind, test: &str, folder: Option<TempDir>) -> Self {
        // Tests of one binary run at the same time: no two may ever share a run.
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let run = format!("test-{test}-{}-{number}", std::process::id());
        Self { store: kind.open(), kind, run, _folder: folder }
    }

    fn name(&self, rank: u32) -> SegmentName {
        SegmentName::new(&self.run, "state", rank).unwrap()
    }

    fn clean(&self, force: bool) -> (Cleaned, String) {
        let mut text = Vec::new();
        let options = CleanOptions { run: Some(self.run.clone()), force };
        let cleaned = store::clean(&*self.store, &options, &mut text).unwrap();
        (cleaned, String::from_utf8(text).unwrap())
    }

    fn listed(&self) -> Vec<skt_store::store::SegmentInfo> {
        let list = self.store.list().unwrap();
        list.into_iter().filter(|info| info.name.run() == self.run).collect()
    }

    /// Runs a child of this test binary that creates rank 0 filled with 0xab, reports it, and then
    /// acts according to `mode`.
    fn child(&self, mode: &str) -> std::process::Child {
        self.child_with("state", mode)
    }

    /// [`Self::child`] with a segment of another role.
    fn child_with(&self, role: &str, mode: &str) -> std::process::Child {
        spawn_child(&self.kind.to_string(), &self.run, role, mode)
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        for info in self.listed() {
            let removed = self.store.remove(&info.name);
            if !std::thread::panicking() {
                removed.unwrap();
            }
        }
        if !std::thread::panicking() {
            assert_eq!(self.listed(), [], "segments left behind");
        }
    }
}

const BYTES: usize = 40_000;

/// Runs the test on each store.
fn on_every_store(test: &str, body: impl Fn(&Fixture)) {
    body(&Fixture::new(StoreKind::SysV { huge_pages: false }, test, None));
    body(&Fixture::new(StoreKind::Posix, test, None));
    let folder = TempDir::new().unwrap();
    let kind = StoreKind::Files(folder.path().to_owned());
    body(&Fixture::new(kind, test, Some(folder)));
}

/// Starts [`child_process`].
pub fn spawn_child(kind: &str, run: &str, role: &str, mode: &str) -> std::process::Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["store_segments::child_process", "--exact", "--ignored", "--nocapture"]);
    command.env("STORE_TEST_KIND", kind).env("STORE_TEST_RUN", run);
    command.env("STORE_TEST_ROLE", role).env("STORE_TEST_MODE", mode);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
}

/// Not a test: the other process of tests, which creates a segment.
#[test]
#[ignore = "runs as a child of other tests"]
fn child_process() {
    let Ok(kind) = std::env::var("STORE_TEST_KIND") else { return };
    let store = kind.parse::<StoreKind>().unwrap().open();
    let of = ["STORE_TEST_RUN", "STORE_TEST_ROLE"].map(|it| std::env::var(it).unwrap());
    let name = SegmentName::new(&of[0], &of[1], 0).unwrap();
    let mode = std::env::var("STORE_TEST_MODE").unwrap();
    // Until it is killed, or the process that has started it is no more.
    let stay = || drop(std::io::stdin().read(&mut [0]));
    let at = |stage: Stage| {
        if mode == format!("stay at {stage:?}") {
            stay();
        }
        if mode == format!("die at {stage:?}") {
            // SAFETY: sends a signal to this process, as when the system kills it.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        }
    };
    let new = store.begin_at(&name, BYTES, &at).unwrap();
    if mode == "die before it is complete" {
        std::process::abort();
    }
    let mut segment = new.finish().unwrap();
    segment.as_mut_slice().fill(0xab);
    match &mode[..] {
        "die" => std::process::abort(),
        "stay" => stay(),
        other => panic!("{other}"),
    }
}

pub fn wait_for(what: &str, mut is_there: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_there() {
        assert!(start.elapsed() < HANG, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_new_segment_is_zero_aligned_and_writable() {
    on_every_store("new", |f| {
        let mut segment = f.store.create(&f.name(3), BYTES).unwrap();
        assert_eq!(segment.as_slice().len(), BYTES);
        assert_eq!(segment.as_slice().as_ptr() as usize % 4096, 0);
        assert!(segment.as_slice().iter().all(|&b| b == 0));
        segment[BYTES - 1] = 15;
        assert_eq!(segment[BYTES - 1], 15);
        assert_eq!(segment.name(), &f.name(3));
        assert_eq!(segment.note(), None);
    });
}

#[test]
fn dropping_detaches_and_the_data_stays() {
    on_every_store("drop", |f| {
        let mut segment = f.store.create(&f.name(0), BYTES).unwrap();
        segment.as_mut_slice().fill(7);
        drop(segment);
        let segment = f.store.attach(&f.name(0)).unwrap().unwrap();
        let mut mapped = Vec::new();
        segment.map_pages(|done| mapped.push(done));
        assert_eq!(mapped, [1], "less than a GiB");
        assert!(segment.as_slice().iter().all(|&b| b == 7));
        assert_eq!(segment.as_slice().len(), BYTES);
        assert!(f.store.attach(&f.name(1)).unwrap().is_none());
        drop(segment);
        assert!(f.store.remove(&f.name(0)).unwrap());
        assert!(!f.store.remove(&f.name(0)).unwrap());
        assert!(f.store.attach(&f.name(0)).unwrap().is_none());
    });
}

#[test]
fn data_outlives_its_process() {
    on_every_store("outlive", |f| {
        let mut child = f.child("die");
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGABRT));
        let info = &f.listed()[0];
        assert_eq!((info.creator, info.in_use), (Liveness::Dead, false));
        assert_eq!(info.creator_pid, child.id());
        let segment = f.store.attach(&f.name(0)).unwrap().unwrap();
        assert!(segment.as_slice().iter().all(|&b| b == 0xab));
    });
}

#[test]
fn an_incomplete_segment_is_listed_never_attached_and_replaced() {
    on_every_store("torn", |f| {
        f.child("die before it is complete").wait().unwrap();
        let listed = f.listed();
        assert_eq!(listed.len(), 1);
        assert!(!listed[0].is_ready);
        assert!(f.store.attach(&f.name(0)).unwrap().is_none());
        assert!(f.store.create(&f.name(0), 8).is_ok());
        assert_eq!(f.listed()[0].bytes, 8);
    });
}

#[test]
fn a_killed_creation_leaves_what_is_recognized_and_removed() {
    on_every_store("stage", |f| {
        for stage in [Stage::Named, Stage::Reserved] {
            let mode = format!("die at {stage:?}");
            let status = f.child(&mode).wait().unwrap();
            assert_eq!(status.signal(), Some(libc::SIGKILL), "{stage:?}");
            let listed = f.listed();
            assert_eq!(listed.len(), 1, "{stage:?}");
            assert_eq!((listed[0].is_ready, listed[0].bytes), (false, BYTES), "{stage:?}");
            // It is removed also without naming the run, because no run can use it.
            let (cleaned, text) = f.clean(false);
            assert_eq!((cleaned.removed, f.listed().len()), (1, 0), "{stage:?}: {text}");
            // Otherwise, the next creation of that name replaces it.
            f.child(&mode).wait().unwrap();
            drop(f.store.create(&f.name(0), 8).unwrap());
            assert_eq!((f.listed().len(), f.listed()[0].bytes), (1, 8), "{stage:?}");
            assert!(f.store.remove(&f.name(0)).unwrap());
        }
    });
}

/// Each start gives its segments other names, so none replaces what a dead creator has left.
#[test]
fn a_start_frees_what_a_start_that_died_in_a_creation_has_left() {
    on_every_store("left", |f| {
        let [complete, living] = [2, 4].map(|start| SegmentId { rank: 1, start });
        let mut segments = RunSegments::new(&*f.store, &f.run, 0, Plain);
        drop(segments.create(complete, BYTES).unwrap());
        for stage in [Stage::Named, Stage::Reserved] {
            f.child_with("t0.a3", &format!("die at {stage:?}")).wait().unwrap();
            assert_eq!(f.listed().len(), 2, "{stage:?}");
            let role = format!("t0.a{}", living.start);
            let name = SegmentName::new(&f.run, &role, living.rank as u32).unwrap();
            let new = f.store.begin(&name, 8).unwrap();
            assert_eq!(segments.list().unwrap(), [complete], "{stage:?}");
            let left: Vec<_> = f.listed().into_iter().map(|info| info.name.rank()).collect();
            assert_eq!(left, [1, 1], "{stage:?}: the complete one, and that of a living creator");
            drop(new);
            assert_eq!(f.listed().len(), 1, "{stage:?}");
        }
    });
}

#[test]
fn a_creation_given_up_leaves_nothing() {
    on_every_store("given-up", |f| {
        let new = f.store.begin(&f.name(0), BYTES).unwrap();
        assert_eq!(f.listed().len(), 1);
        new.touch(0, 2).unwrap();
        drop(new);
        assert_eq!(f.listed(), []);
    });
}

#[test]
fn one_process_at_a_time_has_one_segment_of_a_name() {
    on_every_store("one", |f| {
        let is_refused = || {
            let again = f.store.create(&f.name(0), BYTES);
            assert!(matches!(again, Err(StoreError::Exists { .. })), "{again:?}");
        };
        let segment = f.store.create(&f.name(0), BYTES).unwrap();
        is_refused();
        let second = f.store.attach(&f.name(0));
        assert!(matches!(second, Err(StoreError::InUse { .. })), "{second:?}");
        drop(segment);
        is_refused();
        assert!(f.store.attach(&f.name(0)).unwrap().is_some());
    });
}

#[test]
fn segments_of_a_live_process_are_cleaned_by_force_only() {
    on_every_store("live", |f| {
        let mut child = f.child("stay");
        wait_for("the child's segment", || f.listed().iter().any(|info| info.is_ready));
        let info = &f.listed()[0];
        assert_eq!((info.in_use, info.creator), (true, Liveness::Alive));
        let (cleaned, text) = f.clean(false);
        assert_eq!(cleaned, Cleaned { kept: 1, ..Default::default() }, "{text}");
        assert!(text.contains("its processes are running"), "{text}");
        let (cleaned, text) = f.clean(true);
        assert_eq!((cleaned.removed, cleaned.removed_bytes), (1, BYTES as u64), "{text}");
        assert_eq!(f.listed(), []);
        child.kill().unwrap();
        child.wait().unwrap();
    });
}

#[test]
fn a_detached_segment_of_a_live_creator_is_kept() {
    on_every_store("detached", |f| {
        drop(f.store.create(&f.name(0), BYTES).unwrap());
        let (cleaned, text) = f.clean(false);
        assert_eq!((cleaned.removed, cleaned.kept), (0, 1), "{text}");
        assert!(text.contains("its processes are running"), "{text}");
    });
}

#[test]
fn stale_segments_are_listed_and_cleaned() {
    on_every_store("stale", |f| {
        f.child("die").wait().unwrap();
        let mut text = Vec::new();
        store::list(&*f.store, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let line = text.lines().find(|line| line.contains(&f.run)).unwrap();
        for word in [" 1 ", "waiting"] {
            assert!(line.contains(word), "{line}");
        }
        // Without the name of a run, `clean` removes nothing that a run can continue from.
        let mut text = Vec::new();
        store::clean(&*f.store, &CleanOptions::default(), &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let line = text.lines().find(|line| line.contains(&f.run)).unwrap();
        assert!(line.starts_with("kept ") && line.contains("it can continue from them"), "{line}");
        let (cleaned, text) = f.clean(false);
        let expected = Cleaned { removed: 1, removed_bytes: BYTES as u64, kept: 0 };
        assert_eq!(cleaned, expected, "{text}");
        assert_eq!(f.listed(), []);
    });
}

/// At the end of a run, all ranks of a node remove segments at the same time.
#[test]
fn many_removals_of_a_segment_succeed_once_without_errors() {
    on_every_store("race", |f| {
        for rank in 0..100 {
            let name = f.name(rank);
            drop(f.store.create(&name, BYTES).unwrap());
            let barrier = std::sync::Barrier::new(4);
            let removed: Vec<bool> = std::thread::scope(|scope| {
                let remove = || {
                    barrier.wait();
                    f.store.remove(&name).unwrap()
                };
                let all = [(); 4].map(|()| scope.spawn(remove));
                all.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert!(removed.contains(&true), "{removed:?}");
            assert!(f.store.peek(&name, &mut []).unwrap().is_none());
            assert_eq!(f.listed(), []);
        }
    });
}

#[test]
fn cleaning_one_run_leaves_the_others() {
    on_every_store("others", |f| {
        f.child("die").wait().unwrap();
        let options = CleanOptions { run: Some("another".into()), force: true };
        let cleaned = store::clean(&*f.store, &options, &mut Vec::new()).unwrap();
        assert_eq!(cleaned, Cleaned::default());
        assert_eq!(f.listed().len(), 1);
    });
}

#[test]
fn parts_may_be_touched_from_many_threads() {
    on_every_store("touch", |f| {
        let new = f.store.begin(&f.name(0), 200 << 20).unwrap();
        std::thread::scope(|scope| {
            for part in 0..3 {
                let new = &new;
                scope.spawn(move || new.touch(part, 3).unwrap());
            }
        });
        let segment = new.finish().unwrap();
        assert!(segment.iter().step_by(4096).all(|&byte| byte == 0));
    });
}

#[test]
fn a_size_that_cannot_be_is_refused() {
    on_every_store("size", |f| {
        for bytes in [0, 7, 12, usize::MAX - 7] {
            let refused = f.store.create(&f.name(0), bytes);
            assert!(matches!(refused, Err(StoreError::BadSize { .. })), "{bytes}: {refused:?}");
        }
    });
}

#[test]
fn memory_that_is_not_there_is_refused_at_creation() {
    on_every_store("too-much", |f| {
        let refused = f.store.create(&f.name(0), 1 << 50).unwrap_err();
        let is_typed = matches!(
            refused,
            StoreError::NoMemory { .. } | StoreError::NoSpace { .. } | StoreError::Limit { .. }
        );
        assert!(is_typed, "{refused}");
        assert_eq!(f.listed(), [], "nothing is left of it");
    });
}

#[test]
fn a_huge_page_is_given_or_its_lack_reported() {
    let f = Fixture::new(StoreKind::SysV { huge_pages: true }, "huge", None);
    let segment = f.store.create(&f.name(0), BYTES).unwrap();
    match segment.note() {
        None => assert_eq!(segment.page_bytes(), 2 << 20),
        Some(note) => {
            assert_eq!(segment.page_bytes(), 4096);
            assert!(note.contains("vm.nr_hugepages"), "{note}");
        }
    }
}

#[test]
fn files_are_private_and_damaged_ones_are_replaced() {
    use std::os::unix::fs::PermissionsExt;
    let folder = TempDir::new().unwrap();
    let store = Files::in_folder(folder.path());
    let name = SegmentName::new("run", "state", 0).unwrap();
    let path = folder.path().join(name.to_string());
    let set_mode = |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
    for content in [&b""[..], &[0; 100], &[0x53; 10_000]] {
        // After a crash of the machine: incomplete, and its creator is no more.
        std::fs::write(&path, content).unwrap();
        set_mode(0o600);
        assert!(store.attach(&name).unwrap().is_none());
        let listed = store.list().unwrap();
        assert_eq!((listed[0].is_ready, listed[0].creator), (false, Liveness::Dead));
        drop(store.create(&name, 8).unwrap());
        assert!(store.list().unwrap()[0].is_ready);
        assert!(store.remove(&name).unwrap());
    }
    // Files without the name of a segment are left alone.
    let other = folder.path().join("skt-hpl-notes");
    std::fs::write(&other, "keep").unwrap();
    drop(store.create(&name, 8).unwrap());
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    // A copy under another name is not that segment.
    let copy = SegmentName::new("run", "state", 1).unwrap();
    std::fs::copy(&path, folder.path().join(copy.to_string())).unwrap();
    assert!(store.attach(&copy).unwrap().is_none());
    assert!(store.remove_dead(&copy).unwrap() && !store.remove_dead(&name).unwrap());
    // What others may use is refused by name, and so is what is no file.
    let is_refused = |why: &str| {
        let refused = [
            store.attach(&name).map(|_| ()),
            store.peek(&name, &mut []).map(|_| ()),
            store.create(&name, 8).map(|_| ()),
            store.remove(&name).map(|_| ()),
        ];
        for refused in refused {
            let text = refused.unwrap_err().to_string();
            assert!(text.contains(&format!("{}", path.display())) && text.contains(why), "{text}");
        }
        assert_eq!(store.list().unwrap(), [], "{why}");
    };
    for (mode, why) in [(0o620, "mode is 620"), (0o666, "mode is 666"), (0, "mode is 000")] {
        set_mode(mode);
        is_refused(why);
    }
    set_mode(0o600);
    assert!(store.attach(&name).unwrap().is_some());
    // A file that was cut short is not taken.
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(4100).unwrap();
    assert!(store.attach(&name).unwrap().is_none());
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(&other, &path).unwrap();
    is_refused("no regular file");
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    is_refused("no regular file");
    assert_eq!(std::fs::read(other).unwrap(), b"keep");
}

/// A process that has made or found the segment of a name has it alone, also if it is removed at
/// the same instant, as when its holder gives up a lock.
#[test]
fn a_segment_taken_and_removed_by_many_has_one_owner() {
    on_every_store("holders", |f| {
        let (name, holders, taken) = (f.name(0), AtomicU32::new(0), AtomicU32::new(0));
        let begun = Instant::now();
        let goes_on = || taken.load(Ordering::SeqCst) < 1000 && begun.elapsed() < HANG;
        let take = || match f.store.attach(&name) {
            Ok(None) => f.store.create(&name, 8).map(Some),
            found => found,
        };
        std::thread::scope(|scope| {
            // Another thread removes segments that no process uses.
            scope.spawn(|| {
                while goes_on() {
                    f.store.remove_unused(&name).unwrap();
                    std::thread::sleep(Duration::from_micros(300));
                }
            });
            for thread in 0..4 {
                let (take, holders, taken) = (&take, &holders, &taken);
                scope.spawn(move || {
                    while goes_on() {
                        match take() {
                            Ok(Some(held)) => {
                                let others = holders.fetch_add(1, Ordering::SeqCst);
                                assert_eq!(others, 0, "two have it");
                                taken.fetch_add(1, Ordering::SeqCst);
                                std::thread::yield_now();
                                holders.fetch_sub(1, Ordering::SeqCst);
                                // Some threads drop the segment without removing it, so that it
                                // stays for the next.
                                if taken.load(Ordering::SeqCst) % 3 != 0 {
                                    held.remove().unwrap();
                                }
                                drop(held);
                            }
                            Ok(None)
                            | Err(StoreError::InUse { .. } | StoreError::Exists { .. }) => {
                                std::thread::sleep(Duration::from_micros(50 * thread));
                            }
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
        });
        assert!(begun.elapsed() < HANG, "{taken:?}");
        f.store.remove(&name).unwrap();
    });
}

/// Two creations of one name that begin at the same time: there is one place for both, and the one
/// that has written its first page wins.
#[test]
fn a_creation_that_others_overtake_has_its_segment_alone() {
    on_every_store("overtaken", |f| {
        let name = SegmentName::new(&f.run, "lock", 0).unwrap();
        let other = RefCell::new(None);
        let at = |stage: Stage| match stage {
            Stage::Made => {
                let lock = RunLock::take(&*f.store, &f.run, "here", 0, &Plain).unwrap().unwrap();
                other.replace(Some(lock));
            }
            Stage::Named | Stage::Reserving(_) | Stage::Reserved => {}
        };
        let is_refused = |second: Result<_, _>| {
            assert!(matches!(second, Err(StoreError::Exists { .. })), "two have it: {second:?}");
        };
        is_refused(f.store.begin_at(&name, 8, &at).and_then(|new| new.finish()));
        is_refused(f.store.create(&name, 8));
        drop(other.take());
        drop(f.store.create(&name, 8).unwrap());
        assert!(f.store.attach(&name).unwrap().is_some());
        assert!(f.store.remove(&name).unwrap());
    });
}

#[test]
fn a_creation_loses_a_segment_removed_by_force() {
    on_every_store("robbed", |f| {
        let at = |stage: Stage| {
            if stage == Stage::Named {
                assert!(f.store.remove(&f.name(0)).unwrap());
            }
        };
        let refused = f.store.begin_at(&f.name(0), 8, &at).unwrap_err().to_string();
        assert!(refused.contains("removed by another process"), "{refused}");
        assert_eq!(f.listed(), []);
    });
}

#[test]
fn a_store_is_known_by_its_memory() {
    let (one, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let link = one.path().join("link");
    std::os::unix::fs::symlink(other.path(), &link).unwrap();
    let id = |store: &dyn Store| store.id().unwrap();
    assert_eq!(id(&Files::in_folder(other.path())), id(&Files::in_folder(&link)));
    assert_ne!(id(&Files::in_folder(other.path())), id(&Files::in_folder(one.path())));
    let here = id(&SysV::new(false));
    assert_eq!(id(&SysV::new(true)), here);
    assert_ne!(id(&Files::posix()), here);
    let unshared = std::thread::spawn(|| {
        let granted = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWIPC);
        granted.map(|()| SysV::new(false).id().unwrap())
    });
    match unshared.join().unwrap() {
        Ok(there) => assert_ne!(there, here),
        Err(why) => skipped(format!("no IPC namespace here ({why})")),
    }
}

#[test]
fn a_folder_that_is_not_there_is_an_error() {
    let store = Files::in_folder(std::path::Path::new("/nowhere/at/all"));
    let refused = store.create(&SegmentName::new("run", "state", 0).unwrap(), 8);
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("/nowhere/at/all") && text.contains("must exist"), "{text}");
    assert!(store.list().is_err());
}

#[test]
fn foreign_system_v_segments_are_never_listed() {
    let bytes = 8192;
    // SAFETY: makes a private segment of this test, which is removed below.
    let shmid = unsafe { libc::shmget(libc::IPC_PRIVATE, bytes, libc::IPC_CREAT | 0o600) };
    assert!(shmid >= 0);
    let list = SysV::new(false).list();
    // SAFETY: the id is the one from above.
    unsafe { libc::shmctl(shmid, libc::IPC_RMID, std::ptr::null_mut()) };
    let location = format!("shmid {shmid},");
    assert!(list.unwrap().iter().all(|info| !info.location.starts_with(&location)));
}
