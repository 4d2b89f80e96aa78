use std::fs;
use std::path::Path;

use crate::program::{refusal, stdout};

fn write(folder: &Path, name: &str, text: &str) {
    fs::write(folder.join(name), text).unwrap();
}

#[test]
fn the_critical_path_is_shown_whole_and_as_json() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let grid = "path --p 16 --q 16 --threads 4 --memory-gib 1";
    let text = stdout(folder, &format!("{grid} --nb 192,256 --changes"));
    // 256 GiB of doubles are 185,363 rows, cut to whole blocks.
    let row = |name: &str| {
        let line = text.lines().map(str::trim_start).find(|line| line.starts_with(name));
        line.expect(&text).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert!(["n 185280 185344", "n 185344 185280"].contains(&&*row("n ")), "{text}");
    assert!(["nb 192 256", "nb 256 192"].contains(&&*row("nb ")), "{text}");
    assert!(row("change ").starts_with("change rows of all columns at once panels"), "{text}");
    assert!(row("reference_formula_seconds ").len() > 30, "{text}");
    let network = "--latency-us 1.5 --bandwidth-gbs inf --json";
    let json = stdout(folder, &format!("{grid} {network}"));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let run = &json["runs"][0];
    let path = run["path_seconds"].as_object().unwrap();
    let sum: f64 = path.values().map(|seconds| seconds.as_f64().unwrap()).sum();
    let time = run["time_seconds"].as_f64().unwrap();
    assert!((sum - time).abs() < 1e-9 * time, "the path explains the time: {sum}, {time}");
    assert_eq!(json["machine"]["message_byte_seconds"], 0.0);
}

#[test]
fn a_machine_is_fitted_saved_and_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut reports = Vec::new();
    for n in [3000, 4000, 6000] {
        for nb in [64, 128, 256] {
            let printed = stdout(folder, &format!("path --json --n {n} --nb {nb}"));
            let printed: serde_json::Value = serde_json::from_str(&printed).unwrap();
            let report = path_report(n, nb, &printed["runs"][0]["phases_mean_seconds"], "null");
            reports.push(format!("{n}-{nb}.json"));
            write(folder, reports.last().unwrap(), &report);
        }
    }
    let reports = reports.join(" ");
    let printed = stdout(folder, &format!("path --save-machine m.json --fit {reports}"));
    assert!(printed.contains("machine: product_flop_seconds"), "{printed}");
    let again = refusal(folder, "path --n 1000 --save-machine m.json");
    assert!(again.contains("m.json"), "{again}");
    let check = format!("path --machine m.json --check {reports}");
    let table = stdout(folder, &check);
    assert!(table.contains("compared_tests") && table.contains("and 1 more: --json"), "{table}");
    let json = stdout(folder, &format!("{check} --json"));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let error = json["tests"][8]["time_error"].as_f64().unwrap();
    assert!(json["largest_time_error"].as_f64().unwrap() >= error.abs());
    assert!(error.abs() < 0.01, "it was fitted to this: {error}");
}

#[test]
fn unusable_reports_and_flags_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let phases = serde_json::json!({"update": 0.4});
    write(folder, "ft.json", &path_report(3000, 64, &phases, "{}"));
    let shared = path_report(3000, 64, &phases, "null")
        .replace("\"p\": 1", "\"p\": 2")
        .replace("\"status\"", "\"by_messages\": [], \"status\"");
    write(folder, "shared.json", &shared);
    write(folder, "no.json", "{\"format\": \"other\", \"tests\": []}");
    write(folder, "m.json", "{\"speed\": 3}");
    for (args, want) in [
        ("--check ft.json", "without checkpoints"),
        ("--check shared.json", "--transport messages"),
        ("--fit shared.json", "--transport messages"),
        ("--check no.json", "not \"skt-hpl report\""),
        ("--machine m.json --n 1000", "no machine as --save-machine writes it"),
        ("--fit gone.json", "gone.json"),
        ("", "Give --n or --memory-gib"),
        ("--n 1000 --nb 0", "nb = 0"),
        ("--n 1000 --p 30000000", "at most 30000000"),
        ("--n 9007199254740992", "is out of range"),
        (
            "--n 1000 --bandwidth-gbs 0",
            "--bandwidth-gbs <GB/S>': legal is a number above 0, or inf",
        ),
        ("--n 1000 --gflops-per-core -1", "--gflops-per-core"),
        ("--n 1000 --latency-us -1", "--latency-us"),
        ("--memory-gib 1e-9", "not enough for one block"),
        ("--n 1000 --bcast star", "star"),
    ] {
        let message = refusal(folder, &format!("path {args}"));
        assert!(message.contains(want), "{args:?}: {message}");
    }
}

/// A report of one test, as `--json` writes it, without the fields that the model does not read.
fn path_report(n: usize, nb: usize, phases: &serde_json::Value, protection: &str) -> String {
    let seconds: f64 = phases.as_object().unwrap().values().map(|s| s.as_f64().unwrap()).sum();
    format!(
        r#"{{"format": "skt-hpl report", "tests": [{{
            "parameters": {{"n": {n}, "nb": {nb}, "p": 1, "q": 1, "depth": 1, "bcast": "1ring",
                "swap": "mix", "swap_threshold": 64, "threads": 1}},
            "status": "passed", "time_seconds": {seconds}, "protection": {protection},
            "phases_seconds": {{"max": {{}}, "mean": {phases}}}
        }}]}}"#
    )
}
