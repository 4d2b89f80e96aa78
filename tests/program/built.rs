//! The built program, run in a temporary folder.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::mpirun::mpi_program;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_skt-hpl");

pub const LAUNCHER_NAMES: [&str; 9] = [
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "PMIX_RANK",
    "PMI_RANK",
    "PMI_SIZE",
    "MV2_COMM_WORLD_RANK",
    "MV2_COMM_WORLD_SIZE",
    "SLURM_PROCID",
    "SLURM_NTASKS",
];

/// The program in a separate folder, without a launcher's environment. A line is cut into its
/// arguments at blanks.
pub struct Program {
    folder: TempDir,
}

impl Program {
    pub fn new() -> Program {
        Program { folder: TempDir::new().unwrap() }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.path().join(name), text).unwrap();
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path().join(name)).unwrap()
    }

    pub fn start(&self, args: &[&str]) -> Command {
        let mut command = mpi_program(PROGRAM);
        command.args(args).current_dir(self.path());
        for name in LAUNCHER_NAMES {
            command.env_remove(name);
        }
        command
    }

    pub fn command(&self, line: &str) -> Command {
        self.start(&line.split_whitespace().collect::<Vec<_>>())
    }

    pub fn run(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    /// Standard error of a call that must fail with exit code 2 and print nothing to standard
    /// output.
    #[track_caller]
    pub fn refused(&self, line: &str) -> String {
        self.refused_words(&line.split_whitespace().collect::<Vec<_>>())
    }

    #[track_caller]
    pub fn refused_words(&self, args: &[&str]) -> String {
        let output = self.start(args).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
        assert_eq!(output.stdout, b"", "{args:?}");
        error
    }

    /// Standard output and error of a call that must succeed.
    #[track_caller]
    pub fn done(&self, line: &str) -> (String, String) {
        let output = self.run(line);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{line}: {error}");
        (String::from_utf8(output.stdout).unwrap(), error)
    }

    /// Standard output of a call that must succeed.
    #[track_caller]
    pub fn printed(&self, line: &str) -> String {
        self.done(line).0
    }
}
