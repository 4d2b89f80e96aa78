//! Tests that this machine cannot run: each names itself with the reason, and `scripts/test` counts
//! them.
#![allow(dead_code)] // Each test program uses its part.

use std::fmt::Display;
use std::io::Write as _;
use std::panic::Location;

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
