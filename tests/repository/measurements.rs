//! Raw runs in docs/measurements: each file is used, and the machine of the model is that of its
//! runs.

use std::fs;
use std::path::{Path, PathBuf};

use skt_hpl::report::measured::parse;
use skt_model::path::{Changes, Machine, MeasuredTest, fit, measured, predict};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs")
}

/// The fastest measurement of each run of 2026-11-20 whose report was written to a file (`--json`)
/// with this beginning of its name.
fn runs(beginning: &str) -> Vec<MeasuredTest> {
    let text = fs::read_to_string(docs().join("measurements/2026-11-20-path.jsonl")).unwrap();
    let is_named = |report: &&str| {
        let report: serde_json::Value = serde_json::from_str(report).unwrap();
        let words = report["command_line"].as_array().unwrap();
        let flag = words.iter().position(|word| word == "--json").unwrap();
        words[flag + 1].as_str().unwrap().starts_with(beginning)
    };
    let tests = text.lines().filter(is_named).flat_map(|report| parse(report).unwrap());
    let tests: Vec<MeasuredTest> = tests.collect();
    assert!(!tests.is_empty(), "{beginning}");
    measured::fastest(&tests)
}

/// The model was fitted when spread-roll still rolled uneven shares of rows, as these runs did.
/// Since then single units that the runs hardly determine have moved, so times are compared.
#[test]
fn the_machine_of_the_model_is_that_of_the_raw_runs() {
    let fitted: Vec<MeasuredTest> =
        runs("fit-").into_iter().filter(|measured| measured.run.n >= 2048).collect();
    let (found, kept) =
        (fit::fit(&fitted, &Machine::ZEN4_CORE).unwrap().machine, Machine::ZEN4_CORE);
    for MeasuredTest { run, .. } in runs("check-") {
        let seconds = |machine| predict(&run, machine, &Changes::default()).unwrap().time_seconds;
        let (found, kept) = (seconds(&found), seconds(&kept));
        assert!((found / kept - 1.0).abs() < 3e-3, "{run:?}: {found} s, in the code {kept} s");
    }
}

#[test]
fn every_file_of_measurements_is_named_where_it_is_used() {
    let readme = docs().join("../README.md");
    let entries = fs::read_dir(docs()).unwrap().map(|entry| entry.unwrap().path());
    let pages = entries.filter(|path| path.extension().is_some_and(|end| end == "md"));
    let all = pages.chain([readme, docs().join("measurements/notebook.md")]);
    let text: String = all.map(|page| fs::read_to_string(page).unwrap()).collect();
    // The folder of a picture and its runs is named by its name.
    for entry in fs::read_dir(docs().join("measurements")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(text.contains(&name), "no page names docs/measurements/{name}");
    }
}
