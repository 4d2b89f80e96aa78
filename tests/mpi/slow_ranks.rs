//! A rank whose BLAS is slowed to a fraction of what any machine does is named in the report, in
//! the JSON report and in the progress, at whatever place of the grid and with any method.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::large_machine;
use crate::mpirun::{self, Ended, mpirun, preloadable};
use crate::report_schema::Schema;

/// A run in which the BLAS of one rank does 0.5 Gflop/s, and that of the others 1.5; its standard
/// output and standard error, and its JSON report.
fn run(ranks: usize, slow: usize, flags: &str) -> (String, String, Value) {
    let mut command = mpirun(ranks);
    let slow = slow.to_string();
    // So slow that the run takes several times the two seconds for which a lag must last.
    let times = [("ALL_GFLOPS", "0.6"), ("GFLOPS", "0.2"), ("RANK", &slow)];
    let planted = large_machine::slow(&mut command, &times);
    let ended = run_by(command, &format!("--n 2000 --progress live {flags}"));
    planted.assert();
    ended
}

fn run_by(mut command: Command, flags: &str) -> (String, String, Value) {
    let folder = TempDir::new().expect("a folder");
    command.args([env!("CARGO_BIN_EXE_skt-hpl"), "--nb", "64", "--json", "report.json"]);
    let Ended { out, err, .. } =
        mpirun::run(command.args(flags.split(' ')).current_dir(&folder)).expect(0);
    let text = std::fs::read_to_string(folder.path().join("report.json")).expect("a report");
    let value: Value = serde_json::from_str(&text).expect("JSON");
    Schema::new(include_str!("../../docs/report.schema.json")).check(&value);
    (out, err, value)
}

/// The per cent and the column of the only line about a slow rank, which must have this form:
/// `# slow: host HOST, lag_percent 38.1, rank R, since_column 4096, ...`.
#[track_caller]
fn only_line(out: &str, rank: usize) -> (f64, usize) {
    let lines: Vec<&str> = out.lines().filter_map(|line| line.strip_prefix("# slow: ")).collect();
    let &[line] = &lines[..] else { panic!("{} lines in {out}", lines.len()) };
    let words: Vec<(&str, &str)> =
        line.split(", ").filter_map(|word| word.split_once(' ')).collect();
    let value = |key: &str| words.iter().find(|(name, _)| *name == key).expect(line).1;
    let host = value("host");
    assert!(!host.is_empty() && !host.contains(' '), "{line}");
    assert_eq!(value("rank"), rank.to_string(), "{line}");
    (value("lag_percent").parse().expect(line), value("since_column").parse().expect(line))
}

#[test]
#[should_panic(expected = "the fault was not planted")]
fn a_library_that_no_rank_has_loaded_fails_by_name() {
    let mut no_rank = Command::new("true");
    let planted = large_machine::slow(&mut no_rank, &[("GFLOPS", "1")]);
    assert!(no_rank.status().expect("true").success());
    planted.assert();
}

#[test]
#[should_panic(expected = "/nowhere/slow.so is not preloaded")]
fn a_library_that_cannot_be_loaded_fails_by_name() {
    preloadable(Path::new("/nowhere/slow.so"));
}

/// A name with blanks or colons would be several in `LD_PRELOAD`.
#[test]
fn a_library_with_any_name_can_be_preloaded() {
    for name in ["a b.so", "a:b.so", " : "] {
        let folder = TempDir::new().expect("a folder");
        let named = folder.path().join(name);
        std::fs::copy(large_machine::library(), &named).expect("our folder");
        preloadable(&named);
    }
}

#[test]
fn a_slow_rank_is_named_everywhere() {
    for (ranks, slow, flags) in [
        (2, 0, "--p 2 --q 1 --depth 0 --transport messages"),
        (2, 1, "--p 1 --q 2 --threads 2 --ft self"),
        (3, 2, "--p 1 --q 2 --ft abft"),
    ] {
        println!("{flags}");
        let (out, err, json) = run(ranks, slow, flags);
        let (percent, column) = only_line(&out, slow);
        assert!((30.0..100.0).contains(&percent) && column < 1000, "{percent} % from {column}");
        assert!(err.contains(&format!(" rank {slow} -")), "{err}");
        let reported = &json["tests"][0]["slow"];
        assert_eq!(reported["named"][0]["rank"], slow, "{reported}");
        assert_eq!(reported["ranks"].as_array().map(Vec::len), Some(ranks), "{reported}");
        let windows = reported["columns"].as_array().expect("columns").len() - 1;
        for rank in reported["ranks"].as_array().expect("ranks") {
            let rates = rank["gflops_a_thread"].as_str().expect("rates");
            assert_eq!(rates.split(' ').count(), windows, "{reported}");
            assert!(rates.split(' ').take(windows / 2).all(|rate| rate != "-"), "{reported}");
        }
    }
}

/// One rank has none to be compared with, and a small test takes too short a time.
#[test]
fn incomparable_ranks_are_not_reported() {
    for (ranks, flags) in [(1, "--n 2500 --p 1 --q 1"), (2, "--n 500 --p 1 --q 2")] {
        let (out, _, json) = run_by(mpirun(ranks), &format!("--progress off {flags}"));
        assert!(!out.contains("# slow:"), "{out}");
        assert_eq!(json["tests"][0]["slow"], Value::Null);
    }
}
