//! Compiles the stand-ins of the drivers, and runs scenarios of this program with them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use super::library::{Api, compile};

pub fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stand-in").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn stand_in(api: Api) -> &'static Path {
    static FOLDERS: [OnceLock<PathBuf>; 2] = [OnceLock::new(), OnceLock::new()];
    FOLDERS[api as usize].get_or_init(|| {
        let folder = folder(api.name());
        compile(api, &folder, &[]);
        folder
    })
}

/// The variable that has the library of a scenario.
pub const API: &str = "SKT_STAND_IN_API";

/// This program again, for one scenario of it (an ignored test, by its path), with libraries of
/// these folders before those of the machine.
pub fn scenario(name: &str, api: Api, libraries: &[&Path]) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["--exact", name, "--ignored", "--nocapture", "--test-threads", "1"]);
    let before = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let folders = libraries.iter().map(|folder| (*folder).to_owned());
    let path = std::env::join_paths(folders.chain(std::env::split_paths(&before))).unwrap();
    command.env("LD_LIBRARY_PATH", path).env(API, api.name());
    command
}

/// Runs a scenario on the stand-in. It has to pass without a violation, and to leave nothing.
#[track_caller]
pub fn passes(name: &str, api: Api) {
    let report = tempfile::NamedTempFile::new().unwrap();
    let mut command = scenario(name, api, &[stand_in(api)]);
    command.env("SKT_STAND_IN_REPORT", report.path());
    let Output { status, stdout, stderr } = command.output().expect("it starts");
    let (out, err) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    let reported = fs::read_to_string(report.path()).unwrap();
    assert!(status.success() && reported.is_empty(), "{status}\n{reported}\n{out}\n{err}");
    assert!(out.contains("1 passed"), "no scenario {name}: {out}");
}
