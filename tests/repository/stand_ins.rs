//! Programs that stand in for those that a script calls.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::executables;

/// A folder of programs that come first in `PATH`.
pub struct StandIns(TempDir);

impl StandIns {
    pub fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    /// Adds a shell script.
    pub fn with(self, program: &str, body: &str) -> Self {
        executables::write_script(&self.at(program), &format!("#!/bin/sh\n{body}\n"));
        self
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A command of the checkout that finds these programs; `$HERE` is their folder.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let path = format!("{}:{}", self.0.path().display(), std::env::var("PATH").unwrap());
        let mut command = Command::new(program);
        command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")));
        command.env("PATH", path).env("HERE", self.0.path());
        command
    }

    /// Ends a line of shell in the checkout.
    pub fn sh(&self, line: &str) -> Output {
        self.command("bash").args(["-euo", "pipefail", "-c", line]).output().unwrap()
    }
}

/// What a command has printed on both streams.
pub fn printed(output: &Output) -> String {
    String::from_utf8([&output.stdout[..], &output.stderr].concat()).unwrap()
}
