//! The programs of docs/c-interface.md: without the lines marked as new each is a plain MPI program
//! with the same result, and with them it survives.

use std::fs;
use std::path::PathBuf;

use crate::build::{compile_c, prefix, succeeds};
use crate::clients::{RANKS, mpirun::mpirun, survives};
use crate::opencl;

const PAGE: &str = include_str!("../../../../docs/c-interface.md");

/// The program of the page that calls `what`, built with and without the lines that are marked as
/// new, as `name`.
fn programs(what: &str, name: &str, libraries: &[&str]) -> [PathBuf; 2] {
    let blocks = PAGE.split("\n```c\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let whole = blocks.into_iter().find(|block| block.contains("main(") && block.contains(what));
    let whole = whole.expect("a program");
    let plain: String = whole
        .lines()
        .filter(|line| !line.ends_with("// +"))
        .map(|line| format!("{line}\n"))
        .collect();
    assert!(plain.contains("MPI_Sendrecv") && !plain.contains("skt_"), "{plain}");
    let build = |text: &str, name: &str| {
        let source = prefix().join(name).with_extension("c");
        fs::write(&source, text).expect("room");
        compile_c(&source, name, "clang", libraries)
    };
    [build(&plain, &format!("{name}-plain")), build(whole, name)]
}

#[test]
fn page_program_survives_and_matches_the_plain_result() {
    let [plain, survivor] = programs("skt_protect(1, u, CELLS", "rod", &[]);
    let result = succeeds(mpirun(RANKS).arg(plain));
    assert_eq!(survives(&survivor, "rod", 0), result);
}

#[test]
fn the_program_on_a_device_survives_too() {
    if !opencl::is_here() {
        return;
    }
    let [plain, survivor] = programs("skt_mover_opencl", "rodcl", &["-lOpenCL"]);
    let result = succeeds(mpirun(RANKS).arg(plain));
    assert_eq!(survives(&survivor, "rodcl", 0), result);
}
