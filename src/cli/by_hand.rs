//! The commands that a user is advised to run, for the launcher that this machine has.

use std::env;
use std::process::{Command, Stdio};

use nix::unistd::geteuid;
use skt_host::shown::shell_quoted;

use skt_host::starter::{Ranks, Starter};

/// The launcher that a user of this machine has: the one that `mpirun` in PATH belongs to, else
/// `srun` if it runs, else Open MPI, which may be installed elsewhere. Also returns whether Open
/// MPI must be allowed to run as root.
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

/// The command that starts these ranks of this program in this user's shell: `mpirun -np 4
/// skt-hpl`. As root, Open MPI refuses unless a flag allows it, so the flag is included.
pub(crate) fn start(ranks: &Ranks) -> String {
    let (starter, is_root) = here();
    format!("{} {}", starter.command(is_root, ranks).join(" "), program())
}

/// The commands that start these ranks: in this user's shell and, if they are on several nodes and
/// that is another one, in a job of Slurm.
pub(crate) fn starts(ranks: &Ranks) -> Vec<String> {
    let is_slurm = ranks.nodes.is_none() || here().0 == Starter::Slurm;
    let slurm = || format!("{} {}", Starter::Slurm.command(false, ranks).join(" "), program());
    let others = if is_slurm { None } else { Some(slurm()) };
    [Some(start(ranks)), others].into_iter().flatten().collect()
}

/// The command that makes `skt-hpl launch`, with the flags `of_launch`, start a run with the flags
/// `flags` on the nodes of a host file.
pub(crate) fn launch(hostfile: &str, of_launch: &str, flags: &str) -> String {
    let root = match here() {
        (_, true) => " --launcher-arg=--allow-run-as-root",
        _ => "",
    };
    format!("{} launch --hosts {hostfile}{of_launch}{root} --{flags}", program())
}
