//! Scripts that run for long, with stand-ins for what they start: an interrupt leaves no process
//! and no folder, and a soak in which nothing ran has not passed.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::executables;

/// What takes longer is not waited for, however busy this machine is.
const HANG: Duration = Duration::from_secs(600);

/// A folder for programs, which come first in PATH, and for all temporary files.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(TempDir::new().unwrap());
        fs::create_dir(place.at("tmp")).unwrap();
        place
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn with(self, program: &str, body: &str) -> Self {
        executables::write_script(&self.at(program), &format!("#!/bin/sh\n{body}\n"));
        self
    }

    fn script(&self, words: &str) -> Command {
        let mut words = words.split(' ');
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts");
        let mut command = Command::new(scripts.join(words.next().unwrap()));
        command
            .args(words.map(|word| word.replace("HERE", self.0.path().to_str().unwrap())))
            .env("PATH", format!("{}:{}", self.0.path().display(), std::env::var("PATH").unwrap()))
            .env("HERE", self.0.path())
            .env("TMPDIR", self.at("tmp"))
            .env("SKT_HPL_PROGRAM", self.at("ours"));
        command
    }

    /// The processes that have the folder in their environment.
    fn processes(&self) -> Vec<String> {
        let here = format!("HERE={}", self.0.path().display()).into_bytes();
        let is_here = |pid: &String| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|&byte| byte == 0).any(|entry| entry == here)
        };
        let entries = fs::read_dir("/proc").unwrap().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).filter(is_here).collect()
    }
}

#[test]
fn an_interrupted_script_leaves_no_process_and_no_folder() {
    for words in [
        "soak-slow-ranks 1 1x2-1.3-later",
        "soak-slow-ranks 1 1x2-busy",
        "table3 --methods none --budget-mib 1 --ours HERE/ours --store HERE/tmp",
        "table3 --methods none --budget-mib 1 --ours HERE/ours --store HERE/tmp --lock HERE/lock",
        "compare-clients --skt HERE --scratch HERE/tmp --only skt_alloc --runs 0",
    ] {
        let place = Place::new()
            .with("mpicc", "exit 0")
            .with("ours", "exit 0")
            .with("mpirun", "echo half a line of a report; : > \"$HERE/started\"; exec sleep 600");
        let script = place.script(words).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut script = script.unwrap();
        while !place.at("started").exists() {
            assert_eq!(script.try_wait().unwrap(), None, "{words}");
            sleep(Duration::from_millis(10));
        }
        kill(Pid::from_raw(script.id() as i32), Signal::SIGTERM).unwrap();
        let ended = script.wait().unwrap();
        let is_by_signal = ended.code() == Some(143) || ended.signal() == Some(15);
        assert!(is_by_signal, "{words}: {ended}");
        // A short sleep of a shell that was ended may last a moment longer.
        let begun = Instant::now();
        while begun.elapsed() < HANG && !place.processes().is_empty() {
            sleep(Duration::from_millis(10));
        }
        let left = place.processes();
        for pid in &left {
            let _ = kill(Pid::from_raw(pid.parse().unwrap()), Signal::SIGKILL);
        }
        assert!(left.is_empty(), "{words}");
        let files: Vec<_> = fs::read_dir(place.at("tmp")).unwrap().flatten().collect();
        assert!(files.is_empty(), "{words}: {files:?}");
    }
}

/// A signal may come when a process is started whose number is not stored yet.
#[test]
fn a_script_that_is_ended_as_it_starts_a_process_leaves_none() {
    for what in ["undisturbed", "1.3-later", "busy"] {
        let place = Place::new().with("ours", "exit 0").with("mpirun", "exec sleep 600");
        let at_start = "set -T; trap 'case $BASH_COMMAND in *\\$!*) kill -TERM $$ ;; esac' DEBUG\n";
        fs::write(place.at("before"), at_start).unwrap();
        let mut script = place
            .script(&format!("soak-slow-ranks 1 1x2-{what}"))
            .env("BASH_ENV", place.at("before"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        while begun.elapsed() < HANG && script.try_wait().unwrap().is_none() {
            sleep(Duration::from_millis(10));
        }
        let ended = script.try_wait().unwrap();
        for pid in place.processes() {
            let _ = kill(Pid::from_raw(pid.parse().unwrap()), Signal::SIGKILL);
        }
        let ended = ended.unwrap_or_else(|| panic!("{what}: the script hangs"));
        assert!(ended.code() == Some(143) || ended.signal() == Some(15), "{what}: {ended}");
    }
}

/// A test binary that aborts names no test that failed, and a test that is skipped counts as
/// passed.
#[test]
fn a_soak_passes_if_tests_ran_and_all_passed() {
    for (says, code, passes) in [
        ("test a ... ok", 0, true),
        ("test a ... ok", 101, false),
        ("", 101, false),
        ("", 0, false),
        ("test a ... FAILED", 101, false),
        ("test a ... ok\nskipped: no namespaces here", 0, false),
    ] {
        let body = format!("case $* in *--no-run*) ;; *) echo '{says}'; exit {code} ;; esac");
        let place = Place::new().with("cargo", &body);
        for words in ["soak-node-loss 2", "soak-screen 2"] {
            let ended = place.script(words).output().unwrap();
            let printed = String::from_utf8_lossy(&ended.stdout);
            assert_eq!(ended.status.success(), passes, "{words} {says:?} {code}: {printed}");
        }
    }
}
