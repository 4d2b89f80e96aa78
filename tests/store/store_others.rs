//! Other users plant segments in a store and take names: no run continues from a planted segment,
//! or is stopped by a taken name. Damaged segments of one's own are reported and replaced.
//!
//! The tests need the rights of root, to act as other users; without them each test reports that.
//! System V segments belong to the whole machine, so each test has a separate namespace for them.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::ptr;

use crate::executables;
use crate::skipped::skipped;
use nix::sched::{CloneFlags, unshare};
use skt_checkpoint::checkpoint::segments::Plain;
use skt_checkpoint::checkpoint::store::{Files, Flaw, SegmentName, Store, StoreKind, SysV};
use skt_hpl::cli::store::{self, CleanOptions, Lines};
use skt_run::protect::hold::RunLock;
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

fn clean(store: &dyn Store, force: bool) -> String {
    let mut text = Vec::new();
    store::clean(store, &CleanOptions { run: None, force }, Lines::Runs, &mut text).unwrap();
    String::from_utf8(text).unwrap()
}

/// Number and key of the only segment.
fn only() -> (i32, i32) {
    let table = std::fs::read_to_string("/proc/sysvipc/shm").unwrap();
    let rows: Vec<&str> = table.lines().skip(1).collect();
    let [row] = rows[..] else { panic!("{rows:?}") };
    let mut fields = row.split_whitespace().map(|field| field.parse().unwrap());
    let key = fields.next().unwrap();
    (fields.next().unwrap(), key)
}

/// All bytes of a segment.
fn bytes_of(shmid: i32, bytes: usize) -> Vec<u8> {
    // SAFETY: the segment is mapped, read within its size, then detached.
    unsafe {
        let base = libc::shmat(shmid, ptr::null(), libc::SHM_RDONLY);
        assert_ne!(base as isize, -1);
        let copy = std::slice::from_raw_parts(base.cast::<u8>(), bytes).to_vec();
        libc::shmdt(base);
        copy
    }
}

fn set(shmid: i32, change: impl Fn(&mut libc::shmid_ds)) {
    // SAFETY: the system fills in and reads plain numbers.
    unsafe {
        let mut stat: libc::shmid_ds = std::mem::zeroed();
        assert_eq!(libc::shmctl(shmid, libc::IPC_STAT, &raw mut stat), 0);
        change(&mut stat);
        assert_eq!(libc::shmctl(shmid, libc::IPC_SET, &raw mut stat), 0);
    }
}

/// Makes a segment of these bytes as another user, who gives it to this user.
fn plant(key: i32, bytes: &[u8]) {
    let owner = nix::unistd::geteuid().as_raw();
    // SAFETY: system calls; the segment is written to within its size. The child ends at once and
    // calls nothing that is not safe after a fork.
    unsafe {
        match libc::fork() {
            0 => {
                libc::syscall(libc::SYS_setresuid, OTHER, OTHER, OTHER);
                let id = libc::shmget(key, bytes.len(), libc::IPC_CREAT | libc::IPC_EXCL | 0o600);
                let base: *mut u8 = libc::shmat(id, ptr::null(), 0).cast();
                if base as isize == -1 {
                    libc::_exit(1);
                }
                ptr::copy_nonoverlapping(bytes.as_ptr(), base, bytes.len());
                libc::shmdt(base.cast());
                let mut stat: libc::shmid_ds = std::mem::zeroed();
                libc::shmctl(id, libc::IPC_STAT, &raw mut stat);
                stat.shm_perm.uid = owner;
                libc::_exit(libc::shmctl(id, libc::IPC_SET, &raw mut stat))
            }
            child => {
                let mut status = 0;
                assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
                assert_eq!(status, 0);
            }
        }
    }
}

#[test]
fn a_segment_that_another_user_gives_away_is_none() {
    if !can_be_others() {
        return;
    }
    let store = SysV::new(false);
    // As another user would forge it: key, size and content of a real segment.
    store.create(&name(), 8192).unwrap().as_mut_slice().fill(7);
    let (shmid, key) = only();
    let forged = bytes_of(shmid, PAGE_BYTES + 8192);
    assert!(store.remove(&name()).unwrap());
    plant(key, &forged);
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
fn a_segment_that_others_may_attach_is_none() {
    if !can_be_others() {
        return;
    }
    let store = SysV::new(false);
    for (what, mode) in [("others", 0o666), ("nobody", 0), ("to read", 0o640)] {
        drop(store.create(&name(), 8192).unwrap());
        set(only().0, |stat| stat.shm_perm.mode = mode);
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

/// Overwrites the first page of a segment.
fn damage(shmid: i32) {
    // SAFETY: the segment is mapped, written to within its first page, then detached.
    unsafe {
        let base: *mut u8 = libc::shmat(shmid, ptr::null(), 0).cast();
        assert_ne!(base as isize, -1);
        base.add(9).write_volatile(base.add(9).read_volatile() ^ 1);
        libc::shmdt(base.cast());
    }
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
    damage(only().0);
    lock(&sysv);
    assert_eq!(SysV::new(false).stubs().unwrap(), []);
    // The holder does not know of the damage, so no other process may take the lock.
    let held = SysV::new(false).create(&name(), 8).unwrap();
    damage(only().0);
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
fn a_name_that_another_user_has_stops_nobody() {
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
    assert!(matches!(
        store.create(&name(), 8),
        Err(skt_checkpoint::checkpoint::store::StoreError::Exists { .. })
    ));
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
    set(only().0, |stat| stat.shm_perm.mode = 0);
    assert!(store.attach(&name()).unwrap().is_none());
    assert_eq!(store.remove_dead_stubs().unwrap().len(), 1);
    println!("all done");
}

#[test]
fn a_plain_user_gets_rid_of_what_it_may_not_open() {
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
