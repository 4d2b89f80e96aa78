//! HPL-MxP under mpirun: ranks are killed in the factorization and in the refinement, jobs run out
//! of time in both. The same command resumes, x has the same bits as that of a run without
//! checkpoints, and nothing is left over.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::mpi_job::{Ended, Job, When, rank_of};
use crate::mpirun::mpi_program;
use crate::report_schema::Schema;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

/// Checkpoints 1 to 8 are in the factorization; 9 and 10 follow the first two of three steps of the
/// refinement.
const SYSTEM: &str = "--nb 16 --checkpoint-every 2p! --progress off";

/// HPL-MxP on a grid of P x Q ranks.
fn mxp(name: &str, (p, q): (usize, usize), flags: &str) -> Job {
    let order = if flags.contains("--n ") || flags.contains("--config") { "" } else { "--n 250" };
    let flags = format!("{SYSTEM} --p {p} --q {q} {order} {flags}");
    Job::new(Path::new(env!("CARGO_BIN_EXE_skt-hpl")), p * q, name, &flags).running("mxp")
}

/// The x of a run of one test without checkpoints.
fn plain(grid: (usize, usize)) -> Vec<String> {
    static OF_GRIDS: Mutex<BTreeMap<(usize, usize), Vec<String>>> = Mutex::new(BTreeMap::new());
    let mut of_grids = OF_GRIDS.lock().unwrap_or_else(PoisonError::into_inner);
    of_grids.entry(grid).or_insert_with(|| undisturbed("mxp-plain", grid, "")).clone()
}

/// The x of each test of a run without checkpoints.
fn undisturbed(name: &str, grid: (usize, usize), flags: &str) -> Vec<String> {
    let ended = mxp(name, grid, &format!("--ft none {flags}")).start(&[]);
    assert!(ended.ok && ended.text.contains(" PASSED"), "{}", ended.text);
    ended.all_x()
}

/// Kills the ranks of these faults, one in each start, each with its memory if `is_lost`.
fn killed(job: &Job, faults: &[&str], is_lost: bool) {
    for fault in faults {
        let ended = job.start(&["--inject", fault]);
        assert!(!ended.ok && ended.text.contains("signal 9"), "{fault}: {}", ended.text);
        let rank: usize = fault[..1].parse().expect("a rank");
        assert!(!is_lost || job.lose(rank) > 0, "{fault}");
    }
}

/// `from` has values of the restart's line, between commas.
fn assert_resumed(job: &Job, ended: &Ended, want: &[String], from: &str) {
    assert!(ended.ok && ended.text.contains(" PASSED"), "{}", ended.text);
    assert_eq!(ended.all_x(), want, "{}", ended.text);
    let is_from = |line: &str| {
        let values = format!("{line}, ");
        let has_all = from.split(", ").all(|it| values.contains(&format!("{it}, ")));
        has_all && line.starts_with("# restart: ")
    };
    assert!(ended.text.lines().any(is_from), "{from}: {}", ended.text);
    job.assert_nothing_is_left();
}

/// The time until a job is started again counts, but not as that of a factorization that had ended.
#[test]
fn downtime_after_mxp_is_factored_is_not_its_factorization() {
    let job = mxp("mxp-down", (1, 2), "--ft self");
    killed(&job, &["1@back"], false);
    let down = Duration::from_secs(2);
    sleep(down);
    let ended = job.start(&[]);
    assert!(ended.ok && ended.text.contains(" PASSED"), "{}", ended.text);
    let seconds = |line: &str, word: usize| -> f64 {
        let line = ended.text.lines().find(|it| it.starts_with(line)).expect(&ended.text);
        line.split([' ', ','])
            .filter(|it| !it.is_empty())
            .nth(word)
            .expect("a word")
            .parse()
            .expect("a number")
    };
    let (all, factorization) = (seconds("WR", 5), seconds("# mxp: factor_seconds ", 3));
    let refinement = all - factorization;
    assert!(refinement >= down.as_secs_f64(), "{all} s, factorization {factorization} s");
    job.assert_nothing_is_left();
}

/// A run that is killed and resumes.
struct Case {
    grid: (usize, usize),
    flags: &'static str,
    /// One in each start, of a rank that dies with its memory.
    faults: &'static [&'static str],
    /// Where the last start resumes.
    from: &'static str,
}

const CASES: [Case; 4] = [
    Case {
        grid: (1, 2),
        flags: "--ft self",
        faults: &["1@column:100", "0@encode:epoch=10"],
        from: "column 250, epoch 9",
    },
    Case {
        grid: (2, 1),
        flags: "--ft self --overlap on",
        faults: &["0@flush:epoch=9"],
        from: "column 250, epoch 9",
    },
    Case {
        grid: (2, 2),
        flags: "--ft double",
        faults: &["2@encode:epoch=9", "1@copy:epoch=10"],
        from: "column 250, epoch 9",
    },
    // The other rank has left checkpoint 3 when it sends the panel.
    Case {
        grid: (1, 2),
        flags: "--ft single",
        faults: &["1@column:112"],
        from: "column 96, epoch 3",
    },
];

#[test]
fn mxp_resumes_on_each_grid_with_the_same_bits() {
    for (number, Case { grid, flags, faults, from }) in CASES.into_iter().enumerate() {
        let want = plain(grid);
        let job = mxp(&format!("mxp{number}"), grid, flags);
        killed(&job, faults, true);
        let ended = job.start(&["--resume", "require"]);
        assert_resumed(&job, &ended, &want, from);
    }
}

/// What cannot be resumed is refused by name: `single` dies within a checkpoint of the refinement,
/// or more is lost than there are parities.
#[test]
fn mxp_refuses_by_name_what_it_cannot_resume() {
    for (method, fault, lost, why) in [
        ("single", "1@encode:epoch=9", 0, "cannot survive a death within a checkpoint"),
        ("self", "1@encode:epoch=10", 2, "has lost ranks [0, 1] with 1 parity a group"),
    ] {
        let job = mxp(&format!("mxp-refused-{method}"), (2, 2), &format!("--ft {method}"));
        killed(&job, &[fault], false);
        (0..lost).for_each(|rank| assert_eq!(job.lose(rank), 1));
        let ended = job.start(&[]);
        assert!(!ended.ok && ended.x().is_none(), "{}", ended.text);
        assert!(ended.text.contains(why), "{method}: {}", ended.text);
        assert!(job.start(&["--resume", "never"]).ok);
        job.assert_nothing_is_left();
    }
}

/// A run of one rank has no group, and so no checkpoints: it begins again.
#[test]
fn mxp_without_protection_begins_again() {
    for grid in [(1, 1), (1, 2)] {
        let want = plain(grid);
        let job = mxp("mxp-killed", grid, "--ft none");
        for fault in ["0@column:100", "0@back"] {
            killed(&job, &[fault], false);
        }
        let ended = job.start(&[]);
        assert!(ended.ok && !ended.text.contains("# restart"), "{}", ended.text);
        assert_eq!(ended.all_x(), want, "{}", ended.text);
    }
}

/// The JSON report of a run, checked against its schema.
fn report(path: &Path) -> Value {
    let report = serde_json::from_slice(&fs::read(path).expect("a report")).expect("JSON");
    Schema::new(include_str!("../../docs/report.schema.json")).check(&report);
    report
}

/// The steps of a test's refinement, without their times.
fn steps(test: &Value) -> Vec<Value> {
    let mut steps = test["mxp"]["steps"].as_array().expect("steps").clone();
    steps.iter_mut().for_each(|step| step["end_seconds"] = Value::Null);
    steps
}

/// Killed in the refinement, a run reports the time that was lost, and the steps of all starts.
#[test]
fn mxp_reports_lost_time_and_the_steps_of_all_starts() {
    const PAUSE: Duration = Duration::from_secs(2);
    let folder = TempDir::new().expect("a folder");
    let [plain, path] = ["plain.json", "mxp.json"].map(|name| folder.path().join(name));
    let want = undisturbed("mxp-steps-plain", (2, 2), &format!("--json {}", plain.display()));
    let job = mxp("mxp-steps", (2, 2), &format!("--ft self --json {}", path.display()));
    killed(&job, &["2@encode:epoch=10"], true);
    let death = Instant::now();
    sleep(PAUSE);
    let ended = job.start(&[]);
    assert_resumed(&job, &ended, &want, "column 250, epoch 9");
    let (plain, report) = (report(&plain), report(&path));
    let (plain, test) = (&plain["tests"][0], &report["tests"][0]);
    assert_eq!(steps(test), steps(plain));
    let ends: Vec<f64> = test["mxp"]["steps"]
        .as_array()
        .expect("steps")
        .iter()
        .map(|step| step["end_seconds"].as_f64().expect("seconds"))
        .collect();
    let (time, down) = (test["time_seconds"].as_f64().expect("seconds"), PAUSE.as_secs_f64());
    // The first step ended before the death, the others after the pause.
    assert!(ends.is_sorted() && ends[1] - ends[0] >= down, "{ends:?}");
    assert!(time >= ends[2] && time <= ends[0] + death.elapsed().as_secs_f64() + 60.0, "{time}");
    let part = |key: &str| test["mxp"][key].as_f64().expect("seconds");
    let sum = part("factor_seconds") + part("refine_seconds");
    assert!((sum - time).abs() < 1e-6 && part("refine_seconds") >= down, "{sum} of {time}");
    // The phases of both starts, and what the loss cost, are all of the time.
    let seconds = |part: &Value| -> f64 {
        part.as_object().expect("parts").values().map(|part| part.as_f64().expect("seconds")).sum()
    };
    let lost = &test["interruptions"];
    let sum = seconds(&test["phases_seconds"]["mean"]) + seconds(lost);
    assert!((sum - time).abs() < 1e-6 && lost["down_seconds"].as_f64() >= Some(down), "{test}");
    assert!(seconds(&plain["interruptions"]) == 0.0, "{plain}");
    // The report has the memory that was allocated.
    let bytes = |key: &str| test["memory_bytes"][key].as_u64().expect("bytes");
    let segment = ["matrix", "copies", "parities", "header"].map(bytes).iter().sum::<u64>();
    assert_eq!(test["protection"]["segment_bytes"].as_u64(), Some(segment));
    let halved = plain["memory_bytes"]["matrix"].as_u64().expect("bytes");
    assert!(halved < 250 * 250 * 4 / 4 * 3 / 2, "four bytes an entry: {halved}");
}

/// All memory is lost in the refinement, and the run resumes from images.
#[test]
fn mxp_resumes_from_images_of_its_refinement() {
    let want = plain((1, 2));
    for method in ["self", "double"] {
        let folder = TempDir::new().expect("a folder");
        let level = format!("--level local:{},every=1ms!", folder.path().display());
        let job = mxp(&format!("mxp-{method}"), (1, 2), &format!("--ft {method} {level}"));
        killed(&job, &["1@encode:epoch=10"], false);
        (0..2).for_each(|rank| assert_eq!(job.lose(rank), 1));
        let ended = job.start(&["--resume", "require"]);
        assert!(ended.text.contains(", level local:"), "{}", ended.text);
        assert_resumed(&job, &ended, &want, "");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
    }
}

/// Checkpoints have the factors of the operands that their start was given.
#[test]
fn mxp_with_other_operands_does_not_resume() {
    const EMULATED: [&str; 2] = ["--gemm", "bf16-emulated"];
    let want = plain((1, 2));
    let job = mxp("mxp-gemm", (1, 2), "--ft self");
    killed(&job, &["1@column:100"], false);
    let ended = job.start(&EMULATED);
    assert_eq!((ended.code, ended.x()), (Some(2), None), "{}", ended.text);
    let why = "gemm not given there, or no room for it; \"bf16-emulated\" here";
    assert!(ended.text.contains(why), "{}", ended.text);
    let ended = job.start(&["--resume", "require"]);
    assert_resumed(&job, &ended, &want, "");

    let emulated = |more: [&'static str; 2]| job.start(&[EMULATED, more].concat());
    let ended = emulated(["--inject", "1@column:100"]);
    assert!(!ended.ok && ended.text.contains("signal 9"), "{}", ended.text);
    let ended = job.start(&["--resume", "require"]);
    assert_eq!((ended.code, ended.x()), (Some(2), None), "{}", ended.text);
    let why = "gemm \"bf16-emulated\" there, not given here";
    assert!(ended.text.contains(why), "{}", ended.text);
    let ended = emulated(["--resume", "require"]);
    assert!(ended.ok && ended.text.contains("# restart: column "), "{}", ended.text);
    job.assert_nothing_is_left();
}

fn assert_stopped(ended: &Ended) {
    assert_eq!((ended.code, ended.x()), (Some(75), None), "{}", ended.text);
    assert!(ended.text.contains("the run stands at column"), "{}", ended.text);
}

/// Time ends before the first panel and, in a start that resumes there, in the refinement.
#[test]
fn mxp_without_time_stops_and_resumes() {
    let want = plain((1, 2));
    let job = mxp("mxp-time", (1, 2), "--ft self").signalled_to_end();
    assert_stopped(&job.start(&["--time-limit", "1ms"]));
    killed(&job, &["1@encode:epoch=10"], false);
    let ended = job.start(&["--time-limit", "1ms"]);
    assert_stopped(&ended);
    assert!(ended.text.contains("the run stands at column 250"), "{}", ended.text);
    let ended = job.start(&["--time-limit", "never", "--resume", "require"]);
    assert_resumed(&job, &ended, &want, "");
}

/// SIGUSR1 in the refinement, as by `sbatch --signal`: the next step is not begun.
#[test]
fn mxp_stops_at_a_signal_in_its_refinement() {
    let flags = "--n 2000 --matrix scaled";
    let want = undisturbed("mxp-signal-plain", (1, 2), flags);
    let folder = TempDir::new().expect("a folder");
    let log = folder.path().join("stderr");
    let into_log = format!("exec \"$@\" 2>'{}'", log.display());
    // A refinement that has ended before its signal is tried again.
    let (job, stopped) = (1..=10)
        .find_map(|turn| {
            let job = mxp(&format!("mxp-signal{turn}"), (1, 2), &format!("--ft self {flags}"));
            let job = job.signalled_to_end().within(&["sh", "-c", &into_log, "sh"]);
            let job = with_progress(job);
            let ended = job.start_and(When::FromLaunch(Duration::ZERO), |_| {
                let text = fs::read_to_string(&log).unwrap_or_default();
                if !text.contains("N=2000: refinement") {
                    return false;
                }
                let pids = job.processes();
                let pid = pids.into_iter().find(|&pid| rank_of(pid) == Some(1));
                pid.is_some_and(|pid| kill(Pid::from_raw(pid as i32), Signal::SIGUSR1).is_ok())
            });
            let text = fs::read_to_string(&log).expect("written");
            fs::remove_file(&log).expect("removed");
            ended.x().is_none().then(|| (job, Ended { text: ended.text + &text, ..ended }))
        })
        .expect("a refinement that is told in time");
    assert_stopped(&stopped);
    assert!(stopped.text.contains("the run stands at column 2000"), "{}", stopped.text);
    let job = job.within(&[]);
    let ended = job.start(&["--resume", "require"]);
    assert_resumed(&job, &ended, &want, "column 2000");
}

/// The job with lines of progress.
fn with_progress(mut job: Job) -> Job {
    let how = job.flags.iter_mut().skip_while(|flag| *flag != "--progress").nth(1);
    *how.expect("--progress HOW") = "plain".into();
    job
}

/// A job whose refinement takes five corrections of a second or two, and most of its time.
fn long_refinement(name: &str, flags: &str) -> Job {
    let flags = format!(
        "--n 2000 --nb 128 --p 1 --q 2 --gemm bf16-emulated --ft self --progress off {flags}"
    );
    let job = Job::new(Path::new(env!("CARGO_BIN_EXE_skt-hpl")), 2, name, &flags).running("mxp");
    // Predicted to take seconds, on any machine, the test is protected.
    job.slowed(&[("SEND_SECONDS", "0.03"), ("ALL_GFLOPS", "1")])
}

/// The refinement takes much longer than predicted: its checkpoints have the interval that the user
/// asks for.
#[test]
fn mxp_takes_checkpoints_in_a_long_refinement() {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("report.json");
    let flags = format!("--checkpoint-every 1s --json {}", path.display());
    let job = long_refinement("mxp-long", &flags);
    let ended = job.start(&[]);
    assert!(ended.ok, "{}", ended.text);
    let report = report(&path);
    let events = report["tests"][0]["events"].as_array().expect("events").clone();
    let factored = report["tests"][0]["mxp"]["factor_seconds"].as_f64().expect("seconds");
    let epochs: Vec<u64> = events
        .iter()
        .filter(|event| event["kind"] == "checkpoint")
        .filter(|event| event["start_seconds"].as_f64().expect("seconds") > factored)
        .map(|event| event["epoch"].as_u64().expect("a number"))
        .collect();
    // A slow checkpoint stretches the interval.
    assert!(epochs.len() >= 2, "{epochs:?} of {events:?}");
}

/// The time ends in a refinement that takes much longer than predicted: the run has saved itself by
/// then.
#[test]
fn mxp_keeps_its_time_limit_in_a_long_refinement() {
    let want = long_refinement("mxp-limit-plain", "").slowed(&[]).start(&[]).all_x();
    // How fast the machine starts and factors is not known: the end is searched for.
    let mut limit_seconds = 8.0;
    let job = (1..=10)
        .find_map(|turn| {
            let job = long_refinement(&format!("mxp-limit{turn}"), "").signalled_to_end();
            let ended = job.start(&["--time-limit", &format!("{limit_seconds:.1}s")]);
            println!("{limit_seconds:.1} s: {:?}", ended.code);
            if ended.x().is_some() {
                limit_seconds *= 0.75;
                return None;
            }
            assert_stopped(&ended);
            limit_seconds *= 1.4;
            let text = ended.text.split_whitespace().collect::<Vec<_>>().join(" ");
            let is_refining = text.contains("the run stands at column 2000");
            (is_refining && text.contains("the time ends in")).then_some(job)
        })
        .expect("a job that saves itself in time");
    let ended = job.slowed(&[]).start(&["--resume", "require"]);
    assert!(ended.ok && ended.all_x() == want, "{want:?}: {}", ended.text);
    assert!(ended.text.contains("# restart: column 2000, "), "{}", ended.text);
}

/// Two tests of an HPL.dat and of TOML, interrupted in the refinement of the second.
#[test]
fn mxp_of_a_file_resumes_in_its_second_test() {
    let folder = TempDir::new().expect("a folder");
    let [toml, dat] = ["mxp.toml", "HPL.dat"].map(|name| folder.path().join(name));
    fs::write(&toml, "n = [150, 250]\nnb = 16\np = 1\nq = 2\n").expect("written");
    let program = env!("CARGO_BIN_EXE_skt-hpl");
    let converted = mpi_program(program).arg("convert").arg(&toml).output();
    fs::write(&dat, converted.expect("started").stdout).expect("written");
    let want = undisturbed("mxp-files-plain", (1, 2), "--n 150,250");
    assert_eq!(want.len(), 2);
    for (name, file) in [("toml", &toml), ("dat", &dat)] {
        let path = folder.path().join("report.json");
        let flags = format!("--ft self --config {} --json {}", file.display(), path.display());
        let job = mxp(&format!("mxp-{name}"), (1, 2), &flags);
        // The first test has 9 checkpoints at most.
        killed(&job, &["1@column:200", "0@flush:epoch=10"], true);
        let ended = job.start(&["--resume", "require"]);
        assert!(ended.text.contains("# tests 1 to 1 were done by an earlier start"));
        assert_resumed(&job, &ended, &want, "");
        let report = report(&path);
        let tests = report["tests"].as_array().expect("tests");
        assert!(tests.iter().all(|test| !steps(test).is_empty() && test["status"] == "passed"));
    }
}

/// Each correction has a line with the time that is left.
#[test]
fn mxp_shows_the_progress_of_its_refinement() {
    let job = with_progress(mxp("mxp-progress", (1, 2), "--n 2000 --matrix scaled --ft none"));
    let ended = job.start(&[]);
    assert!(ended.ok, "{}", ended.text);
    let begun = "# N=2000: refinement\n# N=2000: refinement by classic, correction 1, ETA ";
    assert!(ended.text.contains(begun), "{}", ended.text);
}
