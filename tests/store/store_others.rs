//! Other users plant segments in a store and take names: no run continues from a planted segment,
//! or is stopped by a taken name. Damaged segments of one's own are reported and replaced.
//!
//! The tests need the rights of root, to act as other users; without them each test reports that.
//! System V segments belong to the whole machine, so each test has a separate namespace for them.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::executables;
use crate::skipped::skipped;
use crate::system_v::{clean, only, plant, set_mode, with_bytes};
use nix::sched::{CloneFlags, unshare};
use skt_hpl::cli::store::{self, Lines};
use skt_run::protect::hold::RunLock;
use skt_store::segments::Plain;
use skt_store::store::{Files, Flaw, SegmentName, Store, StoreKind, SysV};
use tempfile::TempDir;

/// A user id that no account has.
const OTHER: u32 = 54_321;
const PAGE_BYTES: usize = 4096;

#[track_caller]
fn can_be_others() -> bool {
    let granted = unshare(CloneFlags::CLONE_NEWIPC).is_ok() && nix::unistd::geteuid().is_root();
    if !granted {
        skipped("needs the rights of root, to be another user");
    }
    granted
}

fn name() -> SegmentName {
    SegmentName::new("others", "lock", 0).unwrap()
}

#[test]
fn a_segment_given_away_by_another_user_is_ignored() {
    if !can_be_others() {
        return;
    }
    let store = SysV::new(false);
    // As another user would forge it: key, size and content of a real segment.
    store.create(&name(), 8192).unwrap().as_mut_slice().fill(7);
    let (key, shmid, ..) = only();
    let forged = with_bytes(shmid, PAGE_BYTES + 8192, |bytes| bytes.to_vec());
    assert!(store.remove(&name()).unwrap());
    plant(OTHER, key, forged.len(), 0o600, &forged);
    assert!(store.attach(&name()).unwrap().is_none());
    assert!(store.view(&name()).unwrap().is_none());
    assert!(store.peek(&name(), &mut [0; 8]).unwrap().is_none());
    assert_eq!(store.list().unwrap(), []);
    // The segment is reported, and stops no run.
    let reported = skt_run::protect::doubtful(&store).unwrap();
    let words = format!("made by user {OTHER} and given to this one");
    assert!(reported.len() == 1 && reported[0].contains(&words), "{reported:?}");
    assert_eq!(store.remove_dead_stubs().unwrap(), []);
    drop(store.create(&name(), 8).unwrap());
    assert_eq!(store.peek(&name(), &mut []).unwrap(), Some(8));
    assert!(store.remove(&name()).unwrap());
    let text = clean(&store, false);
    assert!(text.starts_with("kept ") && text.contains(&words), "{text}");
    assert!(clean(&store, true).starts_with("removed "));
    assert_eq!(store.stubs().unwrap(), []);
}

#[test]
fn a_segment_that_others_may_attach_is_ignored() {
    if !can_be_others() {
        return;
    }
    let store = SysV::new(false);
    for (what, mode) in [("others", 0o666), ("nobody", 0), ("to read", 0o640)] {
        drop(store.create(&name(), 8192).unwrap());
        set_mode(only().1, mode);
        assert!(store.attach(&name()).unwrap().is_none(), "{what}");
        assert_eq!(store.list().unwrap(), [], "{what}");
        let mut list = Vec::new();
        store::list(&store, Lines::Runs, &mut list).unwrap();
        assert!(String::from_utf8(list).unwrap().contains(" damaged "), "{what}");
        let text = clean(&store, false);
        assert!(text.contains(&format!("its mode is {mode:03o}, not 600")), "{text}");
        assert_eq!(store.stubs().unwrap(), [], "{what}");
    }
}

/// Overwrites a byte of the first page of the only segment.
fn damage() {
    with_bytes(only().1, PAGE_BYTES, |bytes| bytes[9] ^= 1);
}

#[test]
fn a_damaged_lock_is_repaired_and_one_in_use_is_held() {
    if !can_be_others() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let lock = |kind: &StoreKind| {
        let store = kind.open();
        drop(RunLock::take(&*store, "others", "here", 0, &Plain).unwrap().unwrap());
    };
    let sysv = StoreKind::SysV { huge_pages: false };
    drop(SysV::new(false).create(&name(), 8).unwrap());
    damage();
    lock(&sysv);
    assert_eq!(SysV::new(false).stubs().unwrap(), []);
    // The holder does not know of the damage, so no other process may take the lock.
    let held = SysV::new(false).create(&name(), 8).unwrap();
    damage();
    assert!(SysV::new(false).create(&name(), 8).is_err());
    assert_eq!(SysV::new(false).remove_dead_stubs().unwrap(), []);
    drop(held);
    assert_eq!(SysV::new(false).remove_dead_stubs().unwrap().len(), 1);

    let files = StoreKind::Files(folder.path().to_owned());
    let path = folder.path().join(name().to_string());
    std::fs::write(&path, "no lock").unwrap();
    lock(&files);
    let held = files.open().create(&name(), 8).unwrap();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(5).unwrap();
    assert!(files.open().create(&name(), 8).is_err());
    assert_eq!(files.open().remove_dead_stubs().unwrap(), []);
    drop(held);
    assert_eq!(files.open().remove_dead_stubs().unwrap().len(), 1);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_name_taken_by_another_user_stops_no_run() {
    if !can_be_others() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let store = Files::in_folder(folder.path());
    let squatted = folder.path().join(name().to_string());
    std::fs::write(&squatted, "mine").unwrap();
    chown(&squatted, Some(OTHER), None).unwrap();
    store.create(&name(), 64).unwrap().as_mut_slice().fill(5);
    assert_eq!(store.attach(&name()).unwrap().unwrap().as_slice(), [5; 64]);
    assert_eq!(store.list().unwrap()[0].name, name());
    assert!(store.create(&name(), 64).is_err(), "it exists");
    let kind = StoreKind::Files(folder.path().to_owned());
    assert!(store.remove(&name()).unwrap());
    let store = kind.open();
    let held = RunLock::take(&*store, "others", "here", 0, &Plain).unwrap().unwrap();
    // The other user gives the name up, so it leads to the existing segment.
    std::fs::remove_file(&squatted).unwrap();
    assert!(matches!(store.create(&name(), 8), Err(skt_store::store::StoreError::Exists { .. })));
    drop(held);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// Not a test: the actions of a user without rights.
#[test]
#[ignore = "runs as another user, as a child of the test below"]
fn child_of_a_plain_user() {
    let Some(folder) = std::env::var_os("STORE_OTHERS_FOLDER") else { return };
    let store = Files::in_folder(Path::new(&folder));
    let path = Path::new(&folder).join(name().to_string());
    assert_eq!(std::fs::metadata(&folder).unwrap().uid(), OTHER);
    // Not even the owner may open it.
    drop(store.create(&name(), 8).unwrap());
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o0)).unwrap();
    let stubs = store.stubs().unwrap();
    assert!(matches!(&stubs[0].flaw, Flaw::Damaged(why) if why.contains("mode is 000")));
    assert_eq!(store.remove_dead_stubs().unwrap().len(), 1);
    std::fs::write(&path, "").unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o0)).unwrap();
    drop(store.create(&name(), 8).unwrap());
    assert!(store.remove(&name()).unwrap());
    // Not even the owner of a System V segment may attach it.
    let store = SysV::new(false);
    drop(store.create(&name(), 8).unwrap());
    set_mode(only().1, 0);
    assert!(store.attach(&name()).unwrap().is_none());
    assert_eq!(store.remove_dead_stubs().unwrap().len(), 1);
    println!("all done");
}

#[test]
fn a_user_removes_segments_that_it_may_not_open() {
    if !can_be_others() {
        return;
    }
    let folder = TempDir::new().unwrap();
    chown(folder.path(), Some(OTHER), None).unwrap();
    // The program may be where that user may not look.
    let program = folder.path().join("program");
    executables::copy_program(&std::env::current_exe().unwrap(), &program);
    let mut child = Command::new(&program);
    child.args(["store_others::child_of_a_plain_user", "--exact", "--ignored", "--nocapture"]);
    child.env("STORE_OTHERS_FOLDER", folder.path()).uid(OTHER).current_dir("/");
    let output = child.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("all done"), "{output:?}");
}
