//! The time of a job is up: the run is saved, the job ends with 75, and the same command continues
//! to the same x.

use std::path::Path;

use crate::large_machine;
use crate::mpi_job::{Ended, Job, When, rank_of};
use crate::mpirun::{WAITS, mpi_program, mpirun, shared_library};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_skt-hpl");

fn job(ranks: usize, name: &str, flags: &str) -> Job {
    let flags = format!("--nb 64 --progress off {flags}");
    Job::new(Path::new(PROGRAM), ranks, name, &flags).signalled_to_end()
}

/// The whole text in one line.
fn words(ended: &Ended) -> String {
    ended.text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn assert_stopped(ended: &Ended, says: &str) {
    let text = words(ended);
    assert_eq!((ended.code, ended.x()), (Some(75), None), "{}", ended.text);
    assert!(text.contains("the run stands at column"), "{}", ended.text);
    assert!(text.contains(says), "{says}: {}", ended.text);
}

/// Loses all memory of `job`, and asserts that the next start continues from images to this x.
fn assert_resumes_from_images(job: &Job, want: Option<String>) {
    (0..2).for_each(|rank| _ = job.lose(rank));
    let ended = job.start(&[]);
    assert_eq!(ended.x(), want, "{}", ended.text);
    let from = ended.text.lines().find(|line| line.starts_with("# restart:"));
    assert!(from.is_some_and(|line| line.contains(", level ")), "{}", ended.text);
    job.assert_nothing_is_left();
}

/// SIGUSR1 is sent to one rank, as by `sbatch --signal`. All memory is lost with the allocation,
/// and the next job continues from images.
#[test]
fn a_signal_ends_the_time_and_the_next_job_goes_on_from_images() {
    for (name, flags, plain) in [
        ("self", "--n 2000 --ft self --checkpoint-every 3p!", "--n 2000 --ft none"),
        ("abft", "--n 2000 --ft abft --p 1 --q 1", "--n 2000 --ft none --p 1 --q 1"),
    ] {
        let job = |name: &str, flags: &str| job(2, name, flags).slowed(&[("ALL_GFLOPS", "2")]);
        let want = job(&format!("plain-{name}"), plain).start(&[]).x();
        assert!(want.is_some());
        let folder = TempDir::new().expect("a folder");
        let level = format!("local:{}", folder.path().display());
        let undisturbed = job(&format!("time-{name}"), flags);
        let (whole, times) = undisturbed.start_timed();
        assert_eq!(whole.x(), want, "{}", whole.text);
        // A run that was faster than expected is started again, and gets its signal earlier.
        let (job, stopped) = (1..=5)
            .find_map(|turn| {
                let job = job(&format!("{name}{turn}"), &format!("{flags} --level {level}"));
                let at = When::UnderWay(times.under_way / (1 << turn));
                let ended = job.start_and(at, |_| {
                    let pids = job.processes();
                    let pid = pids.into_iter().find(|&pid| rank_of(pid) == Some(1));
                    pid.is_some_and(|pid| kill(Pid::from_raw(pid as i32), Signal::SIGUSR1).is_ok())
                });
                (ended.x().is_none()).then_some((job, ended))
            })
            .expect("a job that is told in time");
        assert_stopped(&stopped, &format!("in memory and in images on {level}"));
        assert_resumes_from_images(&job, want);
    }
}

/// With `--time-limit` the images of the last checkpoint are whole before the time ends: the job
/// has ended by then, and the next one resumes from them alone.
#[test]
fn images_are_whole_before_the_time_ends() {
    // The run takes 15 s at least, a step 1 s, and an image a small part of that.
    let slow = [("GFLOPS", "0.6")];
    for (name, flags) in [("self", "--ft self"), ("abft", "--ft abft --p 1 --q 1")] {
        let flags = format!("--n 3000 {flags}");
        let want = job(2, &format!("whole-{name}"), &flags).start(&[]).x();
        assert!(want.is_some());
        let folder = TempDir::new().expect("a folder");
        let level = format!("local:{}", folder.path().display());
        // A disk that is busy with other work may make a try late: the next one has more time.
        let stopped = [8, 10, 12].into_iter().find_map(|limit_seconds| {
            let name = format!("limit-{name}{limit_seconds}");
            let job = job(2, &name, &format!("{flags} --level {level}")).slowed(&slow);
            let ended = job.start(&["--time-limit", &format!("{limit_seconds}s")]);
            println!("{name}: {:?}: {}", ended.code, words(&ended));
            assert_stopped(&ended, "in memory and in images on");
            let is_in_time = words(&ended).contains("the time ends in");
            is_in_time.then(|| job.slowed(&[]))
        });
        let job = stopped.expect("a job that saves itself in time");
        assert_resumes_from_images(&job, want);
    }
}

/// Without levels a run reports what happens to its memory; a test too short for checkpoints has
/// one if it may run out of time.
#[test]
fn a_job_without_time_stops_at_its_first_cut() {
    for (name, flags) in [("self", "--ft self"), ("abft", "--ft abft --p 1 --q 1")] {
        let flags = format!("--n 1500 {flags}");
        let want = job(2, &format!("want-{name}"), &flags).start(&[]).x();
        let job = job(2, &format!("late-{name}"), &flags);
        for over in ["@1000000000", "1ms"] {
            let stopped = job.start(&["--time-limit", over]);
            assert_stopped(&stopped, "in memory alone, which goes with the allocation");
            let text = words(&stopped);
            assert!(text.contains("warning: the time of this job is limited"), "{text}");
        }
        let ended = job.start(&["--time-limit", "never"]);
        // Before the first panel there is nothing that would be worth a restart.
        assert_eq!(ended.x(), want, "{}", ended.text);
        job.assert_nothing_is_left();
    }
}

/// Products become many times slower during the tests: seconds after the limit are at most a panel
/// and a checkpoint as slowed. A test judged too short for checkpoints keeps nothing.
#[test]
fn slowed_run_is_late_by_one_panel_and_one_checkpoint() {
    const N: usize = 1500;
    // A rank computes 10^9 operations a second, and then becomes slower.
    let panel_seconds = |column: usize, ranks: usize, slower: f64| {
        128.0 * ((N - column) as f64).powi(2) / ranks as f64 / 1e9 * slower
    };
    let kept = "and is kept in memory alone";
    let nothing = "and nothing of it is kept, as it has no checkpoints";
    for (name, limit_seconds, flags, says, gflops) in [
        ("off", 4, "--p 1 --q 2 --ft self --overlap off", kept, "0.025"),
        ("on", 4, "--p 1 --q 2 --ft self --overlap on", kept, "0.025"),
        ("abft", 4, "--p 1 --q 1 --ft abft", kept, "0.025"),
        ("none", 4, "--p 2 --q 1 --ft none", nothing, "0.025"),
        // Ten times its predicted time is within the limit.
        ("short", 15, "--p 1 --q 2", nothing, "0.025"),
        ("on", 4, "--p 1 --q 2 --ft self --overlap on", kept, "0.25"),
    ] {
        // The test of DGEMM at the start takes some of these operations.
        let slow = [("ALL_GFLOPS", "1"), ("AFTER_GFLOP", "1.3"), ("GFLOPS", gflops)];
        let slower = 1.0 / gflops.parse::<f64>().expect("a number");
        let name = format!("slowed-{name}-{slower}");
        let job = job(2, &name, &format!("--n {N} {flags}")).slowed(&slow);
        let ended = job.start(&["--time-limit", &format!("{limit_seconds}s")]);
        let text = words(&ended);
        println!("{name}: {:?}: {text}", ended.code);
        if ended.code == Some(0) {
            assert!(slower < 10.0, "{name} had to be stopped: {text}");
            continue;
        }
        assert_eq!(ended.code, Some(75), "{text}");
        assert!(text.contains(says), "{text}");
        let number = |before: &str, after: &str| -> Option<f64> {
            text.split(before).nth(1)?.split(after).next()?.parse().ok()
        };
        let late_seconds = number("the time ended ", " s ago").unwrap_or(0.0);
        let (_, column) = text.split_once(" at column ").expect("a column");
        let column: usize = column.split(',').next().and_then(|it| it.parse().ok()).unwrap();
        let ranks = if flags.contains("abft") { 1 } else { 2 };
        let panel = panel_seconds(column.saturating_sub(64), ranks, slower);
        // What is not slowed: a checkpoint of 11 MB, and ranks that wait for a core.
        assert!(late_seconds <= panel + 1.0, "{late_seconds} s, a panel takes {panel} s: {text}");
    }
}

/// The limit holds in trials, too.
#[test]
fn tune_and_auto_end_with_the_time_of_the_job() {
    let folder = TempDir::new().expect("a folder");
    let slow = [("ALL_GFLOPS", "1"), ("AFTER_GFLOP", "1.3"), ("GFLOPS", "0.1")];
    let tune = "--budget 20s --n 1000 --p 1 --q 2 --nb 64 --ft none --progress off";
    for (subcommand, flags) in [("tune", tune), ("auto", "--time 30s --force --progress off")] {
        let mut command = mpirun(2);
        let planted = large_machine::slow(&mut command, &slow);
        let done = command
            .args(["--bind-to", "none", PROGRAM, subcommand, "--time-limit", "5s"])
            .args(flags.split(' '))
            .current_dir(folder.path())
            .output()
            .expect("mpirun, of Open MPI");
        planted.assert();
        let text = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
        println!("{subcommand}: {text}");
        assert_eq!(done.status.code(), Some(75), "{text}");
        assert!(text.contains("nothing of it is kept"), "{text}");
    }
}

/// Slurm reports when a job ends. `launch` passes the time on to ranks that may not get it, starts
/// the job once, and ends with 75.
#[test]
fn a_supervisor_does_not_start_a_job_again_whose_time_has_ended() {
    let folder = TempDir::new().expect("a folder");
    let run_id = format!("time-launch-{}", std::process::id());
    let launch = |end: &str| {
        let done = mpi_program(PROGRAM)
            .args([
                "launch",
                "--np",
                "2",
                "--launcher",
                "openmpi",
                "--launcher-arg=--oversubscribe",
            ])
            .args(["--launcher-arg=--bind-to", "--launcher-arg=none", "--state"])
            .arg(folder.path().join("state"))
            .args(["--", "--n", "1500", "--nb", "64", "--ft", "self", "--run-id", &run_id])
            .env("SLURM_JOB_END_TIME", end)
            .output()
            .expect("the program");
        let text = [done.stdout, done.stderr].concat();
        (done.status.code(), String::from_utf8_lossy(&text).into_owned())
    };
    let (code, text) = launch("1000000000");
    assert_eq!(code, Some(75), "{text}");
    assert!(text.contains("the run stands at column") && !text.contains("start 2:"), "{text}");
    let (code, text) = launch("9000000000");
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("PASSED"), "{text}");
}

/// A library that handles SIGUSR1 itself when it is loaded, as LLVM does in drivers of OpenCL, and
/// sends that signal in each product. With KEEPS it also keeps others from handling it.
const TAKES_SIGNAL: &str = r#"
#include <signal.h>
#include <stdlib.h>
static void ours(int signal) {}
__attribute__((constructor)) static void begin(void) { signal(SIGUSR1, ours); }
int sigaction(int signal, const struct sigaction *new, struct sigaction *old) {
    static int (*real)(int, const struct sigaction *, struct sigaction *);
    if (!real) real = dlsym(RTLD_NEXT, "sigaction");
    return real(signal, signal == SIGUSR1 && getenv("KEEPS") ? NULL : new, old);
}
void dgemm_(void *a, void *b, void *c, void *d, void *e, void *f, void *g, void *h, void *i,
            void *j, void *k, void *l, void *m) {
    static void (*real)(void *, void *, void *, void *, void *, void *, void *, void *, void *,
                        void *, void *, void *, void *);
    if (!real) real = dlsym(RTLD_NEXT, "dgemm_");
    raise(SIGUSR1);
    real(a, b, c, d, e, f, g, h, i, j, k, l, m);
}
"#;

#[test]
fn a_signal_that_a_library_has_taken_ends_the_time() {
    let library = shared_library("takes_signal", &[WAITS, TAKES_SIGNAL].concat());
    let preload = format!("LD_PRELOAD={library}");
    let flags = "--n 1500 --checkpoint-every 3p!";
    let job = job(2, "taken", flags).within(&["env", &preload]);
    let stopped = job.start(&[]);
    assert_stopped(&stopped, "in memory alone, which goes with the allocation");
    let job = job.within(&["env", &preload, "KEEPS=1"]);
    let ended = job.start(&[]);
    assert_eq!(ended.code, Some(0), "{}", ended.text);
    let text = words(&ended);
    assert!(text.contains("a library of this process keeps SIGUSR1 for itself"), "{text}");
    job.assert_nothing_is_left();
    // Where nothing can be saved, the run ends.
    let ended = self::job(2, "bare", "--n 1500 --ft none").within(&["env", &preload]).start(&[]);
    assert_eq!(ended.code, Some(128 + Signal::SIGUSR1 as i32), "{}", ended.text);
}
