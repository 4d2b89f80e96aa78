//! A small machine that feels like a large one: a library that is preloaded into the ranks of
//! a job, and gives the BLAS, the disk and the end of a process the times of a large node.
//! `large_machine.c` names its environment variables.
//!
//! The library is compiled when the first test asks for it. `cc` is there: without one
//! `scripts/needs.sh` fails, and so does the build of any Rust program.
#![allow(dead_code)] // Each test uses its part.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// The library.
///
/// # Panics
/// Where `cc` does not compile it.
pub fn library() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/large_machine/large_machine.c");
    // One test of this process at a time: the others find what it has made.
    static IS_MADE: Mutex<()> = Mutex::new(());
    let _alone = IS_MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let library = folder.join("large_machine.so");
    let time = |path: &Path| fs::metadata(path).and_then(|meta| meta.modified()).ok();
    if time(&library) > time(&source) {
        return library;
    }
    // Tests that run side by side compile it each for itself: what has the name is whole.
    let draft = folder.join(format!("large_machine.{}.so", std::process::id()));
    let compiled = Command::new("cc")
        .args(["-std=gnu11", "-O1", "-Wall", "-Werror", "-fPIC", "-shared", "-o"])
        .args([&draft, &source])
        .arg("-ldl")
        .output()
        .expect("`cc`, without which nothing is built");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    fs::rename(&draft, &library).expect("our folder");
    library
}

/// Gives the ranks that a command starts the times that these variables name, without their
/// `SKT_LARGE_`.
pub fn slow(command: &mut Command, times: &[(&str, &str)]) {
    command.env("LD_PRELOAD", library());
    command.envs(times.iter().map(|(name, value)| (format!("SKT_LARGE_{name}"), value)));
}
