//! Installs the library once for all tests, and compiles programs against it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use crate::skipped::{find, lacks};

pub fn checkout() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("two folders up")
}

fn libraries() -> PathBuf {
    let here = std::env::current_exe().expect("this test");
    here.parent().expect("the folder of test programs").to_owned()
}

#[track_caller]
pub fn succeeds(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().expect("it starts");
    let printed = String::from_utf8_lossy(&stderr);
    assert!(status.success() && printed.is_empty(), "{command:?}: {status}: {printed}");
    String::from_utf8(stdout).expect("UTF-8")
}

/// Where the library is installed, by the script that users call.
pub fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c-interface");
        let mut install = Command::new(checkout().join("scripts/install-c"));
        let printed = succeeds(install.arg(&prefix).arg(libraries()).env_remove("DESTDIR"));
        assert!(
            printed.contains("installed in "),
            "a compiler is missing (scripts/needs.sh): {printed}"
        );
        prefix
    })
}

/// Runs the programs: nothing, or the words of `SKT_C_UNDER` (`scripts/dev/test-clients-memory`).
pub fn under() -> Vec<String> {
    let words = std::env::var("SKT_C_UNDER").unwrap_or_default();
    words.split_whitespace().map(str::to_owned).collect()
}

fn flags(extra: &[&str]) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    command.args(["--cflags", "--libs"]).args(extra).arg("skt-checkpoint");
    let printed = succeeds(command.env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig")));
    // As a shell reads them: paths may have blanks.
    let words = succeeds(Command::new("sh").args(["-c", &format!("printf '%s\\n' {printed}")]));
    words.lines().map(str::to_owned).collect()
}

pub fn compile_c(source: &Path, name: &str, compiler: &str, more: &[&str]) -> PathBuf {
    let program = prefix().join(name);
    let mut command = Command::new("mpicc");
    // Open MPI and MPICH each know one of these.
    command.env("OMPI_CC", compiler).env("MPICH_CC", compiler);
    command.args(["-std=c99", "-O2", "-g", "-Wall", "-Wextra", "-pedantic", "-Werror"]);
    command.arg(source).arg("-o").arg(&program).args(flags(&[])).args(more);
    command.arg(format!("-Wl,-rpath,{}", prefix().join("lib").display()));
    succeeds(&mut command);
    program
}

/// Another compiler than that of most programs, if it is here.
pub fn second_compiler() -> &'static str {
    if find("clang").is_some() { "clang" } else { "gcc" }
}

/// Without a warning; `None` if there is no compiler: then the test is skipped.
#[track_caller]
pub fn compile_fortran(source: &Path, name: &str) -> Option<PathBuf> {
    if lacks(&["gfortran", "mpifort"]) {
        return None;
    }
    let program = prefix().join(name);
    let mut command = Command::new("mpifort");
    command.args(["-std=f2008", "-O2", "-Wall", "-Wextra", "-pedantic", "-Werror"]);
    command.arg(source).arg("-o").arg(&program).args(flags(&[]));
    // The order of libraries counts: the module calls the library.
    command.args(["-lskt-fortran", "-lskt-checkpoint"]);
    command.arg(format!("-Wl,-rpath,{}", prefix().join("lib").display()));
    succeeds(&mut command);
    Some(program)
}
