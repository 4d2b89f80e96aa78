//! Makes a small machine behave like a large one, or like one with a fault: a library that is
//! preloaded into the ranks of a job gives the BLAS, the disk and the end of a process the times of
//! a large node, slows the BLAS of a rank, or makes it compute wrong. `large_machine.c` documents
//! its environment variables. Its ranks that wait sleep ([`WAITS`]).
#![allow(dead_code)] // Each test uses its part.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::mpirun::{WAITS, shared_library};

/// The path of the library, which is compiled when the first test asks for it.
///
/// # Panics
/// As [`shared_library`].
pub fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        shared_library("large_machine", &[include_str!("large_machine.c"), WAITS].concat())
    })
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

/// The environment, as `NAME=VALUE`, of ranks on nodes that share the folder `here`, which they
/// call `there`, so that they get what these variables say, which are named without their
/// `SKT_LARGE_`.
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
