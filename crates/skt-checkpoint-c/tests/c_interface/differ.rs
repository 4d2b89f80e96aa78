//! Options that differ between ranks: all ranks refuse, and name the rank and the option.

use std::fs;
use std::process::{Command, Output, Stdio};

use skt_checkpoint_c::OPTIONS;
use skt_checkpoint_c::code::Code;

use crate::build::{checkout, compile_c};
use crate::clients::mpirun::mpirun;

const RANKS: usize = 4;
/// A job that takes longer hangs.
const LIMIT_SECONDS: &str = "120";

fn source(name: &str) -> std::path::PathBuf {
    checkout().join("crates/skt-checkpoint-c/tests/c_sources").join(name)
}

fn run(mut job: Command, name: &str) -> Output {
    job.env("SKT_RUN_ID", format!("differ-{}-{name}", std::process::id()));
    job.env("MPIEXEC_TIMEOUT", LIMIT_SECONDS).stdin(Stdio::null());
    job.output().expect("mpirun")
}

#[test]
fn each_option_that_one_rank_alone_has_is_refused_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let racks = folder.path().join("racks");
    let host = fs::read_to_string("/proc/sys/kernel/hostname").expect("Linux");
    fs::write(&racks, format!("{} rack\n", host.trim())).expect("room");
    let racks = racks.display().to_string();
    // In the environment of all ranks, a run has a name; `application` depends on the program.
    let others = [
        ("application", "other", None),
        ("group_size", "8", Some("16 (the default)")),
        ("parities", "2", Some("1 (the default)")),
        ("codec", "sum", Some("xor (the default)")),
        ("resume", "require", Some("auto (the default)")),
        ("store", "posix", Some("sysv (the default)")),
        ("domains", &racks, Some("none (the default)")),
        ("allow_shared_domains", "true", Some("false (the default)")),
        ("mtbf_seconds", "5", Some("86400 (the default)")),
        ("timeout_seconds", "77", Some("600 (the default)")),
        ("levels", "local:/tmp", Some("none (the default)")),
        ("time_limit", "2h", Some("auto (the default)")),
    ];
    let mut names: Vec<&str> = others.iter().map(|(name, ..)| *name).collect();
    names.insert(0, "run_id");
    assert_eq!(names, OPTIONS, "each option is tried, run_id below");

    let mut job = mpirun(RANKS);
    job.arg(compile_c(&source("differ.c"), "differ", "gcc", &[]));
    job.args(others.iter().map(|(name, value, _)| format!("{name} = '{value}'")));
    let Output { status, stdout, stderr } = run(job, "each");
    let [out, err] = [stdout, stderr].map(|text| String::from_utf8(text).expect("text"));
    assert!(status.success() && err.is_empty(), "{status}\n{out}\n{err}");
    for rank in 0..RANKS {
        let mut lines = out.lines().filter_map(|line| line.strip_prefix(&format!("{rank} ")));
        for (name, value, usual) in others {
            for odd in [0, RANKS - 1] {
                let line = lines.next().unwrap_or_else(|| panic!("{name}: no line: {out}"));
                let message = line.strip_prefix(&format!("{} ", Code::Options as i32));
                let message = message.unwrap_or_else(|| panic!("{name}, rank {rank}: {line}"));
                let given = format!("{value:?}");
                let usual = usual.unwrap_or_default();
                let (first, here, there) =
                    if odd == 0 { (1, usual, &*given) } else { (odd, &*given, usual) };
                assert!(
                    message.starts_with(&format!("rank {first} has {name} = {here}")),
                    "{line}"
                );
                assert!(message.contains(&format!("rank 0 has {there}")), "{line}");
            }
        }
    }
}

/// A variable that is set where `mpirun` runs, and that reaches some ranks only.
#[test]
fn a_variable_that_reaches_some_ranks_only_is_named() {
    let program = compile_c(&checkout().join("examples/c/heat.c"), "heat-differ", "gcc", &[]);
    for (variable, value, name) in [
        ("SKT_CODEC", "sum", "codec"),
        ("SKT_RESUME", "require", "resume"),
        ("SKT_RUN_ID", "another", "run_id"),
    ] {
        for of_first in [true, false] {
            let set = format!("{variable}={value}");
            let (first, second) = if of_first { (&*set, "A=") } else { ("A=", &*set) };
            let ranks = if of_first { 1 } else { RANKS - 1 };
            let mut job = mpirun(ranks);
            job.args(["env", first]).arg(&program).args(["100", ":", "-np"]);
            job.arg((RANKS - ranks).to_string());
            job.args(["env", second]).arg(&program).arg("100");
            let Output { status, stdout, stderr } = run(job, name);
            let err = String::from_utf8_lossy(&stderr);
            assert_eq!(status.code(), Some(2), "{set}: {err}");
            assert!(stdout.is_empty(), "{set}");
            assert!(err.contains(&format!("rank {ranks} has {name} = ")), "{set}: {err}");
            assert!(err.contains(&format!("{value:?} ({variable})")), "{set}: {err}");
        }
    }
}
