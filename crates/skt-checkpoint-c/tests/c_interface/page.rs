//! The program of docs/c-interface.md: without the lines marked as new it is a plain MPI program
//! with the same result, and with them it survives.

use std::fs;

use crate::build::{compile_c, prefix, succeeds};
use crate::clients::{RANKS, mpirun::mpirun, survives};

const PAGE: &str = include_str!("../../../../docs/c-interface.md");

#[test]
fn the_program_of_the_page_survives_and_computes_what_the_plain_one_does() {
    let block = PAGE.split("\n```c\n").nth(1).expect("a program").split("```").next().unwrap();
    let plain: String = block
        .lines()
        .filter(|line| !line.ends_with("// +"))
        .map(|line| format!("{line}\n"))
        .collect();
    assert!(plain.contains("MPI_Sendrecv") && !plain.contains("skt_"), "{plain}");
    let build = |text: &str, name: &str| {
        let source = prefix().join(name).with_extension("c");
        fs::write(&source, text).expect("room");
        compile_c(&source, name, "clang", &[])
    };
    let (plain, survivor) = (build(&plain, "rod-plain"), build(block, "rod"));
    let result = succeeds(mpirun(RANKS).arg(plain));
    assert_eq!(survives(&survivor, "rod", 0), result);
}
