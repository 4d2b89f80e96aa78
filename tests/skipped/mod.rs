//! Tests that this machine cannot run: each names itself with the reason, and `scripts/test` counts
//! them.
#![allow(dead_code)] // Each test program uses its part.

use std::fmt::Display;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::panic::Location;
use std::path::PathBuf;
use std::process::Command;

/// Prints `skipped: TEST: WHY` for the test that calls this and then returns. The line goes past
/// the capture of output, since `cargo test` does not show what a test that passes has printed.
#[track_caller]
pub fn skipped(why: impl Display) {
    let thread = std::thread::current();
    let here = Location::caller();
    let name = match thread.name() {
        // With a single thread all tests run on the main one.
        None | Some("main") => format!("{}:{}", here.file(), here.line()),
        Some(name) => name.to_owned(),
    };
    let line = format!("skipped: {name}: {}\n", why.to_string().trim().replace('\n', "; "));
    // Written by one call, so that lines of other tests do not come in between.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Whether one of these programs is not in `PATH`: then the test is skipped.
#[track_caller]
pub fn lacks(programs: &[&str]) -> bool {
    let lacking = programs.iter().find(|program| find(program).is_none());
    if let Some(program) = lacking {
        skipped(format!("no {program} here"));
    }
    lacking.is_some()
}

/// Where a program is in `PATH`.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// The words of a command that runs its program in new namespaces, as root of them; `None` if the
/// system permits none: then the test is skipped.
#[track_caller]
pub fn namespaces<'a>(flags: &[&'a str]) -> Option<Vec<&'a str>> {
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|of_ours| of_ours.uid() == 0);
    let user: &[&str] = if is_root { &[] } else { &["--map-root-user"] };
    let words = [&["unshare"], user, flags].concat();
    let tried = Command::new(words[0]).args(&words[1..]).arg("true").output();
    if !tried.is_ok_and(|output| output.status.success()) {
        skipped("no namespaces here (needs unshare and the right to use it)");
        return None;
    }
    Some(words)
}
