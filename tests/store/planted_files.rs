//! Files that other users plant where the program writes and reads (links in folders that all may
//! write to, a supervisor's state), and files that a killed supervisor leaves.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, lchown, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command};

use crate::mpirun::mpi_program;
use crate::skipped::skipped;
use serde_json::{Value, json};
use tempfile::TempDir;

const NOBODY: u32 = 65534;

/// Runs our program in `folder`; returns its exit code and its output.
fn run(folder: &Path, args: &str) -> (Option<i32>, String) {
    let out = mpi_program(env!("CARGO_BIN_EXE_skt-hpl"))
        .args(args.split_whitespace())
        .current_dir(folder)
        .output()
        .expect("our program");
    let printed = [out.stdout, out.stderr].concat();
    (out.status.code(), String::from_utf8_lossy(&printed).into_owned())
}

/// A folder that all may write to, as /tmp is, but without the sticky bit, which only restricts
/// others.
fn shared() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    folder
}

/// Whether this process may make files of another user.
#[track_caller]
fn can_plant() -> bool {
    let can = nix::unistd::geteuid().is_root();
    if !can {
        skipped("only root can make files of another user");
    }
    can
}

fn state(folder: &Path) -> Value {
    serde_json::from_slice(&fs::read(folder.join("s/state.json")).unwrap()).unwrap()
}

fn save(folder: &Path, state: &Value) {
    fs::write(folder.join("s/state.json"), state.to_string()).unwrap();
}

/// A launch that gets as far as starting its launcher, which does not exist.
const LAUNCH: &str = "launch --state s --np 1 --launcher openmpi --launcher-program /nonexistent \
                      -- --n 100";

/// A process that poses as the launcher of start `token`, in a separate group.
fn stand_in(token: &str) -> Child {
    let mut command = Command::new("sleep");
    command.arg("1000").env("SKT_HPL_HEARTBEAT", token).process_group(0);
    command.spawn().expect("sleep")
}

/// The process as a state describes it, with the machine taken from `like`.
fn process(child: &Child, like: &Value) -> Value {
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    let start = stat.rsplit_once(") ").unwrap().1.split(' ').nth(19).unwrap().parse::<u64>();
    let (boot, host) = (&like["boot"], &like["host"]);
    json!({ "pid": child.id(), "start_ticks": start.unwrap(), "boot": boot, "host": host })
}

fn end(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn reports_are_not_written_through_links_of_other_users() {
    if !can_plant() {
        return;
    }
    let folder = shared();
    let path = folder.path();
    fs::write(path.join("victim"), "dear").unwrap();
    symlink("victim", path.join("link")).unwrap();
    lchown(path.join("link"), Some(NOBODY), None).unwrap();
    chown(path, Some(1234), None).unwrap();
    for args in [
        "run --n 60 --ft none --out link",
        "run --n 60 --ft none --json link",
        "init --force --out link",
    ] {
        let (code, printed) = run(path, args);
        assert_eq!(code, Some(2), "{args}: {printed}");
        assert!(printed.contains("it belongs to user 65534"), "{args}: {printed}");
        assert_eq!(fs::read_to_string(path.join("victim")).unwrap(), "dear", "{args}");
    }
    // A user's own link is followed.
    fs::remove_file(path.join("link")).unwrap();
    symlink("victim", path.join("link")).unwrap();
    let (code, printed) = run(path, "run --n 60 --ft none --out link --json own.json");
    assert_eq!(code, Some(0), "{printed}");
    assert!(fs::read_to_string(path.join("victim")).unwrap().contains("PASSED"));
    assert!(fs::read_to_string(path.join("own.json")).unwrap().contains("\"finished\": true"));
    let (code, printed) = run(path, "run --n 60 --ft none --out /dev/stdout");
    assert_eq!((code, printed.contains("PASSED")), (Some(0), true), "{printed}");
}

#[test]
fn a_state_that_others_can_write_starts_and_ends_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let (_, printed) = run(path, LAUNCH);
    assert!(printed.contains("cannot start /nonexistent"), "{printed}");
    let mode = |name: &str| fs::metadata(path.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("s"), mode("s/state.json")), (0o700, 0o600));
    // If the state named it, a process of ours would be killed, because it sends no heartbeat.
    let child = stand_in("another");
    let mut planted = state(path);
    planted["launcher"] = process(&child, &planted["supervisor"]);
    save(path, &planted);
    let launch = LAUNCH.replace(" -- ", " --hang-after 100ms -- ");
    let (code, printed) = run(path, &launch);
    assert_eq!(code, Some(2), "{printed}");
    assert!(printed.contains("is none of this run"), "{printed}");
    if can_plant() {
        for name in ["s/state.json", "s"] {
            chown(path.join(name), Some(NOBODY), None).unwrap();
            let (code, printed) = run(path, &launch);
            assert_eq!(code, Some(2), "{printed}");
            assert!(
                printed.contains(&format!("{name}: belongs to user 65534, not to 0")),
                "{printed}"
            );
            chown(path.join(name), Some(0), None).unwrap();
        }
    }
    fs::set_permissions(path.join("s"), fs::Permissions::from_mode(0o777)).unwrap();
    let (code, printed) = run(path, &launch);
    assert_eq!(code, Some(2), "{printed}");
    assert!(printed.contains("others may write to it (mode 777)"), "{printed}");
    assert!(state(path)["launcher"].is_object(), "nothing was changed");
    assert!(fs::exists(format!("/proc/{}/fd", child.id())).unwrap(), "it still runs");
    end(child);
}

#[test]
fn an_unrecorded_start_ends_and_its_number_is_not_reused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    // Killed between the start of a launcher and the saving of its process, as if that start had
    // failed.
    run(path, LAUNCH);
    let before = state(path);
    assert_eq!((&before["start"], &before["launcher"]), (&json!(1), &Value::Null));
    let mut child = stand_in(&format!("{}.1", before["run"].as_str().unwrap()));
    let (_, printed) = run(path, LAUNCH);
    assert!(printed.contains("1 process(es) that an earlier supervisor had started"), "{printed}");
    assert!(!child.wait().unwrap().success());
    assert_eq!(state(path)["start"], 2);
    assert!(path.join("s/start-1.out").exists() && path.join("s/start-2.out").exists());
}
