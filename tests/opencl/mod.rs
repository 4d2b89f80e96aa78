//! Whether this machine has what the clients on an OpenCL device need.

use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::skipped::skipped;

/// Whether programs for OpenCL can be compiled and find a device with double precision here;
/// otherwise the test that calls this is skipped.
#[track_caller]
pub fn is_here() -> bool {
    let found = find_device();
    if let Err(why) = &found {
        skipped(why);
    }
    found.is_ok()
}

/// Otherwise what is missing.
fn find_device() -> Result<(), String> {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let program = folder.path().join("device");
    let mut compiler = Command::new("cc");
    compiler.args(["-x", "c", "-", "-lOpenCL", "-o"]).arg(&program);
    let compiler = compiler.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut compiler = compiler.expect("`cc`, without which nothing is built");
    let mut source = compiler.stdin.take().expect("piped");
    // A compiler that fails early closes the pipe.
    let _ = source.write_all(include_bytes!("device.c"));
    drop(source);
    let compiled = compiler.wait_with_output().expect("our child");
    if !compiled.status.success() {
        let errors = String::from_utf8_lossy(&compiled.stderr);
        let error = errors.lines().find(|line| line.contains("error")).unwrap_or(&errors);
        return Err(format!("no OpenCL to compile for (Debian: ocl-icd-opencl-dev): {error}"));
    }
    let found = Command::new(&program).output().expect("our program");
    if found.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&found.stdout).into_owned())
    }
}
