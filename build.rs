//! Lets libraries call the program's `_exit`, keeps what it looks up in the BLAS that
//! `SKT_HPL_BLAS` names (crates/skt-solver/build.rs links it), and records the compiler.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=SKT_HPL_BLAS");
    println!("cargo:rustc-env=SKT_HPL_COMPILER={}", compiler());
    // In the process's libraries, the program's `_exit` (src/machine/grace.rs) replaces that of
    // libc.
    println!("cargo:rustc-link-arg-bins=-Wl,--export-dynamic-symbol=_exit");
    let Ok(names) = env::var("SKT_HPL_BLAS") else { return };
    if names.trim() == "built-in" {
        return;
    }
    let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
    let (of_static, of_shared): (Vec<_>, Vec<_>) =
        names.partition(|name| name.starts_with("static="));
    if !of_static.is_empty() {
        keep_what_is_looked_up();
    }
    // rustc links with --as-needed, which drops a library that only another library of the list
    // needs, as MKL's layers do.
    let as_given: String = of_shared.iter().map(|name| format!(",-l{name}")).collect();
    println!("cargo:rustc-link-arg=-Wl,--push-state,--no-as-needed{as_given},--pop-state");
}

/// The functions by which the program knows OpenBLAS and sets its threads
/// (crates/skt-solver/src/blas/library.rs).
const LOOKED_UP: [&str; 4] = [
    "openblas_get_config",
    "openblas_get_corename",
    "openblas_get_num_threads",
    "openblas_set_num_threads",
];

/// Links these functions of a static library, although nothing calls them, and makes them visible
/// as those of a shared library are.
fn keep_what_is_looked_up() {
    for function in LOOKED_UP {
        println!("cargo:rustc-link-arg-bins=-Wl,--undefined={function}");
        println!("cargo:rustc-link-arg-bins=-Wl,--export-dynamic-symbol={function}");
    }
}

/// The compiler's name and version, for reports.
fn compiler() -> String {
    let rustc = env::var_os("RUSTC").expect("cargo names the compiler");
    let told = Command::new(rustc).arg("--version").output().expect("the compiler runs");
    String::from_utf8(told.stdout).expect("the compiler writes UTF-8").trim().to_owned()
}
