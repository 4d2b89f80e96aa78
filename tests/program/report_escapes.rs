//! Nothing that a terminal obeys leaves a report.

use std::fs;
use std::path::Path;
use std::process::Output;

use crate::mpirun::mpi_program;
use crate::report_common::{record, small_run};
use crate::report_json::facts;
use skt_hpl::report::JsonReport;
use tempfile::TempDir;

/// A folder with the JSON report of a run, `run.json`.
fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    let spec = small_run();
    let mut report = JsonReport::create(&folder.path().join("run.json"), &spec, facts()).unwrap();
    report.test(&record(spec.tests().remove(0)), "T/V  N\nWR00\n").unwrap();
    report.finish("End of Tests.\n").unwrap();
    folder
}

fn report(folder: &Path, args: &str) -> Output {
    let mut command = mpi_program(env!("CARGO_BIN_EXE_skt-hpl"));
    command.arg("report").args(args.split(' ')).current_dir(folder).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[track_caller]
fn done(folder: &Path, args: &str) -> Output {
    let output = report(folder, args);
    assert!(output.status.success(), "{args}: {}", stderr(&output));
    output
}

/// Adds to each text of a report what a terminal obeys: an escape sequence, a control sequence of
/// one character, and an order to display from right to left.
fn poison(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::String(text) => text.push_str("\u{1b}]0;x\u{7}\u{9b}2J\r\u{202e}"),
        serde_json::Value::Array(items) => items.iter_mut().for_each(poison),
        serde_json::Value::Object(members) => {
            // Choices have names.
            const CHOICES: [&str; 9] = [
                "pmap",
                "bcast",
                "rfact",
                "pfact",
                "swap",
                "generator",
                "transport",
                "matrix",
                "gemm",
            ];
            let is_word = |key: &str| ["format", "status"].contains(&key) || CHOICES.contains(&key);
            let texts = members.iter_mut().filter(|(key, _)| !is_word(key));
            texts.for_each(|(_, value)| poison(value));
        }
        _ => {}
    }
}

#[test]
fn no_escape_sequence_of_a_report_leaves() {
    let folder = folder();
    let at = folder.path();
    let file = at.join("run.json");
    let mut report: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    poison(&mut report);
    report["environment"]["blas"]["a\u{1b}[2Jb"] = "x".into();
    report["tests"][0]["memory_bytes"]["a\u{1b}[2Jb"] = 5.into();
    fs::write(&file, report.to_string()).unwrap();
    let name = "run\u{1b}[31m.json";
    fs::write(at.join(name), report.to_string()).unwrap();
    let is_safe = |what: &str, text: &[u8]| {
        let text = std::str::from_utf8(text).expect(what);
        let obeyed = |c: &char| skt_host::shown::is_obeyed(*c) && !matches!(c, '\n' | '\t');
        assert_eq!(text.chars().find(obeyed), None, "{what}: {text:?}");
        assert!(!text.is_empty(), "{what}");
    };
    let sheet = done(at, &format!("{name} --top500")).stdout;
    is_safe("the fields of a submission", &sheet);
    assert!(
        String::from_utf8(sheet).unwrap().contains("\\u001b]0;x\\u0007\\u009b2J\\u000d\\u202e")
    );
    is_safe("the page on standard output", &done(at, "run.json --out -").stdout);
    is_safe("a message", &done(at, &format!("{name} --out page\u{1b}[31m.html")).stderr);
    is_safe("the page", &fs::read(at.join("page\u{1b}[31m.html")).unwrap());
    report["format"] = "\u{1b}[31m".into();
    fs::write(&file, report.to_string()).unwrap();
    is_safe("a refusal", &self::report(at, "run.json").stderr);
}
