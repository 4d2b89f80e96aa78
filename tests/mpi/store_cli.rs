//! `skt-hpl store`, as the built program, on the segments of a killed run.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use crate::mpi_job::rank_of;
use crate::mpirun::{as_installed, mpi_program, mpirun};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use skt_host::units;
use skt_store::store::StoreKind;
use tempfile::TempDir;

/// Two ranks of a run that one of them ends at column 96, with segments in a folder of the test.
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

    /// What the ranks of [`at_work`] have written to standard error.
    fn printed(&self) -> String {
        std::fs::read_to_string(self.path().join("said")).unwrap_or_default()
    }

    fn benchmark(&self, run: &str, flags: &[&str]) -> Output {
        self.command(run, "256", "off").args(flags).output().unwrap()
    }

    /// A run of order `n`, with progress shown as given by `progress`.
    fn command(&self, run: &str, n: &str, progress: &str) -> Command {
        self.command_by(&[], run, n, progress)
    }

    /// A run whose ranks are started by the command `starter`.
    fn command_by(&self, starter: &[&str], run: &str, n: &str, progress: &str) -> Command {
        let mut command = mpirun(2);
        // A rank that gets the signal to end reports what stays.
        as_installed(&mut command);
        command.args(["--bind-to", "none"]).args(starter).arg(env!("CARGO_BIN_EXE_skt-hpl"));
        command.args("--nb 32 --p 1 --q 2 --checkpoint-every 1p --run-id".split(' '));
        command.args([run, "--store", &self.store(), "--n", n, "--progress", progress]);
        command.current_dir(self.path());
        command
    }

    /// The standard output of `store`, which must succeed.
    fn store_command(&self, args: &[&str]) -> String {
        let mut command = mpi_program(env!("CARGO_BIN_EXE_skt-hpl"));
        let output = command.arg("store").args(args).args(["--store", &self.store()]).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

#[test]
fn segments_of_a_killed_run_are_kept_until_it_is_named() {
    let killed = Killed::new("left");
    let store = killed.store().parse::<StoreKind>().unwrap().open();
    let segments = store.list().unwrap();
    // The matrices; besides them there are small markers.
    let matrices = segments.iter().filter(|segment| segment.name.role().starts_with("t0.a"));
    assert_eq!(matrices.count(), 2, "{segments:?}");
    let all = segments.len();
    let bytes: u64 = segments.iter().map(|segment| segment.bytes as u64).sum();
    let (gib, sum) = (bytes as f64 / f64::from(1 << 30), units::bytes(bytes));
    // One line of the run, with the sum.
    let list = killed.store_command(&["list"]);
    let [title, line] = list.lines().collect::<Vec<_>>()[..] else { panic!("{list}") };
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(title)[..5], ["RUN", "STATE", "SEGMENTS", "GiB", "AGE"]);
    assert_eq!(words(line)[..4], ["left", "waiting", &all.to_string(), &format!("{gib:.3}")]);

    let cleaned = killed.store_command(&["clean"]);
    let kept = format!(
        "kept {all} segments of run left, {sum}: it can continue from them (--run left or \
         --force removes them nevertheless)\n0 segments removed, 0 B; {all} kept\n"
    );
    assert_eq!(cleaned, kept);
    let flags = ["store", "clean", "--run", "other", "--force", "--store", &killed.store()];
    let other = mpi_program(env!("CARGO_BIN_EXE_skt-hpl")).args(flags).output().unwrap();
    assert_eq!(other.status.code(), Some(2), "{other:?}");
    let other = String::from_utf8_lossy(&other.stderr);
    assert!(other.contains("nothing of run `other` on this host"), "{other}");
    assert_eq!(store.list().unwrap().len(), all, "all are still there");

    let named = killed.store_command(&["clean", "--run", "left"]);
    let removed = format!("removed {all} segments of run left, {sum}\n");
    assert_eq!(named, format!("{removed}{all} segments removed, {sum}; 0 kept\n"));
    assert_eq!(killed.store_command(&["list"]), "no segments\n");
}

#[test]
fn the_run_goes_on_after_a_careful_clean_and_leaves_nothing() {
    let killed = Killed::new("goes-on");
    killed.store_command(&["clean"]);
    let output = killed.benchmark("goes-on", &["--resume", "require"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report = String::from_utf8(output.stdout).unwrap();
    assert!(report.contains("# restart: column"), "{report}");
    assert_eq!(killed.store_command(&["list"]), "no segments\n");
}

#[test]
fn a_refused_first_start_leaves_nothing() {
    let refused = Killed { folder: TempDir::new().unwrap() };
    let output = refused.benchmark("none", &["--resume", "require"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(printed.contains("--resume require"), "{printed}");
    assert_eq!(refused.store_command(&["list"]), "no segments\n");
}

/// Starts a long run, and returns it and its mpirun as soon as rank 0 factors.
fn at_work(run: &str) -> (Killed, Child) {
    let killed = Killed { folder: TempDir::new().unwrap() };
    // The mpirun of Open MPI 5 does not pass on what ranks write while it ends.
    let own_file = ["sh", "-c", "exec \"$0\" \"$@\" 2>> said"];
    let mut command = killed.command_by(&own_file, run, "8000", "plain");
    // In a separate process group, as a shell starts it.
    command.process_group(0).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut job = command.spawn().unwrap();
    while !killed.printed().contains("factoring") {
        assert_eq!(job.try_wait().unwrap(), None, "{}", killed.printed());
        std::thread::sleep(Duration::from_millis(5));
    }
    (killed, job)
}

#[test]
fn a_run_at_work_is_listed_as_running_and_kept() {
    let (killed, job) = at_work("busy");
    let list = killed.store_command(&["list"]);
    let [_, line] = list.lines().collect::<Vec<_>>()[..] else { panic!("{list}") };
    assert_eq!(line.split_whitespace().take(2).collect::<Vec<_>>(), ["busy", "running"], "{list}");
    for flags in [&["clean"][..], &["clean", "--run", "busy"]] {
        let cleaned = killed.store_command(flags);
        let [kept, summary] = cleaned.lines().collect::<Vec<_>>()[..] else { panic!("{cleaned}") };
        let why = ": its processes are running (--force removes them nevertheless)";
        assert!(kept.starts_with("kept ") && kept.contains(" of run busy, "), "{cleaned}");
        assert!(kept.ends_with(why), "{cleaned}");
        assert!(summary.starts_with("0 segments removed, 0 B; "), "{cleaned}");
    }
    let ranks = children(job.id() as i32);
    kill(Pid::from_raw(job.id() as i32), Signal::SIGTERM).unwrap();
    job.wait_with_output().unwrap();
    are_gone(&ranks);
    let list = killed.store_command(&["list"]);
    assert!(list.contains(" waiting "), "{list}");
}

/// Starts a long run, and sends `signal`, as soon as rank 0 factors, to the process that `whom`
/// derives from mpirun's pid. Returns how mpirun ended, and what the ranks and mpirun wrote to
/// standard error.
fn signalled(run: &str, signal: Signal, whom: fn(i32) -> i32) -> (Killed, ExitStatus, String) {
    let (killed, job) = at_work(run);
    let ranks = children(job.id() as i32);
    kill(Pid::from_raw(whom(job.id() as i32)), signal).unwrap();
    let ended = job.wait_with_output().unwrap();
    // mpirun may return before the last of its ranks, which may still have to write, is gone.
    are_gone(&ranks);
    let printed = killed.printed() + &String::from_utf8(ended.stderr).unwrap();
    (killed, ended.status, printed)
}

/// Waits until these processes have ended.
fn are_gone(ranks: &[String]) {
    let (start, is_there) = (Instant::now(), |pid: &String| {
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        // Z: the main thread has ended, and no process has waited for it yet. Locks are held, and
        // memory is torn down, until the last of the other threads has ended, too.
        let is_zombie = |state: String| state.rsplit(") ").next().unwrap().starts_with('Z');
        let threads = || std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
        state.is_ok_and(|state| !is_zombie(state) || threads() > 1)
    });
    while ranks.iter().any(is_there) {
        assert!(start.elapsed().as_secs() < 60, "ranks {ranks:?} outlive mpirun");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The processes of ranks, children of mpirun.
fn children(mpirun: i32) -> Vec<String> {
    let children = format!("/proc/{mpirun}/task/{mpirun}/children");
    let children = std::fs::read_to_string(children).unwrap();
    children.split_whitespace().map(str::to_owned).collect()
}

/// The process of rank 0.
fn rank_0(mpirun: i32) -> i32 {
    let mut pids = children(mpirun).into_iter().map(|pid| pid.parse().unwrap());
    pids.find(|&pid| rank_of(pid as u32) == Some(0)).unwrap()
}

#[test]
fn ctrl_c_reports_once_what_stays_and_how_to_remove_it() {
    let (killed, status, printed) = signalled("ctrl-c", Signal::SIGINT, |mpirun| mpirun);
    assert!(!status.success());
    let lines: Vec<&str> =
        printed.lines().filter(|line| line.contains("ended by a signal")).collect();
    assert_eq!(lines.len(), 1, "{printed}");
    let clean = format!("`skt-hpl store clean --run ctrl-c --store {}`", killed.store());
    assert!(lines[0].contains("Run ctrl-c keeps up to") && lines[0].contains(&clean), "{printed}");
    let cleaned = killed.store_command(&["clean", "--run", "ctrl-c"]);
    assert!(cleaned.ends_with("; 0 kept\n"), "{cleaned}");
}

#[test]
fn a_signalled_rank_still_dies_by_the_signal() {
    for (run, signal) in [
        ("term", Signal::SIGTERM),
        ("usr2", Signal::SIGUSR2),
        ("hup", Signal::SIGHUP),
        ("xcpu", Signal::SIGXCPU),
    ] {
        let (_killed, status, printed) = signalled(run, signal, rank_0);
        let number = signal as i32;
        assert_eq!(status.code(), Some(128 + number), "{printed}");
        // Open MPI 5 breaks its lines elsewhere.
        let words: Vec<&str> = printed.split_whitespace().collect();
        assert!(words.join(" ").contains(&format!("exited on signal {number}")), "{printed}");
        assert_eq!(printed.matches("ended by a signal").count(), 1, "{printed}");
        assert!(
            printed.contains("the same command continues from its last checkpoint"),
            "{printed}"
        );
    }
}

#[test]
fn memory_kept_by_other_runs_is_named_in_a_refusal() {
    let killed = Killed::new("lies-about");
    let refused = killed.command("large", "4000000", "off").output().unwrap();
    let printed = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2), "{printed}");
    assert!(printed.contains("does not fit") && printed.contains("(lies-about)"), "{printed}");
    let clean = format!("`skt-hpl store clean --run lies-about --store {}`", killed.store());
    assert!(printed.contains(&clean), "{printed}");
    // The memory is named neither to its own run, which uses it already, nor once it is gone.
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
    assert!(cleaned.starts_with("removed ") && cleaned.ends_with("; 0 kept\n"), "{cleaned}");
    assert_eq!(killed.store_command(&["list"]), "no segments\n");
}

#[test]
fn an_unknown_store_is_named_with_what_is_legal() {
    for name in ["store", "shm"] {
        let mut command = mpi_program(env!("CARGO_BIN_EXE_skt-hpl"));
        let output = command.args([name, "list", "--store", "tape"]).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let error = String::from_utf8(output.stderr).unwrap();
        let legal = "sysv, sysv-huge, posix, file:FOLDER";
        assert_eq!(error, format!("error: --store: `tape` is not understood; legal: {legal}\n"));
    }
}
