//! Makes a small machine behave like a large one, or like one with a fault: a library that is
//! preloaded into the ranks of a job gives the BLAS, the disk and the end of a process the times of
//! a large node, slows the BLAS of a rank, or makes it compute wrong. `large_machine.c` documents
//! its environment variables. Its ranks that wait sleep ([`WAITS`]).
#![allow(dead_code)] // Each test uses its part.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use crate::mpirun::{WAITS, shared_library};
use tempfile::TempDir;

/// The folder of nodes in which ranks leave a file when they have loaded the library.
const PLANTED: &str = "large_machine.planted";

/// The library, as it can be preloaded on this machine. It is compiled when the first test asks for
/// it.
///
/// # Panics
/// As [`shared_library`].
pub fn library() -> &'static str {
    static LIBRARY: OnceLock<String> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        shared_library("large_machine", &[include_str!("large_machine.c"), WAITS].concat())
    })
}

/// What ranks on this machine get from the library. Whether they have loaded it has to be asserted
/// when they have run, because a loader that cannot load a library only prints a warning.
#[must_use = "assert that ranks have loaded the library"]
pub struct Planted(TempDir);

impl Planted {
    /// Asserts that a rank that is meant has loaded the library.
    ///
    /// # Panics
    /// None has.
    #[track_caller]
    pub fn assert(&self) {
        assert_any(self.0.path());
    }
}

/// Gives the ranks that a command starts the times of these variables, which are named without
/// their `SKT_LARGE_`.
pub fn slow(command: &mut Command, times: &[(&str, &str)]) -> Planted {
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("our folder");
    let planted = folder.path().display().to_string();
    let variables = variables(library().to_owned(), &planted, times);
    command.envs(variables).env("OMPI_MCA_mpi_yield_when_idle", "1");
    Planted(folder)
}

/// The environment of ranks on nodes that share the folder `here`, which they call `there`, so that
/// they get these variables, which are named without their `SKT_LARGE_`. After the run
/// comes [`assert_planted`].
pub fn on_nodes(here: &Path, there: &str, times: &[(&str, &str)]) -> Vec<(String, String)> {
    // A process that has the library keeps its file when another takes the name.
    let (draft, name) = (here.join("large_machine.draft"), here.join("large_machine.so"));
    fs::copy(library(), &draft).expect("a folder of the test");
    fs::rename(draft, name).expect("a folder of the test");
    fs::create_dir_all(here.join(PLANTED)).expect("a folder of the test");
    variables(format!("{there}/large_machine.so"), &format!("{there}/{PLANTED}"), times)
}

/// Whether a command has asked for the library on nodes that share the folder `here`.
pub fn is_asked_for(here: &Path) -> bool {
    here.join(PLANTED).is_dir()
}

/// Asserts that a rank that is meant has loaded the library, on nodes that share the folder `here`.
///
/// # Panics
/// None has.
#[track_caller]
pub fn assert_planted(here: &Path) {
    assert_any(&here.join(PLANTED));
}

/// Flags of `launch` by which Open MPI's ranks [`on_nodes`] get this environment.
pub fn launch_flags(here: &Path, there: &str, times: &[(&str, &str)]) -> String {
    let exported = |(name, value)| format!("--launcher-arg=-x --launcher-arg={name}={value} ");
    on_nodes(here, there, times).into_iter().map(exported).collect()
}

#[track_caller]
fn assert_any(planted: &Path) {
    let mut files = fs::read_dir(planted).expect("a folder of the test");
    assert!(
        files.next().is_some(),
        "the fault was not planted: no rank that it is meant for has loaded the library that \
         LD_PRELOAD names"
    );
}

fn variables(library: String, planted: &str, times: &[(&str, &str)]) -> Vec<(String, String)> {
    let named = [&[("PLANTED", planted)], times].concat();
    let named =
        named.into_iter().map(|(name, value)| (format!("SKT_LARGE_{name}"), value.to_owned()));
    std::iter::once(("LD_PRELOAD".to_owned(), library)).chain(named).collect()
}
