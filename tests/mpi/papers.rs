//! The experiments of the papers, tiny: each runs to its end and prints its table.

use std::path::Path;
use std::process::Stdio;

use crate::mpirun::mpi_program;
use crate::skipped::{lacks, namespaces};

/// Runs an experiment of `scripts/measure/papers` with programs that are built as this test is.
/// Returns the table, and draws the raw runs.
fn table(experiment: &str, flags: &str) -> String {
    let (program, folder) =
        (Path::new(env!("CARGO_BIN_EXE_skt-hpl")), tempfile::tempdir().expect("a folder"));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/measure/papers");
    let raw = folder.path().join("raw.csv");
    let ended = mpi_program(script)
        .args([experiment, "--runs", "1", "--program"])
        .arg(program)
        .arg("--raw")
        .arg(&raw)
        .args(flags.split_whitespace())
        .stdin(Stdio::null())
        .output()
        .expect("python3");
    let wrong = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{experiment}: {wrong}");
    let runs = std::fs::read_to_string(raw).expect("the raw runs");
    assert!(runs.lines().skip(3).count() > 1, "{experiment}: {runs}");
    String::from_utf8(ended.stdout).expect("a table")
}

/// The cells of the row that begins with `head`, without the paper's.
fn values(table: &str, head: &str) -> Vec<f64> {
    let row = table.lines().find(|line| line.starts_with(&format!("| {head} |")));
    let cells = row.unwrap_or_else(|| panic!("no row {head}: {table}")).split('|').skip(2);
    cells.filter_map(|cell| cell.trim().parse().ok()).collect()
}

#[test]
fn encodings_are_compared_with_mpi_reduce() {
    if lacks(&["python3", "mpicc"]) {
        return;
    }
    let codes = table("codes", "--mib 0.2 --ranks 2");
    assert_eq!(values(&codes, "2").len(), 5, "{codes}");
    let chain = table("chain", "--mib 0.5 --ranks 3");
    assert!(chain.contains("| ring | MPI_Reduce |"), "{chain}");
    assert_eq!(chain.lines().count(), 2 + 4 + 1, "{chain}");
}

#[test]
fn checkpoints_are_measured_by_group_and_region() {
    if lacks(&["python3"]) {
        return;
    }
    let groups = table("groups", "--mib 2 --ranks 2,4");
    // Of 2 MiB a rank with two copies, half minus the parities is left.
    let sizes = groups.split("MiB").nth(1).expect("a table of sizes");
    let (two, four) = (values(sizes, "2")[0], values(sizes, "4")[0]);
    assert!(0.3 < two && two < four && four < 1.0, "{groups}");
    let regions = table("regions", "--mib 4");
    let ratio = |region: &str| values(&regions, region)[3];
    assert!(ratio("whole") > ratio("side"), "{regions}");
    assert!(ratio("side") > 1.0 && ratio("corner") == 1.0, "{regions}");
}

/// The script compares x with that of an undisturbed run.
#[test]
fn pcg_survives_four_losses_at_once() {
    if lacks(&["python3"]) {
        return;
    }
    let recovery = table("recovery", "--mib 0.1 --ranks 8");
    assert!(values(&recovery, "8").iter().all(|&seconds| seconds > 0.0), "{recovery}");
}

#[test]
fn losses_with_checksums_are_measured_by_stage() {
    if lacks(&["python3"]) {
        return;
    }
    let checksums = table("checksums", "--n 640");
    let stages = checksums.lines().filter(|line| line.contains("/4 |")).count();
    assert_eq!(stages, 2 * 4, "{checksums}");
}

#[test]
fn clients_are_measured_with_and_without_checkpoints() {
    if lacks(&["python3"]) {
        return;
    }
    let clients = table("clients", "--mib 0.05 --ranks 2");
    assert_eq!(values(&clients, "2").len(), 5, "{clients}");
    assert!(clients.contains("| helper and SSD, % | paper |"), "{clients}");
}

#[test]
fn the_phases_of_a_loss_are_measured() {
    if lacks(&["python3"]) || namespaces(&["--pid", "--net", "--mount", "--fork"]).is_none() {
        return;
    }
    let loss = table("loss", "--n 4000");
    for phase in ["detection", "replacement", "restart", "recovery"] {
        assert!(values(&loss, phase)[0] > 0.0, "{loss}");
    }
}
