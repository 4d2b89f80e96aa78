//! Makes a small machine behave like a large one, or like one with a fault: a library that is
//! preloaded into the ranks of a job gives the BLAS, the disk and the end of a process the times of
//! a large node, slows the BLAS of a rank, or makes it compute wrong. `large_machine.c` documents
//! its environment variables. A second library, `waits.c`, lets ranks that wait sleep.
//!
//! A library is compiled when the first test asks for it. `cc` is there: without it
//! `scripts/needs.sh` fails, and so does the build of any Rust program.
#![allow(dead_code)] // Each test uses its part.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// The path of the library.
///
/// # Panics
/// `cc` does not compile it.
pub fn library() -> PathBuf {
    compiled("large_machine", &["large_machine.c", "waits.c"])
}

/// The library of this name, from these sources beside this file.
fn compiled(name: &str, sources: &[&str]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let of_tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/large_machine");
    // One test of this process compiles at a time; the others find the result.
    static IS_MADE: Mutex<()> = Mutex::new(());
    let _alone = IS_MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let library = folder.join(name).with_extension("so");
    let time = |path: &Path| fs::metadata(path).and_then(|meta| meta.modified()).ok();
    if sources.iter().all(|source| time(&library) > time(&of_tests.join(source))) {
        return library;
    }
    // Tests of other processes may compile it at the same time; the file gets its name when it is
    // whole.
    let draft = folder.join(format!("{name}.{}.so", std::process::id()));
    let compiled = Command::new("cc")
        .current_dir(of_tests)
        .args(["-std=gnu11", "-O1", "-Wall", "-Werror", "-fPIC", "-shared", "-o"])
        .arg(&draft)
        .args(sources)
        .arg("-ldl")
        .output()
        .expect("`cc`, without which nothing is built");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    fs::rename(&draft, &library).expect("our folder");
    library
}

/// Lets the ranks that a command starts sleep while they wait, which spares the cores for other
/// ranks, and leaves the rest of the machine as it is.
pub fn sleep_in_waits(command: &mut Command) {
    command.env("LD_PRELOAD", compiled("waits", &["waits.c"]));
    command.env("OMPI_MCA_mpi_yield_when_idle", "1");
}

/// Gives the ranks that a command starts the times of these variables, which are named without
/// their `SKT_LARGE_`.
pub fn slow(command: &mut Command, times: &[(&str, &str)]) {
    command.envs(variables(times)).env("OMPI_MCA_mpi_yield_when_idle", "1");
}

/// The environment of ranks on this machine that get what these variables say, which are named
/// without their `SKT_LARGE_`.
pub fn variables(times: &[(&str, &str)]) -> Vec<(String, String)> {
    preloaded(library().display().to_string(), times)
}

/// The environment, as `NAME=VALUE`, of ranks on nodes that share the folder `here`, which they call
/// `there`, so that they get what these variables say, which are named without their `SKT_LARGE_`.
pub fn environment(here: &Path, there: &str, times: &[(&str, &str)]) -> Vec<String> {
    // A process that has the library keeps its file when another takes the name.
    let (draft, name) = (here.join("large_machine.draft"), here.join("large_machine.so"));
    fs::copy(library(), &draft).expect("a folder of the test");
    fs::rename(draft, name).expect("a folder of the test");
    let variables = preloaded(format!("{there}/large_machine.so"), times).into_iter();
    variables.map(|(name, value)| format!("{name}={value}")).collect()
}

/// Flags of `launch` by which Open MPI's ranks on such nodes get this [`environment`].
pub fn launch_flags(here: &Path, there: &str, times: &[(&str, &str)]) -> String {
    let exported = |variable| format!("--launcher-arg=-x --launcher-arg={variable} ");
    environment(here, there, times).into_iter().map(exported).collect()
}

fn preloaded(library: String, times: &[(&str, &str)]) -> Vec<(String, String)> {
    let named =
        times.iter().map(|(name, value)| (format!("SKT_LARGE_{name}"), (*value).to_owned()));
    std::iter::once(("LD_PRELOAD".to_owned(), library)).chain(named).collect()
}
