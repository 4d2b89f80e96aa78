//! Lets libraries call the program's `_exit`, and records the compiler.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-env=SKT_HPL_COMPILER={}", compiler());
    // In the process's libraries, the program's `_exit` (src/machine/grace.rs) replaces that of
    // libc.
    println!("cargo:rustc-link-arg-bins=-Wl,--export-dynamic-symbol=_exit");
    println!("cargo:rustc-link-arg-bins=-Wl,--compress-debug-sections=zlib");
}

/// The compiler's name and version, for reports.
fn compiler() -> String {
    let rustc = env::var_os("RUSTC").expect("cargo names the compiler");
    let told = Command::new(rustc).arg("--version").output().expect("the compiler runs");
    String::from_utf8(told.stdout).expect("the compiler writes UTF-8").trim().to_owned()
}
