//! The commands that a user is advised to run, for the launcher that this machine has.

use std::env;
use std::process::{Command, Stdio};

use nix::unistd::geteuid;
use skt_host::shown::shell_quoted;

use skt_host::starter::{Ranks, Starter};

/// The launcher that `mpirun` in PATH belongs to, else `srun` if it runs, else Open MPI, which may
/// be installed elsewhere. Also returns whether Open MPI must be allowed to run as root.
fn here() -> (Starter, bool) {
    if let Some(starter) = Starter::from_program("mpirun") {
        return (starter, starter == Starter::Openmpi && geteuid().is_root());
    }
    let silent = |command: &mut Command| {
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|end| end.success())
    };
    if silent(Command::new("srun").arg("--version")) {
        (Starter::Slurm, false)
    } else {
        (Starter::Openmpi, false)
    }
}

/// This program under the name it was called by, quoted for a shell.
fn program() -> String {
    let program = env::args_os().next().unwrap_or_else(|| "skt-hpl".into());
    shell_quoted(&program.to_string_lossy())
}

/// In this user's shell, as `mpirun -np 4 skt-hpl`; as root with the flag that Open MPI requires.
pub(crate) fn start(ranks: &Ranks) -> String {
    let (starter, is_root) = here();
    format!("{} {}", starter.command(is_root, ranks).join(" "), program())
}

/// `skt-hpl launch` with the flags `of_launch`, for a run with the flags `flags`.
pub(crate) fn launch(hostfile: &str, of_launch: &str, flags: &str) -> String {
    let root = match here() {
        (_, true) => " --launcher-arg=--allow-run-as-root",
        _ => "",
    };
    format!("{} launch --hosts {hostfile}{of_launch}{root} --{flags}", program())
}
