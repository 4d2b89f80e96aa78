//! `skt-hpl screen` under a real `mpirun`, with ranks that stand for nodes, of which some are slow,
//! wrong or stopped. A rank computes slower than its share of a busy machine is, so that others'
//! work does not part their rates.

use std::collections::BTreeMap;
use std::fs;

use crate::large_machine;
use crate::mpirun::{mpirun, run};
use crate::planted_blas::{folder_with, planted};
use crate::report_schema::Schema;
use serde_json::Value;

/// The rate of each rank.
const EVENLY: (&str, &str) = ("ALL_GFLOPS", "3");

/// How a screening ended.
struct Ended {
    code: Option<i32>,
    text: String,
    document: Value,
}

impl Ended {
    /// The states of the nodes by their numbers.
    fn states(&self) -> BTreeMap<String, String> {
        let hosts = self.document["hosts"].as_array().expect("hosts");
        let state = |host: &Value| {
            let name = host["host"].as_str().expect("a name").rsplit('/').next().expect("a rank");
            (name.to_owned(), host["state"].as_str().expect("a state").to_owned())
        };
        hosts.iter().map(state).collect()
    }

    /// Asserts that these nodes have these states, and that all others are well.
    #[track_caller]
    fn names(&self, bad: &[(&str, &str)]) {
        let bad: BTreeMap<&str, &str> = bad.iter().copied().collect();
        for (node, state) in self.states() {
            let want = bad.get(node.as_str()).unwrap_or(&"ok");
            assert_eq!(state, *want, "node {node}\n{}", self.text);
        }
        assert_eq!(self.code, Some(i32::from(!bad.is_empty())), "{}", self.text);
    }
}

/// Screens four ranks. `faults` are variables of the preloaded library, without `SKT_LARGE_`.
fn screen(faults: &[(&str, &str)]) -> Ended {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = mpirun(4);
    command.arg(env!("CARGO_BIN_EXE_skt-hpl")).args(["screen", "--by-rank", "--n", "1000"]);
    command.args(["--time", "5s", "--tolerance", "0.8", "--threads", "1"]);
    command.args(["--json", "screen.json"]).current_dir(folder.path());
    let planted = large_machine::slow(&mut command, &[faults, &[EVENLY]].concat());
    let ended = run(&mut command);
    planted.assert();
    let document = fs::read(folder.path().join("screen.json")).unwrap_or_default();
    let document = serde_json::from_slice(&document).unwrap_or_else(|_| panic!("{ended:?}"));
    Schema::new(include_str!("../../docs/screen.schema.json")).check(&document);
    Ended { code: ended.code, text: ended.out + &ended.err, document }
}

#[test]
fn sound_nodes_are_silent() {
    let ended = screen(&[]);
    ended.names(&[]);
    assert_eq!(ended.document["links"].as_array().unwrap().len(), 6);
    let all_x = ended.document["hosts"].as_array().unwrap().iter();
    let all_x = all_x.flat_map(|host| host["solves"].as_array().unwrap());
    let different: std::collections::BTreeSet<&str> =
        all_x.map(|solve| solve["x"].as_str().expect("x")).collect();
    assert_eq!(different.len(), 1, "the same system has the same x");
}

/// What a screening of two ranks prints that call the BLAS `blas`, with these variables.
fn screen_with(blas: &str, variables: &[&str]) -> String {
    let mut command = mpirun(2);
    command.arg("env").args(variables).arg(env!("CARGO_BIN_EXE_skt-hpl"));
    command.args("screen --by-rank --n 300 --rounds 1 --time 2s --threads 1 --blas".split(' '));
    let ended = run(command.arg(blas));
    ended.out + &ended.err
}

/// The rates of two busy ranks may differ, so the verdicts on them are left out.
#[test]
fn ranks_call_the_library_that_is_named_or_chosen() {
    let library = planted("planted_screen", "#define FAST");
    let named = library.display().to_string();
    let text = screen_with(&named, &[]);
    assert!(text.contains(" (planted_screen.so, "), "{text}");
    let text = screen_with(&named, &["FAULT=crashes when called", "FAULT_RANK=1"]);
    let fault = "it crashes (signal 4) while ";
    assert!(text.contains("/1  unreachable") && text.contains(fault), "{text}");
    let folder = folder_with(&[("blis", &library)]);
    let path = format!("LD_LIBRARY_PATH={}", folder.path().display());
    let text = screen_with("auto", &[&path]);
    assert!(text.contains("blas: auto takes blis: "), "{text}");
    assert!(text.contains(" (libblis.so, "), "{text}");
}

#[test]
fn an_unwritable_file_is_refused_first_under_a_launcher_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = mpirun(2);
    command.arg(env!("CARGO_BIN_EXE_skt-hpl")).args(["screen", "--good", "no/good"]);
    let printed =
        run(command.args(["--json", "screen.json"]).current_dir(folder.path())).expect(2).err;
    assert!(printed.contains("no/good: cannot be written"), "{printed}");
    assert!(!folder.path().join("screen.json").exists(), "{printed}");
}

#[test]
fn a_slow_or_wrong_node_is_named_and_no_other() {
    screen(&[("GFLOPS", "0.3"), ("RANK", "2")]).names(&[("2", "slow")]);
    screen(&[("FLIP", "40"), ("SEED", "3"), ("RANK", "1")]).names(&[("1", "wrong")]);
    // The first rank leads: its faults are found like those of others.
    screen(&[("FLIP", "40"), ("SEED", "5"), ("RANK", "0")]).names(&[("0", "wrong")]);
}

/// The rank stops in the first system that it solves.
#[test]
fn a_node_that_stops_is_named_and_holds_nobody_up() {
    let ended = screen(&[("STOP", "1"), ("AFTER_GFLOP", "2"), ("RANK", "1")]);
    ended.names(&[("1", "unreachable")]);
    assert!(ended.text.contains("no answer while"), "{}", ended.text);
}
