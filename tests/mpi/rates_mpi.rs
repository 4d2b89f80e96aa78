//! Process columns of unequal rates under mpirun: given, measured, and kept by restarts.

use std::path::Path;

use serde_json::{Value, json};

use crate::mpi_job::Job;
use crate::mpirun::mpi_program;
use crate::report_schema::Schema;

const FLAGS: &str = "--n 500 --nb 16 --p 1 --q 2 --checkpoint-every 4p! --progress off";

fn job(name: &str) -> Job {
    Job::new(Path::new(env!("CARGO_BIN_EXE_skt-hpl")), 2, &format!("rates-{name}"), FLAGS)
}

/// The line on the rates in the head of a report.
fn rates_line(text: &str) -> Option<&str> {
    text.lines().find(|line| line.starts_with("# rates    :"))
}

#[test]
fn a_restart_with_the_same_rates_gives_the_same_bits() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let report = file.path().to_str().expect("a name");
    let whole = job("whole").start(&["--rates", "1,2", "--json", report]);
    assert!(whole.ok && whole.text.contains("PASSED"), "{}", whole.text);
    assert_eq!(rates_line(&whole.text), Some("# rates    : 1,2"), "{}", whole.text);
    for column in ["# process_column: blocks 11, rate 1", "# process_column: blocks 21, rate 2"] {
        assert!(whole.text.contains(column), "{}", whole.text);
    }
    let report: Value = serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap();
    Schema::new(include_str!("../../docs/report.schema.json")).check(&report);
    assert_eq!(report["tests"][0]["parameters"]["rates"], json!([1.0, 2.0]));
    let columns = report["tests"][0]["process_columns"].as_array().expect("process columns");
    assert_eq!((columns.len(), &columns[1]["blocks"]), (2, &json!(21)));
    assert!(columns.iter().all(|column| column["waited_seconds"].as_f64().unwrap() >= 0.0));
    let killed = job("killed");
    let ended = killed.start(&["--rates", "1,2", "--inject", "1@encode:epoch=4"]);
    assert!(!ended.ok, "{}", ended.text);
    for other in [&["--rates", "2,1"][..], &[]] {
        let refused = killed.start(other);
        assert!(!refused.ok && refused.text.contains("application: rates"), "{}", refused.text);
    }
    let again = killed.start(&["--rates", "1,2"]);
    assert!(again.ok && again.text.contains(", epoch 3, "), "{}", again.text);
    assert_eq!(again.x(), whole.x());
    killed.assert_nothing_is_left();
}

/// Restarts take the rates that the first start has measured, or the same in a list.
#[test]
fn measured_rates_are_kept_by_restarts() {
    let killed = job("auto");
    let ended = killed.start(&["--rates", "auto", "--inject", "1@encode:epoch=4"]);
    let first = rates_line(&ended.text).expect("rates").to_owned();
    assert!(!ended.ok && first.contains(": auto: "), "{}", ended.text);
    let mut larger = Job::new(Path::new(env!("CARGO_BIN_EXE_skt-hpl")), 3, "rates-auto", FLAGS);
    larger.flags.iter_mut().filter(|flag| *flag == "2").for_each(|q| *q = "3".to_owned());
    let refused = larger.start(&["--rates", "auto"]);
    assert!(!refused.ok && refused.text.contains("application: q 2 there, 3"), "{}", refused.text);
    let again = killed.start(&["--rates", "auto"]);
    assert!(again.ok && again.text.contains(", epoch 3, "), "{}", again.text);
    assert_eq!(rates_line(&again.text), Some(first.as_str()), "{}", again.text);
    killed.assert_nothing_is_left();
}

/// All nodes have lost their memory, and the images have the rates.
#[test]
fn measured_rates_are_kept_by_images() {
    let folder = tempfile::tempdir().expect("a folder");
    let level = format!("local:{},every=1e-3s!", folder.path().display());
    let killed = job("images");
    let flags = ["--rates", "auto", "--level", &level];
    let ended = killed.start(&[&flags[..], &["--inject", "1@encode:epoch=6"]].concat());
    let first = rates_line(&ended.text).expect("rates").to_owned();
    assert!(!ended.ok && first.contains(": auto: "), "{}", ended.text);
    let store = ["store", "clean", "--run", killed.run()];
    let cleaned = mpi_program(env!("CARGO_BIN_EXE_skt-hpl")).args(store).output().unwrap();
    assert!(cleaned.status.success(), "{cleaned:?}");
    let again = killed.start(&flags);
    assert!(again.ok && again.text.contains(", level local:"), "{}", again.text);
    assert_eq!(rates_line(&again.text), Some(first.as_str()), "{}", again.text);
}

#[test]
fn rates_and_checksums_exclude_each_other() {
    for rates in ["1,2", "auto"] {
        let refused = job("abft").start(&["--ft", "abft", "--rates", rates]);
        let words = "--rates: process columns of unequal rates have no checksums with --ft abft";
        assert!(!refused.ok && refused.text.contains(words), "{}", refused.text);
    }
}
