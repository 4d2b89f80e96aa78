//! `skt-hpl store`, the built program, on the segments of a killed run.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use crate::mpirun::mpirun;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
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
        self.command(run, "256", "off").args(flags).output().unwrap()
    }

    /// A run of this order, with progress shown so.
    fn command(&self, run: &str, n: &str, progress: &str) -> Command {
        self.command_by(&[], run, n, progress)
    }

    /// The same, its ranks started by a command in front of theirs.
    fn command_by(&self, starter: &[&str], run: &str, n: &str, progress: &str) -> Command {
        let mut command = mpirun(2);
        command.args(["--bind-to", "none"]).args(starter).arg(env!("CARGO_BIN_EXE_skt-hpl"));
        command.args("--nb 32 --p 1 --q 2 --checkpoint-every 1p --run-id".split(' '));
        command.args([run, "--store", &self.store(), "--n", n, "--progress", progress]);
        command.current_dir(self.path());
        command
    }

    /// Standard output of `store`, which must succeed.
    fn store_command(&self, args: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_skt-hpl"));
        let output = command.arg("store").args(args).args(["--store", &self.store()]).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

#[test]
fn what_a_killed_run_has_left_is_listed_and_kept_until_the_run_is_named() {
    let killed = Killed::new("left");
    let list = killed.store_command(&["list"]);
    let lines: Vec<&str> = list.lines().skip(1).collect();
    for line in &lines {
        assert!(line.starts_with("left ") && line.contains(" waiting "), "{line}");
    }
    // The matrices; beside them there are small markers.
    assert_eq!(lines.iter().filter(|line| line.contains(" t0.a")).count(), 2, "{list}");
    let all = lines.len();

    let cleaned = killed.store_command(&["clean"]);
    assert!(cleaned.contains("run left can go on from it"), "{cleaned}");
    let summary = format!("0 segment(s) removed, 0.0 MiB; {all} kept\n");
    assert!(cleaned.ends_with(&summary), "{cleaned}");
    let flags = ["store", "clean", "--run", "other", "--force", "--store", &killed.store()];
    let other = Command::new(env!("CARGO_BIN_EXE_skt-hpl")).args(flags).output().unwrap();
    assert_eq!(other.status.code(), Some(2), "{other:?}");
    let other = String::from_utf8_lossy(&other.stderr);
    assert!(other.contains("nothing of run `other` on this host"), "{other}");
    assert_eq!(killed.store_command(&["list"]).lines().count(), 1 + all, "all are still there");

    let named = killed.store_command(&["clean", "--run", "left"]);
    let summary = format!("{all} segment(s) removed");
    assert!(named.contains(&summary) && named.contains("; 0 kept"), "{named}");
    assert_eq!(killed.store_command(&["list"]), "no segments\n");
}

#[test]
fn the_run_goes_on_after_a_careful_clean_and_leaves_nothing() {
    let killed = Killed::new("goes-on");
    killed.store_command(&["clean"]);
    let output = killed.benchmark("goes-on", &["--resume", "require"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report = String::from_utf8(output.stdout).unwrap();
    assert!(report.contains("# restart: from checkpoint"), "{report}");
    assert_eq!(killed.store_command(&["list"]), "no segments\n");
}

/// Starts a long run, sends `signal` to what `whom` makes of mpirun's pid as soon as
/// rank 0 factors; how mpirun ended, and what the ranks and it said on standard error.
fn signalled(run: &str, signal: Signal, whom: fn(i32) -> i32) -> (Killed, ExitStatus, String) {
    let killed = Killed { folder: TempDir::new().unwrap() };
    // The mpirun of Open MPI 5 does not pass on what ranks say while it ends.
    let own_file = ["sh", "-c", "exec \"$0\" \"$@\" 2>> said"];
    let mut command = killed.command_by(&own_file, run, "8000", "plain");
    // In a group of its own, as a shell starts it.
    command.process_group(0).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut job = command.spawn().unwrap();
    let said = || std::fs::read_to_string(killed.path().join("said")).unwrap_or_default();
    while !said().contains("factoring") {
        assert_eq!(job.try_wait().unwrap(), None, "{}", said());
        std::thread::sleep(Duration::from_millis(5));
    }
    let ranks = children(job.id() as i32);
    kill(Pid::from_raw(whom(job.id() as i32)), signal).unwrap();
    let ended = job.wait_with_output().unwrap();
    // mpirun may return before the last of its ranks is gone, which may still have to speak.
    let (start, is_there) = (Instant::now(), |pid: &String| {
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        // Z: it is gone, and nobody has waited for it yet.
        state.is_ok_and(|state| !state.rsplit(") ").next().unwrap().starts_with('Z'))
    });
    while ranks.iter().any(is_there) {
        assert!(start.elapsed().as_secs() < 60, "ranks {ranks:?} outlive mpirun: {}", said());
        std::thread::sleep(Duration::from_millis(5));
    }
    let said = said() + &String::from_utf8(ended.stderr).unwrap();
    (killed, ended.status, said)
}

/// The processes of ranks below mpirun.
fn children(mpirun: i32) -> Vec<String> {
    let children = format!("/proc/{mpirun}/task/{mpirun}/children");
    let children = std::fs::read_to_string(children).unwrap();
    children.split_whitespace().map(str::to_owned).collect()
}

/// That of rank 0.
fn rank_0(mpirun: i32) -> i32 {
    let is_0 = |pid: &String| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
        environment.split(|byte| *byte == 0).any(|entry| entry == b"OMPI_COMM_WORLD_RANK=0")
    };
    children(mpirun).into_iter().find(is_0).unwrap().parse().unwrap()
}

#[test]
fn ctrl_c_says_once_what_stays_and_how_to_remove_it() {
    let (killed, status, said) = signalled("ctrl-c", Signal::SIGINT, |mpirun| mpirun);
    assert!(!status.success());
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("ended by a signal")).collect();
    assert_eq!(lines.len(), 1, "{said}");
    let clean = format!("`skt-hpl store clean --run ctrl-c --store {}`", killed.store());
    assert!(lines[0].contains("Run ctrl-c keeps up to") && lines[0].contains(&clean), "{said}");
    let cleaned = killed.store_command(&["clean", "--run", "ctrl-c"]);
    assert!(cleaned.ends_with("; 0 kept\n"), "{cleaned}");
}

#[test]
fn a_signalled_rank_still_dies_by_the_signal() {
    let (_killed, status, said) = signalled("term", Signal::SIGTERM, rank_0);
    assert_eq!(status.code(), Some(128 + 15), "{said}");
    // Open MPI 5 breaks its lines elsewhere.
    let words: Vec<&str> = said.split_whitespace().collect();
    assert!(words.join(" ").contains("exited on signal 15"), "{said}");
    assert_eq!(said.matches("ended by a signal").count(), 1, "{said}");
}

#[test]
fn what_others_keep_is_named_where_memory_lacks() {
    let killed = Killed::new("lies-about");
    let refused = killed.command("large", "4000000", "off").output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("does not fit") && said.contains("(lies-about)"), "{said}");
    let clean = format!("`skt-hpl store clean --run lies-about --store {}`", killed.store());
    assert!(said.contains(&clean), "{said}");
    // It is named neither to its own run, which has it already, nor once it is gone.
    let own = killed.command("lies-about", "4000000", "off").output().unwrap();
    assert!(!String::from_utf8(own.stderr).unwrap().contains("of shared memory"));
    killed.store_command(&["clean", "--run", "lies-about"]);
    let refused = killed.command("large", "4000000", "off").output().unwrap();
    assert!(!String::from_utf8(refused.stderr).unwrap().contains("of shared memory"));
}

#[test]
fn force_removes_everything() {
    let killed = Killed::new("forced");
    let cleaned = killed.store_command(&["clean", "--force"]);
    assert!(cleaned.ends_with("; 0 kept\n") && cleaned.contains("-t0.a"), "{cleaned}");
    assert_eq!(killed.store_command(&["list"]), "no segments\n");
}

#[test]
fn an_unknown_store_is_named_with_what_is_legal() {
    for name in ["store", "shm"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_skt-hpl"));
        let output = command.args([name, "list", "--store", "tape"]).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let error = String::from_utf8(output.stderr).unwrap();
        let legal = "sysv, sysv-huge, posix, file:FOLDER";
        assert_eq!(error, format!("error: --store: `tape` is not understood; legal: {legal}\n"));
    }
}
