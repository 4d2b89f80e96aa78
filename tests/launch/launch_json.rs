//! The record that `skt-hpl launch --json` writes satisfies its published schema, however the run
//! ends.

use std::fs;
use std::path::Path;
use std::process::{Output, Stdio};

use crate::executables::write_script;
use crate::mpirun::mpi_program;
use crate::report_schema::Schema;
use serde_json::Value;
use skt_host::process::Process;
use skt_launch::hosts::{Host, OutOfUse, Pool, Replacement};
use skt_launch::report::account;
use skt_launch::state::{Failure, Status, SupervisorState};

/// Flags with which the job starts on any number of cores.
const LOCAL: &str = "--launcher openmpi --launcher-arg=--oversubscribe --launcher-arg=--bind-to \
                     --launcher-arg=none";

fn published() -> Schema {
    Schema::new(include_str!("../../docs/launch.schema.json"))
}

/// The output of `launch` with these flags in a folder, and its record.
fn launch(folder: &Path, flags: &str) -> (Output, Value) {
    let mut command = mpi_program(env!("CARGO_BIN_EXE_skt-hpl"));
    command.current_dir(folder).args(["launch", "--json", "run.json"]);
    let output = command.args(flags.split(' ')).output().expect("it starts");
    let text = fs::read_to_string(folder.join("run.json")).expect("a record");
    (output, serde_json::from_str(&text).expect("JSON"))
}

#[test]
fn what_cannot_start_is_reported() {
    let refuses = |flags: &str, words: &str| {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("hosts"), "n1\nn2\n").expect("our folder");
        let mut command = mpi_program(env!("CARGO_BIN_EXE_skt-hpl"));
        command.current_dir(folder.path()).arg("launch").args(flags.split(' '));
        let output = command.output().expect("it starts");
        let printed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{printed}");
        assert!(printed.contains(words), "{words}: {printed}");
    };
    let job = "-- --n 100 --p 1 --q 2";
    refuses(&format!("{LOCAL} --np 2 {job} --nb 0"), "--nb");
    let signs = "gave no sign of life in 3 starts";
    refuses(&format!("--launcher openmpi --launcher-program /bin/false --np 2 {job}"), signs);
    // A launcher that returns 0 and has done nothing is no success.
    let ended = "the launcher ended with code 0";
    refuses(&format!("--launcher openmpi --launcher-program /bin/true --np 2 {job}"), ended);
    let agent = "--launcher openmpi --hosts hosts --agent /nonexistent/ssh";
    let words = "cannot start /nonexistent/ssh, which runs commands on the nodes";
    refuses(&format!("{agent} {job}"), words);

    // The first reason is the nodes that the agent cannot reach, in one; as nothing was started, no
    // data is reported as kept.
    let folder = tempfile::tempdir().expect("a folder");
    let agent = folder.path().join("agent");
    let refused =
        "#!/bin/sh\necho \"ssh: connect to host $1 port 22: Connection refused\" >&2\nexit 255\n";
    write_script(&agent, refused);
    fs::write(folder.path().join("hosts"), "n1\nn2\n").expect("our folder");
    let flags = "--hosts hosts --probe-limit 5s --agent ./agent -- --n 200 --p 1 --q 2";
    let (output, record) = launch(folder.path(), flags);
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(75), "{printed}");
    published().check(&record);
    assert_eq!((&record["status"], &record["starts"]), (&"gave-up".into(), &0.into()));
    let gave_up = printed.lines().find(|line| line.contains("giving up: ")).expect("it says why");
    let (first, _) = gave_up.split_once("cannot be used").expect("of nodes");
    let why = "giving up: n1, n2 (probe: exit status: 255; ssh: connect to host NODE port 22: ";
    assert!(first.contains(why) && first.contains("Connection refused"), "{printed}");
    assert!(
        printed.contains("nothing was started") && !printed.contains("survived is kept"),
        "{printed}"
    );
}

#[test]
fn every_run_leaves_a_record_that_satisfies_the_schema() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = format!("launch-json-{}", std::process::id());
    let (output, record) =
        launch(folder.path(), &format!("{LOCAL} --np 2 -- --n 200 --nb 16 --run-id {run}"));
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{printed}");
    published().check(&record);
    assert_eq!((&record["status"], &record["exit"]), (&"finished".into(), &0.into()));
    assert_eq!(record["starts"], 1);

    // Runs with failures.
    let host = |name: &str| Host { name: name.into(), slots: 2 };
    let out = OutOfUse { host: host("n2"), why: "no answer".into() };
    let active = vec![host("n1"), host("n3")];
    let pool = Pool { active, out: vec![out], ..Pool::default() };
    let me = Process::from_pid(std::process::id() as i32).expect("this process");
    let mut state = SupervisorState::new("r", &["--n".into(), "8".into()], 4, pool, me);
    published().check(&account(&state));
    let known = Failure {
        start: 1,
        how: "the launcher ended with code 1".into(),
        replaced: vec![Replacement { lost: "n2".into(), why: "silent".into(), by: "n3".into() }],
        phase: "factor".into(),
        column: 512,
        lived: true,
        node_lost: true,
        last_sign_unix: 10.0,
        detected_unix: 11.5,
        relaunched_unix: Some(12.0),
        alive_unix: Some(13.0),
        computing_unix: Some(14.0),
        resumed_column: Some(256),
    };
    let unknown = Failure {
        relaunched_unix: None,
        alive_unix: None,
        computing_unix: None,
        resumed_column: None,
        ..known.clone()
    };
    state.failures = vec![known, unknown];
    for status in [Status::Running, Status::Stopped, Status::GaveUp, Status::Finished] {
        (state.status, state.reason, state.exit) = (status, Some("why".into()), Some(75));
        published().check(&account(&state));
    }
    let good = account(&state);
    let mut changed = [good.clone(), good];
    changed[0]["failures"][0]["timeline"]["recovery_seconds"] = "a word".into();
    changed[1]["new"] = 1.into();
    assert!(changed.iter().all(|bad| published().refusal(bad).is_some()));
}

/// Every tenth of 500 nodes cannot be reached: spares are mixed in.
#[test]
fn output_does_not_grow_with_the_nodes() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = env!("CARGO_BIN_EXE_skt-hpl");
    let mut probe = mpi_program(program);
    probe.args(["probe", "--run=r", "--purpose=start", "--program=/bin/true"]);
    let answer = probe.stdin(Stdio::null()).output().expect("it starts").stdout;
    fs::write(folder.path().join("answer"), answer).expect("our folder");
    let agent =
        "#!/bin/sh\ncase $1 in *0) echo \"no route to $1\" >&2; exit 255;; esac\ncat answer\n";
    write_script(&folder.path().join("agent"), agent);
    let hosts: String = (1..=500).map(|node| format!("n{node}\n")).collect();
    fs::write(folder.path().join("hosts"), hosts).expect("our folder");
    let flags = "--hosts hosts --np 450 --agent ./agent --max-restarts 0 --program /bin/true";
    let mut command = mpi_program(program);
    command.current_dir(folder.path()).arg("launch").args(flags.split(' '));
    command.args(["--launcher-template", "true {hostfile} {command}"]);
    let output = command.output().expect("it starts");
    let printed = String::from_utf8_lossy(&output.stderr);
    let lost = "n10, n20, n30, n40, n50, n60, n70, n80 and 37 more (probe: exit status: 255; \
                no route to NODE); n[451-459], ";
    assert!(printed.contains(lost) && printed.contains(" take their places\n"), "{printed}");
    assert!(printed.contains("start 1: 450 ranks on n[1-9], n451, n[11-19], "), "{printed}");
    assert!(output.stdout.len() + output.stderr.len() <= 2000, "{printed}");
}
