//! Real ranks under mpirun are killed with signal 9, at named steps and at any time, with and
//! without the loss of their node's memory. Started again until it ends, the job passes, its x has
//! the same bits as that of a run without checkpoints, and nothing is left over.
//!
//! The tests take a sample by default; `SKT_FT_SOAK=1` (scripts/dev/soak-checkpoint) makes hundreds
//! of random kills.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::dice::{Dice, seed};
use crate::mpi_job::{Ended, Job, MAX_JOBS};
use crate::skipped::skipped;
use crate::soak::is_soak;

const RANKS: usize = 4;
/// With N = 250 there are 8 checkpoints, one every 2 panels.
const SYSTEM: &str = "--nb 16 --p 2 --q 2 --checkpoint-every 2p!";

/// HPL on four ranks, which are killed at once when one of them dies.
fn hpl(name: &str, flags: &str) -> Job {
    let order = if flags.contains("--n ") { "" } else { "--n 250" };
    // `SKT_TEST_OVERLAP` sets the overlap if a test does not.
    let overlap = match std::env::var("SKT_TEST_OVERLAP") {
        Ok(how) if !flags.contains("--overlap") && !flags.contains("--ft none") => {
            format!("--overlap {how}")
        }
        _ => String::new(),
    };
    let flags = format!("{SYSTEM} {order} --progress off {overlap} {flags}");
    for_program(Path::new(env!("CARGO_BIN_EXE_skt-hpl")), name, &flags)
}

/// Another program, started and killed as HPL is.
fn for_program(program: &Path, name: &str, flags: &str) -> Job {
    Job::new(program, RANKS, name, flags)
}

/// x without checkpoints.
fn undisturbed() -> &'static str {
    static X: OnceLock<String> = OnceLock::new();
    X.get_or_init(|| {
        let ended = hpl("none", "--ft none").start(&[]);
        assert!(ended.ok, "{}", ended.text);
        ended.x().expect("a fingerprint")
    })
}

/// Kills `faults` one after the other, one per start, with the memory of `lost` gone after the
/// first; then the run must end well.
fn drill(name: &str, faults: &[&str], lost: Option<usize>, flags: &str) {
    let injects: String = faults.iter().map(|fault| format!(" --inject {fault}")).collect();
    let job = hpl(name, &format!("{flags}{injects}"));
    for (index, fault) in faults.iter().enumerate() {
        let ended = job.start(&[]);
        assert!(
            !ended.ok && ended.text.contains("signal 9"),
            "{fault} of {faults:?}: {}",
            ended.text
        );
        if let (0, Some(rank)) = (index, lost) {
            job.lose(rank);
        }
    }
    let ended = job.start(&[]);
    assert!(ended.ok && ended.text.contains("PASSED"), "{faults:?}: {}", ended.text);
    assert_eq!(ended.x().as_deref(), Some(undisturbed()), "{faults:?}: {}", ended.text);
    job.assert_nothing_is_left();
}

/// What removes segments without processes between two starts removes the large ones, of all ranks.
#[test]
fn a_start_reports_missing_segments_of_the_one_before() {
    let gone = "warning: an earlier start of this run had begun test 1, and its segments are gone \
                from all hosts: ";
    for (resume, passes) in [("auto", true), ("require", false), ("never", true)] {
        let job = hpl(&format!("cleaned-{resume}"), "");
        let ended = job.start(&["--inject", "1@encode:epoch=3"]);
        assert!(!ended.ok && !ended.text.contains(gone), "{}", ended.text);
        assert!((0..RANKS).all(|rank| job.lose(rank) > 0));
        let ended = job.start(&["--resume", resume]);
        assert_eq!(ended.ok, passes, "{}", ended.text);
        // A run that is to start over misses nothing.
        assert_eq!(ended.text.matches(gone).count(), usize::from(resume != "never"), "{resume}");
        if passes {
            assert_eq!(ended.x().as_deref(), Some(undisturbed()), "{}", ended.text);
        } else {
            let refused =
                "no checkpoint of this run was found. If an earlier start had one, the run has";
            assert!(ended.text.contains(refused), "{}", ended.text);
            assert!(job.start(&["--resume", "never"]).ok);
        }
        job.assert_nothing_is_left();
    }
}

#[test]
fn missing_huge_pages_are_reported_once() {
    if std::fs::read_to_string("/proc/sys/vm/nr_hugepages").is_ok_and(|have| have.trim() != "0") {
        skipped("this system has pages set aside (vm.nr_hugepages)");
        return;
    }
    let job = hpl("huge", "--store sysv-huge");
    let ended = job.start(&[]);
    assert!(ended.ok, "{}", ended.text);
    let reported = ended.text.matches("warning: rank 0: no huge pages, ordinary ones instead");
    assert_eq!(reported.count(), 1, "{}", ended.text);
    job.assert_nothing_is_left();
}

/// A step of each kind, of which simulated ranks are killed at all: the faults, one per start, of
/// which the last one is at the step; flags; and whether the first to die loses its memory.
const PLACES: [(&[&str], &str, bool); 8] = [
    (&["0@join:epoch=0,chunk=0"], "", true),
    (&["1@encode:epoch=3", "2@recover-rebuild:epoch=2"], "", true),
    (&["2@copy:epoch=3"], "--ft double", false),
    (&["3@commit:epoch=3"], "--overlap on", true),
    (&["0@flush:epoch=3"], "--overlap on --depth 1", true),
    (&["1@marked", "1@clear:epoch=8"], "", false),
    (&["2@column:100"], "", true),
    (&["3@flush:epoch=3", "3@recover-flush:epoch=3"], "", false),
];

#[test]
fn a_kill_at_every_kind_of_step() {
    // Starting and killing jobs is mostly waiting.
    std::thread::scope(|scope| {
        for (half, places) in PLACES.chunks(PLACES.len() / 2).enumerate() {
            scope.spawn(move || {
                for (number, (faults, flags, is_lost)) in places.iter().enumerate() {
                    let lost = is_lost.then(|| faults[0][..1].parse().expect("a rank"));
                    drill(&format!("step{half}-{number}"), faults, lost, flags);
                }
            });
        }
    });
}

/// Ranks die at any time from the launch to the end, by a signal from outside.
#[test]
fn kills_at_random_times() {
    random_kills("random", "--n 2000 --depth 1", if is_soak() { 100 } else { 2 });
}

/// Ranks of a run of many short tests die at any time: in a test, or between two.
#[test]
fn kills_at_random_times_between_tests() {
    let (tests, jobs) = if is_soak() { (10, 100) } else { (7, 2) };
    let sizes = (0..tests).map(|test| (200 + 80 * test).to_string()).collect::<Vec<_>>().join(",");
    random_kills("tests", &format!("--n {sizes}"), jobs);
}

/// Starts `jobs` jobs of HPL with these flags, kills each up to three times, and
/// checks that the report of the last start has all results of an undisturbed run.
fn random_kills(name: &str, flags: &str, jobs: usize) {
    let seed = seed("SKT_FT_SEED");
    let mut dice = Dice(seed);
    let plain = hpl(&format!("{name}-plain"), &format!("{flags} --ft none")).start(&[]);
    let want = plain.all_x();
    assert!(plain.ok && !want.is_empty(), "{}", plain.text);
    let (ended, mut times) = hpl(&format!("{name}-timed"), flags).start_timed();
    assert_eq!(ended.all_x(), want, "{}", ended.text);
    let (mut kills, mut losses, mut starts, mut went_on, mut hung) = (0, 0, 0, 0, 0);
    let mut number = 0;
    while number < jobs || went_on == 0 && number < MAX_JOBS {
        let overlap = ["off", "on"][number % 2];
        let job = hpl(&format!("{name}{number}"), &format!("{flags} --overlap {overlap}"));
        // The same rank loses its memory each time.
        let loser = dice.roll(RANKS);
        let (mut left, mut has_told) = (3, false);
        loop {
            let victims = match dice.roll(6) {
                0 => (0..RANKS).collect(),
                _ => vec![dice.roll(RANKS)],
            };
            let (ended, killed) = match left {
                0 => (job.start(&[]), false),
                _ => job.start_and_kill(&victims, times.any(&mut dice)),
            };
            kills += usize::from(killed);
            starts += 1;
            hung += usize::from(ended.text.contains("mpirun hung"));
            went_on += usize::from(has_told || ended.text.contains("# restart: "));
            let reported = ended.all_x();
            has_told |= !reported.is_empty();
            assert!(want.starts_with(&reported), "seed {seed}: {}", ended.text);
            assert!(
                reported.is_empty() || ended.text.contains("PASSED"),
                "seed {seed}: {}",
                ended.text
            );
            if ended.ok {
                // Until a kill has struck the work.
                if went_on == 0 {
                    times.halve();
                }
                assert_eq!(reported, want, "seed {seed}: {}", ended.text);
                let finished = format!("Finished {:6} tests", want.len());
                assert!(ended.text.contains(&finished), "seed {seed}: {}", ended.text);
                break;
            }
            assert!(left > 0, "seed {seed}: {}", ended.text);
            left -= 1;
            if dice.roll(2) == 0 {
                losses += job.lose(loser);
            }
        }
        job.assert_nothing_is_left();
        number += 1;
    }
    println!(
        "{number} jobs, {starts} starts, {kills} kills, {losses} segments lost, \
         {went_on} starts went on, {hung} mpirun hung"
    );
    assert!(went_on > 0, "no job was killed while it computed");
}

/// Lost memory is named in the report; too many losses are refused by all ranks.
#[test]
fn lost_ranks_are_named_and_too_many_refused() {
    let job = hpl("lost", "--inject 2@column:150");
    assert!(!job.start(&[]).ok);
    assert_eq!(job.lose(2), 1);
    assert_eq!(job.lose(3), 1);
    for _ in 0..2 {
        let ended = job.start(&[]);
        assert!(!ended.ok && ended.x().is_none(), "{}", ended.text);
        let message = "group 0 has lost ranks [2, 3] with 1 parity a group";
        assert!(ended.text.contains(message), "{}", ended.text);
        assert_eq!(job.segments(None).len(), 2);
    }
    let ended = job.start(&["--resume", "never"]);
    assert!(ended.ok, "{}", ended.text);
    assert_eq!(ended.x().as_deref(), Some(undisturbed()));
    job.assert_nothing_is_left();

    let job = hpl("named", "--inject 2@column:150");
    assert!(!job.start(&[]).ok);
    assert_eq!(job.lose(1), 1);
    let ended = job.start(&["--resume", "require"]);
    assert!(ended.ok && ended.text.contains("rebuilt_ranks [1]"), "{}", ended.text);
    assert_eq!(ended.x().as_deref(), Some(undisturbed()));
}

/// The `Time` of the report, in seconds.
fn time_seconds(ended: &Ended) -> f64 {
    let line = ended.text.lines().find(|line| line.starts_with("WR")).expect(&ended.text);
    line.split_whitespace().nth(5).and_then(|time| time.parse().ok()).expect(line)
}

/// Before there is a checkpoint, the time of the first start counts as well, with the memory of the
/// ranks and without; it is dropped if the run is begun again, or if no node knows of it.
#[test]
fn a_death_before_the_first_checkpoint_drops_no_time() {
    const PAUSE: Duration = Duration::from_secs(2);
    let restarts = |ended: &Ended| {
        let from = "# restart: column 0, damaged_blocks 0, ";
        assert!(ended.ok && ended.text.contains("PASSED"), "{}", ended.text);
        assert_eq!(ended.x().as_deref(), Some(undisturbed()), "{}", ended.text);
        assert_eq!(ended.text.matches("# restart").count(), ended.text.matches(from).count());
        ended.text.matches(from).count()
    };
    for method in ["self", "double"] {
        let flags = format!("--ft {method} --inject 2@column:16");
        let job =
            hpl(&format!("early-{method}"), &format!("{flags} --inject 1@checkpoint:epoch=1"));
        assert!(!job.start(&[]).ok);
        let first = Instant::now();
        if method == "double" {
            (0..RANKS).for_each(|rank| assert_eq!(job.lose(rank), 1));
        }
        sleep(PAUSE);
        assert!(!job.start(&[]).ok);
        let second = first.elapsed();
        sleep(PAUSE);
        let ended = job.start(&[]);
        assert_eq!(restarts(&ended), 2, "{}", ended.text);
        let (time, all) = (time_seconds(&ended), (second + PAUSE).as_secs_f64());
        assert!(time >= all, "{method}: {time} s of {all} s at least: {}", ended.text);
        job.assert_nothing_is_left();

        let job = hpl(&format!("anew-{method}"), &flags);
        assert!(!job.start(&[]).ok);
        let ended = job.start(&["--resume", "never"]);
        assert_eq!(restarts(&ended), 0, "{}", ended.text);
        job.assert_nothing_is_left();
        assert!(!job.start(&[]).ok);
        job.lose_results();
        assert_eq!(restarts(&job.start(&[])), 0);
        job.assert_nothing_is_left();
    }
}

/// What cannot be continued is refused with the reason and what to do.
#[test]
fn a_torn_single_copy_is_named() {
    let job = hpl("torn", "--ft single --inject 2@copy:epoch=3");
    assert!(!job.start(&[]).ok);
    let ended = job.start(&[]);
    assert!(!ended.ok && ended.x().is_none(), "{}", ended.text);
    // A rank that had not begun to copy, or had ended it, when the job was killed is whole.
    for message in [
        "are here, but the run died while checkpoint 3 was being written",
        "Method `single` cannot survive a death within a checkpoint",
        "Start afresh with --resume never, and with method `self` or `double`",
    ] {
        assert!(ended.text.contains(message), "{}", ended.text);
    }
    let ended = job.start(&["--resume", "never"]);
    assert!(ended.ok, "{}", ended.text);
    job.assert_nothing_is_left();
}

/// The lines of a report that have a test's result: from its head to the rule below, but for those
/// that depend on the start, or compare the test with the start's self-test.
fn result_lines(report: &str) -> Vec<&str> {
    let of_a_start = ["# test", "# efficiency", "# warning"];
    let mut is_within = false;
    let is_result = |line: &&str| {
        let is_head = line.starts_with("T/V ") && line.ends_with(" Gflops");
        is_within = is_head || is_within && !line.starts_with("====");
        is_within && !of_a_start.iter().any(|word| line.starts_with(word))
    };
    report.lines().filter(is_result).collect()
}

/// A run that dies when its result is reported reports the same result again, to the last digit,
/// whatever memory is lost, and computes nothing.
#[test]
fn a_result_is_reported_again_and_not_recomputed() {
    let folder = tempfile::tempdir().expect("a folder");
    let json = folder.path().join("result.json");
    let flags = format!("--inject 1@encode:epoch=2 --inject 2@clear --json {}", json.display());
    let job = hpl("told", &flags);
    assert!(!job.start(&[]).ok);
    assert_eq!(job.lose(1), 1);
    // Longer than the report's seconds are exact: the timed part began before.
    sleep(Duration::from_secs(3));
    let first = job.start(&[]);
    assert!(!first.ok && first.text.contains("PASSED"), "{}", first.text);
    let want = std::fs::read_to_string(&json).expect("a report");
    assert_eq!(job.lose(0) + job.lose(2) + job.lose(3), 3);
    for restart in [&["--resume", "require", "--inject", "1@marked"][..], &[]] {
        let ended = job.start(restart);
        if restart.is_empty() {
            assert!(ended.ok, "{}", ended.text);
            assert!(ended.text.contains("# test 1 was done by an earlier start"), "{}", ended.text);
            assert!(ended.text.contains("1 tests completed and passed"), "{}", ended.text);
        } else {
            assert!(!ended.ok && ended.x().is_none(), "{}", ended.text);
        }
    }
    job.assert_nothing_is_left();
    let tests = |text: &str| {
        let report: serde_json::Value = serde_json::from_str(text).expect("JSON");
        assert_eq!(report["finished"], true);
        let mut tests = report["tests"].clone();
        // The efficiency is relative to another self-test than before.
        tests[0]["efficiency"] = serde_json::Value::Null;
        assert_eq!(tests[0]["protection"]["restarts"][0]["rebuilt_ranks"][0], 1);
        let second_of_day = |key: &str| {
            let text = tests[0][key].as_str().expect("a time");
            let two = |at: usize| text[at..at + 2].parse::<i64>().expect("digits");
            two(11) * 3600 + two(14) * 60 + two(17)
        };
        let between = (second_of_day("end") - second_of_day("start")).rem_euclid(86_400) as f64;
        let time = tests[0]["time_seconds"].as_f64().expect("seconds");
        assert!((between - time).abs() <= 1.5, "{between} s between start and end, {time} s");
        tests
    };
    let again = std::fs::read_to_string(&json).expect("a report");
    assert_eq!(tests(&again), tests(&want));
    let lines = |text: &str| -> Vec<String> {
        let report: serde_json::Value = serde_json::from_str(text).expect("JSON");
        let report = report["text_report"].as_str().expect("the text report");
        result_lines(report).into_iter().map(str::to_owned).collect()
    };
    assert!(lines(&want).len() > 20, "{want}");
    assert_eq!(lines(&again), lines(&want));
}

/// A run of three tests dies in the second, in the third, and when the third is about to be
/// cleared: each report from then on, also in its file, has all tests that are done, with every
/// digit as first reported, and x of runs without checkpoints.
#[test]
fn the_report_of_a_restart_has_the_tests_of_earlier_starts() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, json) = (folder.path().join("HPL.out"), folder.path().join("HPL.json"));
    let flags = format!("--n 150,200,250 --out {} --json {}", file.display(), json.display());
    let want = hpl("report-plain", "--ft none --n 150,200,250").start(&[]).all_x();
    let job = hpl("report", &flags);
    let report = || std::fs::read_to_string(&file).expect("a report");
    let mut reported = Vec::new();
    // These columns are beyond those of the earlier tests; the last test has 8 checkpoints.
    for (inject, done) in [("1@column:170", 1), ("2@column:230", 2), ("3@clear:epoch=8", 3)] {
        let ended = job.start(&["--inject", inject]);
        assert!(!ended.ok, "{inject}: {}", ended.text);
        let text = report();
        let lines = result_lines(&text).into_iter().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(text.matches(" PASSED").count(), done, "{inject}: {text}");
        assert!(lines.starts_with(&reported), "{inject}: {text}");
        reported = lines;
        let of_report = Ended { ok: false, code: None, text };
        assert_eq!(of_report.all_x(), want[..done], "{inject}: {}", of_report.text);
        if done < 3 {
            assert_eq!(job.lose(1), 1, "{inject}");
        }
    }
    let ended = job.start(&["--resume", "require"]);
    assert!(ended.ok, "{}", ended.text);
    let text = report();
    assert_eq!(result_lines(&text), reported, "{text}");
    assert!(text.contains("# tests 1 to 3 were done by an earlier start"), "{text}");
    assert!(text.contains("Finished      3 tests") && text.contains("     3 tests completed and"));
    let json: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&json).expect("a report")).expect("JSON");
    assert_eq!(json["tests"].as_array().map(Vec::len), Some(3));
    assert_eq!(json["finished"], true);
    job.assert_nothing_is_left();
}

/// Between two tests there is no matrix, only the results of the earlier tests.
#[test]
fn a_death_between_two_tests_loses_no_result() {
    let job = hpl("between", "--n 150,200,250");
    let first = job.start(&["--inject", "0@create:epoch=0", "--inject", "1@column:170"]);
    assert!(!first.ok && first.x().is_none(), "before the first: {}", first.text);
    assert!(!job.start(&["--inject", "1@column:170"]).ok);
    for rank in 0..RANKS {
        job.lose(rank);
    }
    // All of the second test is lost; the result of the first is not.
    let ended = job.start(&["--resume", "require"]);
    assert!(ended.ok, "{}", ended.text);
    assert!(ended.text.contains("# tests 1 to 1 were done by an earlier start"), "{}", ended.text);
    assert!(ended.text.contains("Finished      3 tests"), "{}", ended.text);
    job.assert_nothing_is_left();

    // Results of other tests are not taken for results of these.
    let mut job = hpl("others", "--n 150,200,250");
    assert!(!job.start(&["--inject", "1@column:170"]).ok);
    job.flags = hpl("other-flags", "--n 100,200,250").flags.clone();
    let ended = job.start(&[]);
    assert!(!ended.ok && ended.x().is_none(), "{}", ended.text);
    assert!(ended.text.contains("for test 1 is of another test"), "{}", ended.text);
    let ended = job.start(&["--resume", "never"]);
    assert!(ended.ok && ended.all_x().len() == 3, "{}", ended.text);
    job.assert_nothing_is_left();
}

/// A run that is begun again leaves nothing of later tests, from which a start after it could
/// conclude that the earlier ones are done.
#[test]
fn a_restart_from_scratch_begins_with_the_first_test() {
    let want = hpl("anew-plain", "--ft none --n 150,250").start(&[]).all_x();
    let job = hpl("anew", "--n 150,250");
    assert!(!job.start(&["--inject", "1@column:200"]).ok, "in the second test");
    assert!(!job.start(&["--resume", "never", "--inject", "1@column:100"]).ok, "in the first");
    let ended = job.start(&[]);
    assert!(ended.ok && !ended.text.contains("by an earlier start"), "{}", ended.text);
    assert_eq!(ended.all_x(), want);
    job.assert_nothing_is_left();
}

/// Panels are factored while the other threads multiply, and after a restart with all threads free.
#[test]
fn runs_with_threads_go_on() {
    let program = Path::new(env!("CARGO_BIN_EXE_skt-hpl"));
    for threads in 2..=3 {
        let flags = format!("--n 1500 --nb 64 --p 1 --q 4 --threads {threads} --progress off");
        let plain = for_program(program, "threads-none", &format!("{flags} --ft none")).start(&[]);
        assert!(plain.ok, "{}", plain.text);
        let protected = format!("{flags} --checkpoint-every 3p! --inject 1@encode:epoch=3");
        let job = for_program(program, &format!("threads-{threads}"), &protected);
        let ended = job.start(&[]);
        assert!(!ended.ok && ended.text.contains("signal 9"), "{}", ended.text);
        job.lose(1);
        let ended = job.start(&[]);
        assert!(ended.ok && ended.text.contains("PASSED"), "{}", ended.text);
        assert!(plain.x().is_some() && ended.x() == plain.x(), "{threads}: {}", ended.text);
        job.assert_nothing_is_left();
    }
}

/// An example of an application with its own data.
fn example(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_BIN_EXE_skt-hpl")).parent().expect("a folder");
    let program = folder.join("examples").join(name);
    assert!(program.exists(), "cargo build --example {name}");
    program
}

/// Kills an example at each fault of a case, one after the other, with the memory of the dying rank
/// lost except in a recovery: its result has the same bits as undisturbed. Returns what it prints
/// undisturbed.
fn goes_on(name: &str, flags: &str, cases: &[&str]) -> String {
    let program = example(name);
    let want = for_program(&program, name, flags).start(&[]);
    assert!(want.ok && want.x().is_some(), "{}", want.text);
    for (number, faults) in cases.iter().enumerate() {
        // Another test may run the same example.
        let how = if flags.contains("--overlap") { "overlap" } else { "" };
        let job_name = format!("{name}{how}{number}");
        let job = for_program(&program, &job_name, &format!("{flags} {faults}"));
        for fault in faults.split("--inject ").skip(1) {
            let ended = job.start(&[]);
            assert!(!ended.ok && ended.x().is_none(), "{fault}: {}", ended.text);
            let rank: usize = fault[..1].parse().expect("a rank");
            if fault.contains("recover") {
                continue;
            }
            assert_eq!(job.lose(rank), 1);
        }
        let ended = job.start(&[]);
        assert!(ended.ok && ended.text.contains("rebuilt: ["), "{}", ended.text);
        assert_eq!(ended.x(), want.x(), "{}", ended.text);
        job.assert_nothing_is_left();
    }
    want.text
}

/// The last of four ranks has 36 of 150 bodies, or 4 of 22 planes; the others have 38, or 6.
#[test]
fn examples_go_on_with_the_same_bits() {
    let kill = "--inject 1@column:37 --inject 2@recover-rebuild";
    let cases = [
        kill,
        "--inject 3@flush:epoch=2,region=1 --inject 3@recover-stamp",
        "--inject 0@encode:epoch=4,region=2",
    ];
    goes_on("pcg", "--size 120 --every 10", &cases);
    let cases = [kill, "--inject 3@flush:epoch=2,region=1", "--inject 0@encode:epoch=4,region=0"];
    let text = goes_on("nbody", "--bodies 150 --steps 50 --every 10", &cases);
    assert!(text.contains("PASSED"), "{text}");
    let cases = [kill, "--inject 3@flush:epoch=2", "--inject 0@encode:epoch=4"];
    let text = goes_on("himeno", "--size 24 --iterations 50 --every 10", &cases);
    assert!(text.contains("PASSED"), "{text}");
    assert_is_gosa(&text, 24, 50);
}

/// A checkpoint is encoded from copies while the example computes on, by its own thread or by
/// another.
#[test]
fn examples_that_compute_while_encoding_have_the_same_bits() {
    let cases = ["--inject 1@column:37", "--inject 0@encode:epoch=3"];
    let x = |text: &str| text.lines().find(|line| line.starts_with("x: ")).map(str::to_owned);
    let flags = "--bodies 150 --steps 50 --every 10";
    let [overlapped, helped] = ["--overlap", "--overlap --helper"]
        .map(|how| x(&goes_on("nbody", &format!("{flags} {how}"), &cases)));
    let plain = for_program(&example("nbody"), "nbody-plain", flags).start(&[]);
    assert!(overlapped == helped && overlapped == x(&plain.text), "{}", plain.text);
    goes_on("himeno", "--size 24 --iterations 50 --every 10 --overlap --helper", &cases);
    goes_on("pcg", "--size 120 --every 10 --overlap --helper", &cases);
}

/// The check of the example detects steps that are too long, and reports it by its exit code.
#[test]
fn bodies_in_too_long_steps_fail() {
    let job = for_program(&example("nbody"), "nbody-long", "--bodies 150 --steps 20 --dt 0.5");
    let ended = job.start(&[]);
    assert!(!ended.ok && ended.text.contains("FAILED"), "{}", ended.text);
    job.assert_nothing_is_left();
}

/// Ranks without a plane of their own take part.
#[test]
fn the_himeno_benchmark_has_one_gosa_on_any_number_of_ranks() {
    let flags = "--size 5 --iterations 7";
    let of = |ranks| Job::new(&example("himeno"), ranks, &format!("gosa{ranks}"), flags);
    let texts = [2, 4].map(|ranks| of(ranks).start(&[]).text);
    let gosas = texts.each_ref().map(|text| gosa_of(text));
    assert_eq!(gosas[0], gosas[1], "{texts:?}");
    assert_is_gosa(&texts[0], 5, 7);
}

/// The value of gosa, as the Himeno benchmark prints it.
fn gosa_of(text: &str) -> f64 {
    let reported = text.split("gosa ").nth(1).and_then(|rest| rest.split_whitespace().next());
    reported.and_then(|gosa| gosa.parse().ok()).unwrap_or_else(|| panic!("no gosa: {text}"))
}

/// Compares gosa with that of a serial solution in double precision. With the benchmark's
/// coefficients, a point becomes the mean of the six around it.
fn assert_is_gosa(text: &str, size: usize, iterations: usize) {
    let (line, plane) = (2 * size, 2 * size * size);
    let pressure = |at: usize| ((at / plane) as f64 / (size - 1) as f64).powi(2);
    let mut p: Vec<f64> = (0..size * plane).map(pressure).collect();
    let is_inner =
        |at: usize, stride: usize, count: usize| (1..count - 1).contains(&(at / stride % count));
    let inner: Vec<usize> = (0..p.len())
        .filter(|&at| {
            is_inner(at, plane, size) && is_inner(at, line, size) && is_inner(at, 1, line)
        })
        .collect();
    let mut want = 0.0;
    for _ in 0..iterations {
        let around = |at: usize| [1, line, plane].map(|by| p[at - by] + p[at + by]);
        let changes: Vec<f64> =
            inner.iter().map(|&at| around(at).iter().sum::<f64>() / 6.0 - p[at]).collect();
        want = changes.iter().map(|change| change * change).sum();
        for (&at, change) in inner.iter().zip(&changes) {
            p[at] += 0.8 * change;
        }
    }
    let gosa = gosa_of(text);
    assert!((gosa / want - 1.0).abs() < 1e-4, "{want} serially: {text}");
}
