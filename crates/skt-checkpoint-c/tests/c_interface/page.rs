//! The programs of docs/c-interface.md, of which one is in examples/c: without the lines marked as
//! new each is a plain MPI program with the same result, and with them it survives.

use std::fs;
use std::path::PathBuf;

use crate::build::{compile_c, prefix, second_compiler, succeeds};
use crate::clients::{RANKS, mpirun::mpirun, survives};
use crate::opencl;

const PAGE: &str = include_str!("../../../../docs/c-interface.md");
const RODCL: &str = include_str!("../../../../examples/c/rodcl.c");

/// The program `whole`, built with and without the lines that are marked as new, as `name`.
fn programs(whole: &str, name: &str, libraries: &[&str]) -> [PathBuf; 2] {
    let plain: String = whole
        .lines()
        .filter(|line| !line.ends_with("// +"))
        .map(|line| format!("{line}\n"))
        .collect();
    assert!(plain.contains("MPI_Sendrecv") && !plain.contains("skt_"), "{plain}");
    let build = |text: &str, name: &str| {
        let source = prefix().join(name).with_extension("c");
        fs::write(&source, text).expect("room");
        compile_c(&source, name, second_compiler(), libraries)
    };
    [build(&plain, &format!("{name}-plain")), build(whole, name)]
}

#[test]
fn page_program_survives_and_matches_the_plain_result() {
    let mut blocks = PAGE.split("\n```c\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let whole = blocks.find(|block| block.contains("main(")).expect("a program");
    let [plain, survivor] = programs(whole, "rod", &[]);
    let result = succeeds(mpirun(RANKS).arg(plain));
    assert_eq!(survives(&survivor, "rod", 0), result);
}

#[test]
fn the_program_on_a_device_survives_too() {
    if !opencl::is_here() {
        return;
    }
    let [plain, survivor] = programs(RODCL, "rodcl", &["-lOpenCL"]);
    let result = succeeds(mpirun(RANKS).arg(plain));
    assert_eq!(survives(&survivor, "rodcl", 0), result);
}
