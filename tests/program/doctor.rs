//! `skt-hpl doctor` on trees of files.

use std::fs;
use std::path::Path;
use std::process::Output;

use crate::built::PROGRAM;
use crate::mpirun::mpi_program;
use crate::report_schema::Schema;

fn doctor(args: &[&str]) -> Output {
    mpi_program(PROGRAM).arg("doctor").args(args).output().expect("the program")
}

fn file(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A machine of four cores that is well.
fn machine() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    file(root, "sys/devices/system/cpu/online", "0-3\n");
    file(root, "proc/self/status", "Cpus_allowed_list:\t0-3\nMems_allowed_list:\t0\n");
    file(root, "proc/cpuinfo", "model name : Xeon @ 2.00GHz\nflags : sse2 avx avx2 fma\n");
    folder
}

#[test]
fn a_machine_that_is_well_ends_with_0() {
    let folder = machine();
    let output = doctor(&["--root", folder.path().to_str().unwrap()]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    let (head, rest) = text.split_once(": ").unwrap();
    assert_eq!(head, folder.path().to_str().unwrap());
    let want = "Xeon @ 2.00GHz, 4 core(s), 1 rank(s), 4 thread(s) in all\n  peak : 128.0 Gflop/s \
                by 4 core(s) x 16 flop a cycle x 2.00 GHz (nominal)\nnothing found\n";
    assert_eq!(rest, want);
}

#[test]
fn a_quota_ends_with_1_and_is_in_both_reports() {
    let folder = machine();
    let root = folder.path();
    file(root, "proc/self/cgroup", "0::/\n");
    let mount = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    file(root, "proc/self/mountinfo", mount);
    file(root, "sys/fs/cgroup/cpu.max", "50000 100000\n");
    let json = root.join("doctor.json");
    let args = ["--root", root.to_str().unwrap(), "--json", json.to_str().unwrap()];
    let alone = doctor(&["--root", root.to_str().unwrap(), "--json", "-"]).stdout;
    let output = doctor(&args);
    assert_eq!(alone, fs::read(&json).unwrap(), "instead of the text");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    let finding = format!(
        "\n1. a control group limits the processor time\n   measured: {0}/sys/fs/cgroup/cpu.max \
         leaves 0.50 of 4 core(s)\n   remedy  : echo max > {0}/sys/fs/cgroup/cpu.max (as root, \
         outside of the container), or docker update --cpus 4 CONTAINER; or 1 rank(s) with one \
         thread\n   gain    : up to 8.0 times the rate, inferred, not measured\n",
        root.display()
    );
    assert!(text.ends_with(&finding), "{text}");
    let report: serde_json::Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    Schema::new(include_str!("../../docs/doctor.schema.json")).check(&report);
    let found = &report["findings"][0];
    assert_eq!(found["kind"], "quota");
    let want = serde_json::json!({"times": 8.0, "is_measured": false});
    assert_eq!(found["gain"], want);
}

#[test]
fn counters_of_energy_are_named() {
    let folder = machine();
    let zone = "sys/class/powercap/intel-rapl:0";
    file(folder.path(), &format!("{zone}/name"), "package-0\n");
    file(folder.path(), &format!("{zone}/energy_uj"), "1000000\n");
    let output = doctor(&["--root", folder.path().to_str().unwrap()]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("\n  power: RAPL, 1 processor package(s)\n"), "{text}");
}

#[test]
fn healthy_hosts_of_a_list_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    file(folder.path(), "hosts", "127.0.0.1\n127.0.0.2 slots=2\n");
    // An agent that runs the command here.
    file(folder.path(), "agent", "sh -c \"$2\"\n");
    let [hosts, agent, json] = ["hosts", "agent", "json"].map(|name| folder.path().join(name));
    let agent = format!("sh {}", agent.display());
    let [hosts, json] = [&hosts, &json].map(|path| path.to_str().unwrap());
    let output = doctor(&["--hosts", hosts, "--agent", &agent, "--threads", "1", "--json", json]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("\n2 listed host(s): packets and agent well\n"), "{text}");
    let report: serde_json::Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    Schema::new(include_str!("../../docs/doctor.schema.json")).check(&report);
}
