//! Jobs that are stopped and continued: one whose ranks all stood still is not late, however long
//! that was; that a rank alone stands still is reported.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use skt_store::store::{Store as _, SysV};

use crate::build::{checkout, compile_c, under};
use crate::clients::mpirun::{mpirun, reader, status_within};
use crate::clients::{RANKS, process_of, signal_all};

/// The option `timeout_seconds` of the jobs.
const TIMEOUT: Duration = Duration::from_secs(3);
/// A job that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(120);

/// A job whose ranks wait for rank 1 in a checkpoint.
struct Job {
    run: String,
    child: Child,
    lines: Receiver<String>,
    /// Lets rank 1 come, once it is there.
    file: PathBuf,
    _folder: tempfile::TempDir,
}

impl Job {
    fn waiting(name: &str) -> Self {
        let source = checkout().join("crates/skt-checkpoint-c/tests/c_sources/slow_rank.c");
        let program =
            compile_c(&source, &format!("slow_rank-{name}"), "gcc", &["-D_XOPEN_SOURCE=500"]);
        let folder = tempfile::tempdir().expect("a folder");
        let (file, run) = (folder.path().join("come"), format!("{name}-{}", std::process::id()));
        let mut job = mpirun(RANKS);
        job.args(under()).arg(program).arg(&file).stdin(Stdio::null());
        job.env("SKT_RUN_ID", &run).env("SKT_TIMEOUT_SECONDS", TIMEOUT.as_secs().to_string());
        job.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = job.spawn().expect("mpirun");
        let (sender, lines) = mpsc::channel();
        let stderr = BufReader::new(child.stderr.take().expect("piped"));
        std::thread::spawn(move || stderr.lines().try_for_each(|line| sender.send(line.unwrap())));
        let job = Self { run, child, lines, file, _folder: folder };
        job.line("waits");
        job
    }

    #[track_caller]
    fn line(&self, text: &str) -> String {
        let (until, mut stderr) = (Instant::now() + LIMIT, String::new());
        while let Ok(line) =
            self.lines.recv_timeout(until.saturating_duration_since(Instant::now()))
        {
            if line.contains(text) {
                return line;
            }
            stderr += &(line + "\n");
        }
        panic!("no line with `{text}`: {stderr}");
    }

    fn process(&self, rank: usize) -> i32 {
        process_of(&self.run, rank).expect("it runs")
    }

    fn come(&self) {
        std::fs::write(&self.file, "").expect("our folder");
    }

    /// The exit code, and what the job has printed.
    fn end(mut self) -> (Option<i32>, String, Vec<String>) {
        let out = reader(self.child.stdout.take().expect("piped"));
        let code = status_within(&mut self.child, LIMIT).code();
        let out = out.join().expect("text");
        let segments = SysV::new(false).list_once().expect("a store").into_iter();
        for info in segments.filter(|info| info.name.run() == self.run) {
            SysV::new(false).remove(&info.name).expect("no process has it open");
        }
        (code, out, self.lines.iter().collect())
    }
}

/// Twice for longer than the limit; rank 0 continues first.
#[test]
fn a_job_that_stood_still_continues() {
    let job = Job::waiting("all");
    let all: Vec<i32> = (0..RANKS).map(|rank| job.process(rank)).collect();
    for _ in 0..2 {
        std::thread::sleep(TIMEOUT / 4);
        signal_all(&all, Signal::SIGSTOP);
        std::thread::sleep(TIMEOUT * 5 / 2);
        for rank in &all {
            signal_all(&[*rank], Signal::SIGCONT);
            std::thread::sleep(TIMEOUT / 60);
        }
    }
    job.come();
    let (code, out, stderr) = job.end();
    assert_eq!((code, &*out), (Some(0), "sum 10 of 4 ranks\n"), "{stderr:?}");
}

/// Ranks 1 and 2 have not come, or wait with the others, when one of them or rank 0 is stopped.
#[test]
fn a_rank_that_alone_stands_still_is_reported() {
    for (name, rank) in [("one", 2), ("first", 0)] {
        let job = Job::waiting(name);
        let stopped = job.process(rank);
        signal_all(&[stopped], Signal::SIGSTOP);
        if rank == 0 {
            job.come();
        }
        let line = job.line("not all ranks have called skt_checkpoint within ");
        assert!(line.contains("timeout_seconds"), "{line}");
        signal_all(&[stopped], Signal::SIGCONT);
        let (code, out, stderr) = job.end();
        assert_eq!((code, &*out), (Some(75), ""), "{stderr:?}");
    }
}
