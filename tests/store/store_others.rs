//! Other users plant segments in a store and take names: no run reads a planted segment, and a taken
//! name is refused with its owner. What a death before the first page leaves is replaced.
//!
//! The tests need the rights of root, to act as other users; without them each test reports that.
//! System V segments belong to the whole machine, so each test has a separate namespace for them.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::Command;

use crate::executables;
use crate::skipped::skipped;
use crate::store_segments::spawn_child;
use crate::system_v::{only, plant, set_mode, table, with_bytes};
use nix::sched::{CloneFlags, unshare};
use skt_run::protect::hold::RunLock;
use skt_store::segments::Plain;
use skt_store::store::{Files, SegmentName, Store, StoreError, StoreKind, SysV};
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

/// All that a store can do with [`name`] is refused, with a text that begins and ends so.
fn is_refused(store: &(dyn Store + Send + Sync), begin: &str, why: &str) {
    let refused = [
        store.attach(&name()).map(|_| ()),
        store.peek(&name(), &mut []).map(|_| ()),
        store.create(&name(), 64).map(|_| ()),
        store.remove(&name()).map(|_| ()),
        store.remove_unused(&name()).map(|_| ()),
        RunLock::take(store, "others", "here", 0, &Plain).map(|_| ()),
    ];
    for refused in refused {
        let text = refused.unwrap_err().to_string();
        assert!(text.starts_with(&format!("{begin} is not used: {why}")), "{text}");
    }
    assert_eq!(store.list().unwrap(), [], "{why}");
}

#[test]
fn system_v_segments_of_other_users_or_rights_are_never_read() {
    if !can_be_others() {
        return;
    }
    let store = SysV::new(false);
    // As another user would forge it: key, size and content of a real segment.
    store.create(&name(), 8192).unwrap().as_mut_slice().fill(7);
    let (key, shmid, ..) = only();
    let forged = with_bytes(shmid, PAGE_BYTES + 8192, |bytes| bytes.to_vec());
    assert!(store.remove(&name()).unwrap());
    let shmid = plant(OTHER, key, forged.len(), 0o600, &forged);
    let is_refused = |shmid: i32, why: &str| {
        let (before, at) = (table(), format!("{} at shmid {shmid}, key {key:#010x}", name()));
        is_refused(&store, &at, why);
        assert_eq!(table(), before, "{why}: not attached, changed or removed");
        crate::system_v::remove(shmid);
    };
    // Made by another user and given away.
    is_refused(shmid, &format!("it belongs to user {OTHER}"));
    for (mode, why) in [(0o666, "666, not 600"), (0, "000, not 600"), (0o640, "640, not 600")] {
        drop(store.create(&name(), 8192).unwrap());
        let shmid = only().1;
        set_mode(shmid, mode);
        is_refused(shmid, &format!("its mode is {why}"));
    }
}

/// A System V segment without a first page is not listed, as its name is not known.
#[test]
fn a_creation_killed_before_its_first_page_is_replaced() {
    if !can_be_others() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let file = format!("file:{}", folder.path().display());
    for kind in ["sysv", &file] {
        let mut child = spawn_child(kind, "others", "lock", "die at Made");
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
        let store = kind.parse::<StoreKind>().unwrap().open();
        assert!(store.attach(&name()).unwrap().is_none());
        assert!(store.peek(&name(), &mut []).unwrap().is_none());
        let listed = store.list().unwrap();
        assert_eq!(listed.iter().map(|it| it.is_ready).next(), (kind != "sysv").then_some(false));
        drop(store.create(&name(), 8).unwrap());
        assert!(store.list().unwrap()[0].is_ready);
        assert!(store.remove(&name()).unwrap());
    }
    assert_eq!(table(), [""; 0]);
}

/// Overwrites the first page of a lock while a process holds it and after: only then is it replaced.
#[test]
fn a_damaged_lock_is_replaced_and_one_in_use_is_held() {
    let folder = TempDir::new().unwrap();
    let store = StoreKind::Files(folder.path().to_owned()).open();
    let path = folder.path().join(name().to_string());
    let held = store.create(&name(), 8).unwrap();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(5).unwrap();
    assert!(matches!(store.create(&name(), 8), Err(StoreError::Exists { .. })));
    assert!(!store.remove_dead(&name()).unwrap() && !store.remove_unused(&name()).unwrap());
    drop(held);
    drop(RunLock::take(&*store, "others", "here", 0, &Plain).unwrap().unwrap());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_name_taken_by_another_user_is_refused_with_its_owner() {
    if !can_be_others() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let store = StoreKind::Files(folder.path().to_owned()).open();
    let path = folder.path().join(name().to_string());
    // As another user would forge it: the content of a real segment.
    drop(store.create(&name(), 64).unwrap());
    chown(&path, Some(OTHER), None).unwrap();
    let forged = std::fs::read(&path).unwrap();
    let at = path.display().to_string();
    is_refused(&*store, &at, &format!("it belongs to user {OTHER}"));
    assert_eq!(std::fs::read(&path).unwrap(), forged);
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
    let refused = store.attach(&name()).unwrap_err().to_string();
    assert!(refused.contains("its mode is 000, not 600"), "{refused}");
    std::fs::remove_file(&path).unwrap();
    // No link is followed.
    std::os::unix::fs::symlink("/etc/hostname", &path).unwrap();
    assert!(matches!(store.attach(&name()), Err(StoreError::Foreign { .. })));
    // Not even the owner of a System V segment may attach it.
    let store = SysV::new(false);
    drop(store.create(&name(), 8).unwrap());
    set_mode(only().1, 0);
    assert!(matches!(store.attach(&name()), Err(StoreError::Foreign { .. })));
    crate::system_v::remove(only().1);
    println!("all done");
}

#[test]
fn a_user_reads_no_segment_that_it_may_not_open() {
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
