//! `skt-hpl shm`, the built program: on what a killed run has left.

use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

/// Two ranks of a run that one of them ends at column 96, with segments in a
/// folder of the test.
struct Killed {
    folder: TempDir,
}

impl Killed {
    fn new(run: &str) -> Self {
        let killed = Self { folder: TempDir::new().unwrap() };
        let output = killed.benchmark(run, &["--inject", "1@column:96"]);
        assert_ne!(output.status.code(), Some(0), "{output:?}");
        killed
    }

    fn store(&self) -> String {
        format!("file:{}", self.path().display())
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn benchmark(&self, run: &str, flags: &[&str]) -> Output {
        let mut command = Command::new("mpirun");
        command.args(["--oversubscribe", "--bind-to", "none", "-np", "2"]);
        command.arg(env!("CARGO_BIN_EXE_skt-hpl"));
        command.args("--n 256 --nb 32 --p 1 --q 2 --checkpoint-every 1p --run-id".split(' '));
        command.args([run, "--store", &self.store(), "--progress", "off"]).args(flags);
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        command.current_dir(self.path()).output().unwrap()
    }

    /// Standard output of `shm`, which must succeed.
    fn shm(&self, args: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_skt-hpl"));
        let output = command.arg("shm").args(args).args(["--store", &self.store()]).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

#[test]
fn what_a_killed_run_has_left_is_listed_and_kept_until_the_run_is_named() {
    let killed = Killed::new("left");
    let list = killed.shm(&["list"]);
    let lines: Vec<&str> = list.lines().skip(1).collect();
    for line in &lines {
        assert!(line.starts_with("left ") && line.contains(" waiting "), "{line}");
    }
    // The matrices; beside them there are small markers.
    assert_eq!(lines.iter().filter(|line| line.contains(" t0.a")).count(), 2, "{list}");
    let all = lines.len();

    let cleaned = killed.shm(&["clean"]);
    assert!(cleaned.contains("run left can go on from it"), "{cleaned}");
    let summary = format!("0 segment(s) removed, 0.0 MiB; {all} kept\n");
    assert!(cleaned.ends_with(&summary), "{cleaned}");
    let other = killed.shm(&["clean", "--run", "other", "--force"]);
    assert_eq!(other, "0 segment(s) removed, 0.0 MiB; 0 kept\n");
    assert_eq!(killed.shm(&["list"]).lines().count(), 1 + all, "all are still there");

    let named = killed.shm(&["clean", "--run", "left"]);
    let summary = format!("{all} segment(s) removed");
    assert!(named.contains(&summary) && named.contains("; 0 kept"), "{named}");
    assert_eq!(killed.shm(&["list"]), "no segments\n");
}

#[test]
fn the_run_goes_on_after_a_careful_clean_and_leaves_nothing() {
    let killed = Killed::new("goes-on");
    killed.shm(&["clean"]);
    let output = killed.benchmark("goes-on", &["--resume", "require"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report = String::from_utf8(output.stdout).unwrap();
    assert!(report.contains("# restart: from checkpoint"), "{report}");
    assert_eq!(killed.shm(&["list"]), "no segments\n");
}

#[test]
fn force_removes_everything() {
    let killed = Killed::new("forced");
    let cleaned = killed.shm(&["clean", "--force"]);
    assert!(cleaned.ends_with("; 0 kept\n") && cleaned.contains("-t0.a"), "{cleaned}");
    assert_eq!(killed.shm(&["list"]), "no segments\n");
}

#[test]
fn an_unknown_store_is_named_with_what_is_legal() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_skt-hpl"));
    let output = command.args(["shm", "list", "--store", "tape"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).unwrap();
    let legal = "sysv, sysv-huge, posix, file:FOLDER";
    assert_eq!(error, format!("error: --store: `tape` is not understood; legal: {legal}\n"));
}
