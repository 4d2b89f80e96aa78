//! Whose data a start continues: that of the same program with the same arguments in the same
//! folder, unless the option `application` names what the data depends on. All others are refused
//! with what differs, and nothing of the run is lost.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::build::{checkout, compile_c};
use crate::clients::{Ended, Run};

const STEPS: u64 = 1500;

fn build(name: &str, flags: &[&str]) -> PathBuf {
    let source = checkout().join("crates/skt-checkpoint-c/tests/c_sources/count.c");
    compile_c(&source, name, "gcc", flags)
}

fn start(run: &Run) -> Ended {
    run.start(&[], 0, Duration::ZERO)
}

/// Kills rank 1 when three checkpoints are complete, so that all ranks have an image of the first.
fn kill_one(run: &Run) {
    let killed = run.start(&[1], 3, Duration::ZERO);
    assert!(!killed.ok && killed.out.is_empty(), "{}", killed.err);
}

#[track_caller]
fn is_refused(run: &Run, differs: &str) {
    let ended = start(run);
    assert!(!ended.ok && ended.out.is_empty(), "{}{}", ended.out, ended.err);
    assert!(ended.err.contains(differs), "{differs}: {}", ended.err);
}

#[track_caller]
fn continues(run: &Run, result: &str) {
    let ended = start(run);
    assert!(ended.ok && ended.err.contains("continues from step "), "{}", ended.err);
    assert_eq!(ended.out, format!("sum of squares {result}\n"));
}

#[test]
fn another_program_or_call_does_not_continue_the_data() {
    let (program, rebuilt) = (build("count", &[]), build("count-rebuilt", &["-DBY=2"]));
    let elsewhere = tempfile::tempdir().expect("a folder");
    let [foreign, moved] = ["foreign", "moved"].map(|name| {
        let folder = elsewhere.path().join(name);
        fs::create_dir(&folder).expect("our folder");
        folder.join("count")
    });
    fs::copy(&rebuilt, &foreign).expect("room");
    fs::copy(&program, &moved).expect("room");
    for reach in [None, Some("local"), Some("global")] {
        let mut run = Run::new(&program, "identity", STEPS);
        if let Some(reach) = reach {
            run = run.with_level(reach);
        }
        kill_one(&run);
        if reach.is_some() {
            run.lose_all();
        }
        run.steps = STEPS + 100;
        is_refused(&run, "application: arguments \"1500\" there, \"1600\" here");
        run.steps = STEPS;
        run.more = vec!["--verbose".to_owned()];
        is_refused(&run, "arguments \"1500\" there, \"1500 --verbose\" here");
        run.more.clear();
        for other in [&rebuilt, &foreign] {
            run.program = other.clone();
            is_refused(&run, "application: contents of the program \"");
        }
        run.program = moved.clone();
        run.folder = Some(elsewhere.path().to_owned());
        is_refused(&run, "application: working folder \"");
        run.folder = None;
        continues(&run, "1500");
    }
}

/// The ranks of the second half have an argument more.
#[test]
fn the_arguments_of_each_rank_count() {
    let mut run = Run::new(&build("count-halves", &[]), "halves", STEPS);
    run.more_of_half = Some("a".to_owned());
    kill_one(&run);
    let whole = "application: program and arguments of other ranks \"";
    for other in [Some("b".to_owned()), None] {
        run.more_of_half = other;
        is_refused(&run, whole);
    }
    run.more_of_half = Some("a".to_owned());
    continues(&run, "1500");
}

#[test]
fn option_application_alone_identifies_the_data() {
    let mut run = Run::new(&build("count-named", &[]), "named", STEPS);
    run.variables = vec![("SKT_APPLICATION", "a count".to_owned())];
    kill_one(&run);
    run.variables = vec![("SKT_APPLICATION", "another".to_owned())];
    is_refused(&run, "application a count there, another here");
    run.variables.clear();
    is_refused(&run, "application a count there, not given here");
    run.variables = vec![("SKT_APPLICATION", "a count".to_owned())];
    (run.program, run.steps) = (build("count-named-2", &["-DBY=2"]), STEPS + 1);
    let ended = start(&run);
    assert!(ended.ok && ended.err.contains("continues from step "), "{}", ended.err);
}

/// The first of two runs of one name finds what the second has left.
#[test]
fn a_run_does_not_continue_the_data_of_a_later_one() {
    // With three checkpoints each.
    let run = Run::new(&build("count-twice", &["-DRUNS=2"]), "twice", 200);
    let killed = run.start(&[1], 5, Duration::ZERO);
    assert!(!killed.ok && killed.out == "sum of squares 200\n", "{}{}", killed.out, killed.err);
    is_refused(&run, "runs of this name that the process has ended 1 there, 0 here");
}
