//! A death between the creation of a segment and the writing of its first page: the remains are
//! recognized as ours and removed by the next search; a segment that only looks similar stays.
//!
//! System V segments belong to the whole machine, so each test here has a separate namespace for
//! them; if the system grants none, it reports that.

use std::os::unix::process::ExitStatusExt;
use std::process::Child;

use crate::mpirun::mpirun;
use crate::skipped::skipped;
use crate::store_segments::{spawn_child, wait_for};
use crate::system_v::{clean, only, plant, remove, table};
use nix::sched::{CloneFlags, unshare};
use skt_hpl::cli::store::{self, Lines};
use skt_store::store::{Files, Liveness, SegmentName, Store, StoreKind, SysV};
use tempfile::TempDir;

const BYTES: usize = 40_000;

/// Gives this thread, and the processes that it starts, an empty table of segments.
#[track_caller]
fn is_alone() -> bool {
    let granted = unshare(CloneFlags::CLONE_NEWIPC);
    if let Err(why) = granted {
        skipped(format!("no IPC namespace here ({why}; needs the right to make one)"));
    }
    granted.is_ok()
}

fn name() -> SegmentName {
    SegmentName::new("stub", "state", 0).unwrap()
}

/// A child that begins to create [`name`], and at the first stage acts as configured.
fn child(kind: &str, mode: &str) -> Child {
    spawn_child(kind, "stub", "state", &format!("{mode} at Made"))
}

/// Has a creation of [`name`] killed at its first instant; returns the child's process id.
fn killed(kind: &str) -> u32 {
    let mut child = child(kind, "die");
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    child.id()
}

#[test]
fn a_segment_of_a_dead_creator_is_found_listed_and_cleaned() {
    if !is_alone() {
        return;
    }
    let store = SysV::new(false);
    let pid = killed("sysv");
    assert_eq!(store.list().unwrap(), [], "it has no name");
    let stubs = store.stubs().unwrap();
    assert_eq!(stubs.len(), 1, "{:?}", table());
    assert_eq!((stubs[0].creator_pid, stubs[0].creator), (pid, Liveness::Dead));
    assert!((BYTES as u64..BYTES as u64 + 12_288).contains(&stubs[0].bytes), "{stubs:?}");
    let list = |lines: Lines| {
        let mut list = Vec::new();
        store::list(&store, lines, &mut list).unwrap();
        String::from_utf8(list).unwrap()
    };
    let segments = list(Lines::Segments);
    assert!(segments.contains(" unnamed ") && segments.contains(&stubs[0].location), "{segments}");
    let runs = list(Lines::Runs);
    let words: Vec<&str> = runs.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(words[..4], ["-", "unnamed", "1", "0.000"], "{runs}");
    let text = clean(&store, false);
    assert!(text.starts_with("removed shmid ") && text.contains("without a name"), "{text}");
    assert_eq!(table(), [""; 0]);
    assert!(!store.remove_stub(&stubs[0]).unwrap(), "it is gone");
}

#[test]
fn the_next_creation_replaces_a_segment_without_a_name() {
    if !is_alone() {
        return;
    }
    killed("sysv");
    let stub = SysV::new(false).stubs().unwrap().remove(0);
    drop(SysV::new(false).create(&name(), 8).unwrap());
    let list = SysV::new(false).list().unwrap();
    let key = |location: &str| location.split_once("key ").unwrap().1.to_owned();
    assert_eq!((list.len(), table().len()), (1, 1));
    assert_eq!(key(&list[0].location), key(&stub.location), "at the same key");
    assert_eq!(SysV::new(false).stubs().unwrap(), []);
    // A segment that has its name is as private as before.
    assert!(table()[0].split_whitespace().nth(2) == Some("600"), "{:?}", table());
}

#[test]
fn the_next_run_removes_a_segment_without_a_name() {
    if !is_alone() {
        return;
    }
    killed("sysv");
    let folder = TempDir::new().unwrap();
    let mut command = mpirun(2);
    command.args(["--bind-to", "none"]).arg(env!("CARGO_BIN_EXE_skt-hpl"));
    command.args("--n 128 --nb 32 --p 1 --q 2 --run-id another --progress off".split(' '));
    let output = command.current_dir(folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(table(), [""; 0]);
}

#[test]
fn a_segment_that_is_being_made_stays() {
    if !is_alone() {
        return;
    }
    let store = SysV::new(false);
    let mut child = child("sysv", "stay");
    wait_for("the child's segment", || !store.stubs().unwrap().is_empty());
    assert_eq!(store.stubs().unwrap()[0].creator, Liveness::Alive);
    assert_eq!(store.remove_dead_stubs().unwrap(), []);
    let text = clean(&store, false);
    assert!(text.contains(&format!("process {} is making it", child.id())), "{text}");
    // The stub does not prevent a new segment of that name, which takes the next key.
    drop(store.create(&name(), 8).unwrap());
    assert_eq!((store.list().unwrap().len(), table().len()), (1, 2));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(store.remove_dead_stubs().unwrap().len(), 1);
    assert_eq!(store.list().unwrap().len(), 1, "the whole one stays");
}

/// Makes a segment as another program of this user may, with something in its first pages.
fn foreign(key: i32, bytes: usize, mode: u16, pages_written: usize) -> i32 {
    let content: Vec<u8> =
        (0..pages_written * 4096).map(|at| if at % 4096 == 0 { 7 } else { 0 }).collect();
    plant(nix::unistd::geteuid().as_raw(), key, bytes, mode, &content)
}

#[test]
fn segments_that_only_look_unfinished_stay() {
    if !is_alone() {
        return;
    }
    // The key and the size of a real segment.
    killed("sysv");
    let (key, shmid, mode, bytes) = only();
    assert_eq!(mode, "611");
    remove(shmid);
    let store = SysV::new(false);
    for (what, key, bytes, mode, pages) in [
        ("another ordinary mode", key, bytes, 0o666, 0),
        ("another size", key, bytes + 8, 0o611, 0),
        ("another key", key + 1, bytes, 0o611, 0),
        ("data", key, bytes, 0o611, 2),
    ] {
        let shmid = foreign(key, bytes, mode, pages);
        assert_eq!(store.remove_dead_stubs().unwrap(), [], "{what}");
        let text = clean(&store, true);
        assert_eq!(text, "", "{what}");
        // The first key is taken, so our segment is made at the next.
        drop(store.create(&name(), 8).unwrap());
        assert!(store.remove(&name()).unwrap());
        let left: Vec<String> = table();
        assert!(left.len() == 1 && left[0].contains(&format!(" {shmid} ")), "{what}: {left:?}");
        remove(shmid);
    }
    // A segment of ours whose first page was overwritten looks the same: only the user knows.
    let shmid = foreign(key, bytes, 0o600, 0);
    assert_eq!(store.remove_dead_stubs().unwrap(), []);
    let text = clean(&store, false);
    assert!(text.contains("only its size looks like ours (--force"), "{text}");
    drop(store.create(&name(), 8).unwrap());
    assert!(store.remove(&name()).unwrap());
    assert!(table().len() == 1 && table()[0].contains(&format!(" {shmid} ")), "{:?}", table());
    assert!(clean(&store, true).starts_with("removed "));
    assert_eq!(table(), [""; 0]);
    // The first page is written in part: a death while it was being written.
    foreign(key, bytes, 0o611, 1);
    assert_eq!(store.remove_dead_stubs().unwrap().len(), 1);
}

#[test]
fn files_have_no_name_before_they_have_an_owner() {
    let folder = TempDir::new().unwrap();
    for kind in [format!("file:{}", folder.path().display()), "posix".to_owned()] {
        let pid = killed(&kind);
        let store = kind.parse::<StoreKind>().unwrap().open();
        let stubs = store.stubs().unwrap();
        // If the file system does not support files without a name, there is one.
        assert!(stubs.iter().filter(|stub| stub.creator_pid == pid).count() == 0, "{stubs:?}");
        assert!(store.list().unwrap().iter().all(|info| info.name != name()));
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    assert!(Files::in_folder(folder.path()).create(&name(), 8).is_ok());
}
