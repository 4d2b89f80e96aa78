//! The bits of x, compared with those in a golden file, which shows that a change of the solver
//! changes no bit.
//!
//! Bits depend on the kernels of the BLAS and on the processor's vector sets, so the file has a
//! table for each known combination; on others the test reports that it has none. `SKT_BLESS=1`
//! writes the table of this machine; `SKT_HPL_PROGRAM` names another build of the program, to take
//! its bits or to compare them.

use std::collections::BTreeMap;
use std::fs;

use crate::mpirun::mpirun;
use crate::skipped::skipped;
use serde_json::Value;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/fingerprints.json");

/// Number of ranks, threads per rank, and the tests that they run.
const RUNS: [(usize, usize, &str); 4] = [
    (4, 1, "--n 129,500 --nb 24,64 --p 2,1,4 --q 2,4,1 --depth 0,1 --rfact left"),
    (
        4,
        1,
        "--n 129,500 --nb 24,64 --p 2,1,4 --q 2,4,1 --depth 0,2 --swap spread-roll --bcast 5 \
         --transport messages",
    ),
    (2, 2, "--n 700 --nb 32,96 --p 1,2 --q 2,1 --depth 0,1,2 --pfact left,crout,right"),
    (2, 3, "--n 1500 --nb 128 --p 1 --q 2 --depth 0,1 --ft self --checkpoint-every 3p!"),
];

/// The report of a run.
fn run((ranks, threads, flags): (usize, usize, &str)) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let program = std::env::var("SKT_HPL_PROGRAM");
    let program = program.as_deref().unwrap_or(env!("CARGO_BIN_EXE_skt-hpl"));
    let mut job = mpirun(ranks);
    job.arg(program)
        .args(flags.split_whitespace())
        .args(["--threads", &threads.to_string(), "--json", "report.json", "--progress", "off"])
        .args(["--run-id", &format!("fingerprints-{}", std::process::id())])
        // Kernels that all processors of the last ten years have.
        .env("OPENBLAS_CORETYPE", "Haswell");
    crate::mpirun::run(job.current_dir(folder.path())).expect(0);
    let report = fs::read_to_string(folder.path().join("report.json")).unwrap();
    serde_json::from_str(&report).unwrap()
}

/// What the bits depend on besides the solver.
fn surroundings(report: &Value) -> String {
    let blas = &report["environment"]["blas"];
    let has_avx512 = std::arch::is_x86_feature_detected!("avx512f");
    let vectors = if has_avx512 { "AVX-512" } else { "no AVX-512" };
    format!("{}, kernel {}, {vectors}", blas["version"], blas["kernel"]).replace('"', "")
}

#[test]
fn x_has_the_bits_that_it_had() {
    let reports: Vec<Value> = RUNS.into_iter().map(run).collect();
    let surroundings = surroundings(&reports[0]);
    let of_run = |report: &Value| -> Vec<String> {
        let tests = report["tests"].as_array().unwrap().iter();
        tests.map(|test| test["x_fingerprint"].as_str().expect("a solved test").into()).collect()
    };
    let prints: Vec<Vec<String>> = reports.iter().map(of_run).collect();
    assert_eq!(prints.iter().map(Vec::len).collect::<Vec<_>>(), [24, 24, 36, 2]);
    // A line for each run.
    let prints: Vec<String> = prints.iter().map(|of_run| of_run.join(" ")).collect();
    let golden = fs::read_to_string(GOLDEN).unwrap_or("{}".into());
    let mut golden: BTreeMap<String, Vec<String>> = serde_json::from_str(&golden).unwrap();
    if std::env::var_os("SKT_BLESS").is_some() {
        golden.insert(surroundings, prints);
        fs::write(GOLDEN, serde_json::to_string_pretty(&golden).unwrap() + "\n").unwrap();
        return;
    }
    match golden.get(&surroundings) {
        Some(golden) => assert_eq!(prints, *golden, "{surroundings}"),
        None => skipped(format!("{GOLDEN} has no fingerprints for {surroundings}")),
    }
}
