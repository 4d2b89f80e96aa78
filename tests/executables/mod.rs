//! Files that are executed soon after they are written.
//!
//! A file that is open for writing cannot be executed (ETXTBSY), and a process that another test
//! starts at that moment inherits the open file until it executes its own program. So each of these
//! files is written by a separate process, which alone has it open.
#![allow(dead_code)] // Each test uses its part.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes a script with this text to `path`.
pub fn write_script(path: &Path, text: &str) {
    install(Path::new("/dev/stdin"), path, text);
}

/// Copies `program` to `path`.
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
