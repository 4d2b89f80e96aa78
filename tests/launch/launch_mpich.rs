//! `skt-hpl launch --launcher mpich` on a cluster in a box: real Hydra, real
//! power-offs.

use std::process::Command;

use crate::mpirun::mpi_program;
use crate::skipped::skipped;
use crate::supervised::Kind;

scenarios! {
    Kind::Mpich;
    losses_one_after_the_other
    a_node_powered_off_under_checksums_with_images
}

/// Hydra starts a program for Open MPI as single processes.
#[test]
fn a_program_for_another_mpi_is_refused_at_once() {
    if Command::new("mpiexec.hydra").arg("--version").output().is_err() {
        skipped("no `mpiexec.hydra` here (Debian: mpich)");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = env!("CARGO_BIN_EXE_skt-hpl");
    let run = ["--n", "300", "--progress", "off"];
    let mut plain = mpi_program("mpiexec.hydra");
    plain.args(["-n", "2", program]).args(run);
    let mut launch = mpi_program(program);
    launch.args(["launch", "--launcher", "mpich", "--np", "2", "--"]).args(run);
    for (mut started, name) in [(plain, "mpiexec.hydra"), (launch, "launch")] {
        let ended = started.current_dir(folder.path()).output().expect(name);
        let printed = String::from_utf8_lossy(&ended.stderr);
        assert_eq!((ended.status.code(), ended.stdout.len()), (Some(2), 0), "{name}: {printed}");
        let error = "error: the launcher has started 2 processes (PMI_SIZE), and MPI sees one";
        assert_eq!(printed.matches(error).count(), 1, "{name}: {printed}");
        assert!(!printed.contains("start 2"), "{name}: {printed}");
    }
}
