//! Links the BLAS, lets libraries call the program's `_exit`, and records the compiler.
//!
//! `SKT_HPL_BLAS` names the libraries (separated by commas, e.g. `mkl_rt` or `blis`),
//! `SKT_HPL_BLAS_DIR` the folder that has them. Without them, the OpenBLAS that `pkg-config` finds
//! is linked, else plain `-lopenblas`. `static=openblas` makes OpenBLAS a part of the program.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=SKT_HPL_BLAS");
    println!("cargo:rerun-if-env-changed=SKT_HPL_BLAS_DIR");
    println!("cargo:rustc-env=SKT_HPL_COMPILER={}", compiler());
    // In the process's libraries, the program's `_exit` (src/machine/grace.rs) replaces that of
    // libc.
    println!("cargo:rustc-link-arg-bins=-Wl,--export-dynamic-symbol=_exit");
    if let Ok(dir) = env::var("SKT_HPL_BLAS_DIR") {
        println!("cargo:rustc-link-search=native={dir}");
    }
    match env::var("SKT_HPL_BLAS") {
        Ok(names) => {
            let mut as_given = String::from("-Wl,--push-state,--no-as-needed");
            for name in names.split(',').map(str::trim).filter(|n| !n.is_empty()) {
                if let Some(name) = name.strip_prefix("static=") {
                    link_statically(name);
                    continue;
                }
                println!("cargo:rustc-link-lib=dylib={name}");
                as_given += &format!(",-l{name}");
            }
            // rustc links with --as-needed, which drops a library that only another library of the
            // list needs, as MKL's layers do.
            println!("cargo:rustc-link-arg={as_given},--pop-state");
        }
        Err(_) => {
            if pkg_config::Config::new().probe("openblas").is_err() {
                println!("cargo:rustc-link-lib=dylib=openblas");
            }
        }
    }
}

/// The functions by which the program knows OpenBLAS and sets its threads
/// (src/machine/environment/blas.rs), and the one by which it finds the library's file.
const LOOKED_UP: [&str; 5] = [
    "dgemm_",
    "openblas_get_config",
    "openblas_get_corename",
    "openblas_get_num_threads",
    "openblas_set_num_threads",
];

/// Links a static library. The program looks some of its functions up by name: these must be
/// linked although nothing calls them, and be visible as those of a shared library are.
fn link_statically(name: &str) {
    println!("cargo:rustc-link-lib=static:-bundle={name}");
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
