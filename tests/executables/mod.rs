//! Files that are executed soon after they are written.
//!
//! As long as a file is open for writing it cannot be executed (ETXTBSY). A process that another
//! test starts in that moment takes the open file along until it executes its own program. So
//! each of these files is written by a process of its own, which alone has it open.
#![allow(dead_code)] // Each test uses its part.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// A script at `path`, with this text.
pub fn write_script(path: &Path, text: &str) {
    install(Path::new("/dev/stdin"), path, text);
}

/// A copy of `program` at `path`.
pub fn copy_program(program: &Path, path: &Path) {
    install(program, path, "");
}

fn install(from: &Path, to: &Path, input: &str) {
    let mut command = Command::new("install");
    let command = command.args(["-m", "755"]).args([from, to]).stdin(Stdio::piped());
    let mut child = command.spawn().expect("install, of coreutils");
    let mut pipe = child.stdin.take().expect("piped");
    pipe.write_all(input.as_bytes()).expect("a reader");
    drop(pipe);
    let status = child.wait().expect("our child");
    assert!(status.success(), "{}: {status}", to.display());
}
