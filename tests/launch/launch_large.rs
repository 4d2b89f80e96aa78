//! `skt-hpl launch` with steps, images and deaths that take as long as on large nodes, and with a
//! short `--hang-after`: nothing that works is killed.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use crate::large_machine::{self, Planted};
use crate::mpirun::mpi_program;
use skt_store::store::{Store as _, SysV};
use tempfile::TempDir;

/// The longest time for what takes seconds.
const PATIENCE: Duration = Duration::from_secs(120);

/// A run on this machine, with a folder for its state and its images.
struct Run {
    folder: TempDir,
    name: String,
}

/// How a run ended.
struct Ended {
    code: Option<i32>,
    printed: String,
    report: String,
}

impl Run {
    fn new(name: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self { folder, name: format!("large-{}-{name}", std::process::id()) }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The supervisor of two ranks that are as slow as given by `times`.
    fn launch(&self, flags: &str, run: &str, times: &[(&str, &str)]) -> (Command, Planted) {
        let mut command = mpi_program(env!("CARGO_BIN_EXE_skt-hpl"));
        command.args(["launch", "--np", "2", "--launcher", "openmpi", "--max-restarts", "3"]);
        command.args(["--launcher-arg=--bind-to", "--launcher-arg=none"]);
        command.args(flags.split_whitespace()).args(["--", "--run-id", &self.name]);
        command.args(["--allow-shared-domains", "--progress", "off"]).args(run.split_whitespace());
        command.current_dir(self.path()).stdin(Stdio::null());
        command.env("OMPI_MCA_rmaps_base_oversubscribe", "1");
        command.env("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe");
        let planted = large_machine::slow(&mut command, times);
        (command, planted)
    }

    /// A run of two ranks to its end.
    fn ended(&self, flags: &str, run: &str, times: &[(&str, &str)]) -> Ended {
        let (mut command, planted) = self.launch(flags, run, times);
        let ended = Ended::from_output(command.output().expect("started"));
        planted.assert();
        ended
    }

    /// A folder for images.
    fn images(&self) -> String {
        let folder = self.path().join("images");
        fs::create_dir(&folder).expect("our folder");
        folder.display().to_string()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        for info in SysV::new(false).list_once().unwrap_or_default() {
            if info.name.run() == self.name {
                // A test that fails cleans up as well as it can.
                let _ = SysV::new(false).remove(&info.name);
            }
        }
    }
}

impl Ended {
    fn from_output(out: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let (printed, report) = (text(out.stderr), text(out.stdout));
        eprintln!("{printed}");
        Self { code: out.status.code(), printed, report }
    }

    fn passed_at_once(&self) -> &Self {
        assert_eq!(self.code, Some(0), "{}\n{}", self.printed, self.report);
        assert!(self.printed.contains("after 0 failure(s)"), "{}", self.printed);
        assert!(self.report.contains("PASSED"), "{}", self.report);
        self
    }
}

/// The three syncs of an image take 2.5 s each, in which no column advances: for the rank that
/// writes it, and where the one that sends heartbeats waits for a message of the one that waits for
/// its image. Without images, the steps take 7.2, 4.0, 1.8 and 0.4 s.
#[test]
fn a_rank_that_works_or_waits_for_an_image_is_not_hung() {
    let slow_syncs = ("SYNC_SECONDS", "2.5");
    for (name, flags, of_rank) in [
        ("abft", "--n 512 --nb 256 --p 1 --q 1 --ft abft", &[][..]),
        ("self", "--n 512 --nb 256 --p 1 --q 2 --checkpoint-every 1p!", &[("RANK", "1")]),
    ] {
        let run = Run::new(name);
        let flags = format!("{flags} --level local:{},every=1ms!", run.images());
        let ended = run.ended("--hang-after 5s", &flags, &[&[slow_syncs], of_rank].concat());
        let written = ended.passed_at_once().report.contains("name local:");
        assert!(written, "{}", ended.report);
    }
    let flags = "--n 2048 --nb 512 --p 1 --q 2 --ft none";
    let ended = Run::new("steps").ended("--hang-after 2s", flags, &[("GFLOPS", "0.3")]);
    let words = "a step of this run takes up to";
    assert!(ended.passed_at_once().printed.contains(words), "{}", ended.printed);
}

/// Rank 1 is killed, and its memory stays held for longer than a working process is waited for, as
/// with the memory of a large process.
#[test]
fn a_start_refused_by_a_dying_rank_is_repeated() {
    let run = Run::new("dying");
    let from = run.path().join("from-now-on");
    let flags = "--n 3000 --nb 50 --p 1 --q 2 --checkpoint-every 2p! --inject 1@column:1500";
    let from_now_on = ("FROM", from.to_str().expect("a path"));
    let times = [("GFLOPS", "1.5"), ("LINGER_SECONDS", "20"), ("RANK", "1"), from_now_on];
    let (mut launch, planted) = run.launch("", flags, &times);
    let launch = launch.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
    // By then the rank has its data.
    let beats = run.path().join("skt-hpl.launch/start-1.err");
    let begun = Instant::now();
    while !fs::read_to_string(&beats).is_ok_and(|text| text.contains("\"phase\":\"factor\"")) {
        assert!(begun.elapsed() < PATIENCE, "no column is done");
        thread::sleep(Duration::from_millis(5));
    }
    fs::write(&from, "").expect("our folder");
    let ended = Ended::from_output(launch.wait_with_output().expect("ours"));
    planted.assert();
    assert_eq!(ended.code, Some(0), "{}\n{}", ended.printed, ended.report);
    assert!(ended.report.contains("PASSED"), "{}", ended.report);
    // If the next start does not wait long enough, a later one does.
    let words = "processes of an earlier start, which end, still held what they had";
    let held = ended.printed.lines().filter(|line| line.contains("failed in phase changed"));
    assert!({ held }.all(|line| line.contains(words)), "{}", ended.printed);
    assert!(!ended.printed.contains("is running on host"), "{}", ended.printed);
}
