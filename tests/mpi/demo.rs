//! The demo of the README, as a user runs it.

use std::path::Path;
use std::process::{Command, Output};

use crate::skipped::namespaces;

/// Runs what `scripts/demo-node-loss` runs, built as this test is.
fn demo(words: &str) -> Output {
    let program = Path::new(env!("CARGO_BIN_EXE_skt-hpl"));
    let demo = program.with_file_name("node_loss");
    if !demo.exists() {
        let cargo = ["build", "--locked", "--package", "node-loss"];
        let built = Command::new(env!("CARGO"))
            .args(cargo)
            .env_remove("RUSTC_BOOTSTRAP")
            .status()
            .expect("cargo");
        assert!(built.success(), "{built}");
    }
    Command::new(demo).arg(program).args(words.split_whitespace()).output().expect("the demo")
}

/// With a method and a size of groups, as a user may give them.
#[test]
fn the_demo_succeeds_and_reports_it() {
    // The demo makes its nodes from these.
    if namespaces(&["--pid", "--net", "--mount", "--fork"]).is_none() {
        return;
    }
    let output = demo("4000 --ft double --group-size 2 --parities 1");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let wrong = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{printed}\n{wrong}");
    for words in [
        "method double",
        "group_size 2, groups 2",
        "power off: n2",
        "n5 takes its place",
        "same bits",
        "The nodes are clean",
    ] {
        assert!(printed.contains(words), "{words}: {printed}");
    }
}
