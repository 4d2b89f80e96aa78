//! `skt-hpl` of a package: starts the program that fits the MPI of the job.
//!
//! Open MPI and MPICH have different binary interfaces, so a package has a program for each
//! (scripts/package). This one chooses by the launcher and by the libraries that can be loaded,
//! and replaces itself by the chosen program, with the same arguments, name and process id.

mod choice;
mod library;
mod mpi;

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};

use mpi::Mpi;

/// Bad input or environment, as the program itself reports it under its own name, and under one
/// that begins with `xhpl`.
const BAD_INPUT: u8 = 2;
const BAD_INPUT_OF_XHPL: u8 = 1;
/// The variables with a rank's number on its node: one rank of a node reports an error.
const LOCAL_RANKS: [&str; 3] = ["OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"];

fn main() -> ExitCode {
    match start() {
        Ok(never) => match never {},
        Err(why) => {
            let is_other = |name: &&str| env::var(name).is_ok_and(|rank| rank != "0");
            if !LOCAL_RANKS.iter().any(is_other) {
                eprintln!("error: {why}");
            }
            let name = env::args_os().next().unwrap_or_default();
            let name = Path::new(&name).file_name().unwrap_or_default();
            let is_xhpl = name.as_encoded_bytes().starts_with(b"xhpl");
            ExitCode::from(if is_xhpl { BAD_INPUT_OF_XHPL } else { BAD_INPUT })
        }
    }
}

/// Becomes the chosen program; returns only with the reason why it cannot.
fn start() -> Result<std::convert::Infallible, String> {
    let own = env::current_exe().map_err(|why| format!("/proc/self/exe: {why}"))?;
    let root = own.ancestors().nth(2).unwrap_or(Path::new("/"));
    let bin = library::launchers_bin();
    let wishes = choice::wishes(|name| env::var(name).ok(), bin.as_deref())?;
    let mut reasons = Vec::new();
    for mpi in wishes.order {
        let programs = root.join("libexec/skt-hpl").join(mpi.name);
        match library::find(mpi, bin.as_deref(), &programs) {
            Ok(folders) => return Err(become_program(&own, &programs.join("skt-hpl"), folders)),
            Err(why) => reasons.push(format!("  {}: {why}", mpi.title)),
        }
    }
    Err(format!(
        "no MPI library for skt-hpl\n{}\n  {}\nremedy: load or install the MPI that starts this \
         job ({}), so that `mpirun` in PATH is its own, or name its lib folder in LD_LIBRARY_PATH; \
         SKT_HPL_MPI=openmpi or mpich overrides the choice",
        reasons.join("\n"),
        wishes.why,
        Mpi::ALL.map(|mpi| mpi.families).join("; "),
    ))
}

/// Replaces this process by `program`, with `folders`, if any, as its LD_LIBRARY_PATH. Returns why
/// that failed.
fn become_program(own: &Path, program: &Path, folders: Option<OsString>) -> String {
    let mut arguments = env::args_os();
    let mut command = Command::new(program);
    command.arg0(arguments.next().unwrap_or_else(|| "skt-hpl".into())).args(arguments);
    // Processes that the program starts on other nodes have to choose their program there.
    command.env("SKT_HPL_STARTER", own.with_file_name("skt-hpl"));
    if let Some(folders) = folders {
        command.env("LD_LIBRARY_PATH", folders);
    }
    format!("{}: {}; unpack the whole archive", program.display(), command.exec())
}
