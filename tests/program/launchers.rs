//! What the program makes of its launcher: an MPI that does not know it.

use std::process::{Command, Output};

use crate::mpirun::own_session;

const PROGRAM: &str = env!("CARGO_BIN_EXE_skt-hpl");

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A rank of two, by the variables of a launcher that no MPI of these tests knows.
fn rank_of_two(rank: &str, command: &str) -> Output {
    let mut alone = Command::new(PROGRAM);
    own_session(&mut alone);
    alone.args(command.split_whitespace());
    alone.env("MV2_COMM_WORLD_SIZE", "2").env("MV2_COMM_WORLD_RANK", rank);
    alone.output().expect("the program")
}

#[test]
fn ranks_that_mpi_does_not_connect_are_an_error_of_the_first() {
    for command in ["--n 100", "doctor --threads 1", "screen", "tune --n 100"] {
        let ended = rank_of_two("0", command);
        let said = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(2), "{command}: {said}");
        assert_eq!(text(&ended.stdout), "", "{command}");
        let want = "error: the launcher has started 2 processes (MV2_COMM_WORLD_SIZE), and MPI \
                    sees one: this program is built for ";
        assert!(said.contains(want), "{command}: {said}");
    }
    let ended = rank_of_two("1", "--n 100");
    assert_eq!((ended.status.code(), text(&ended.stderr).as_str()), (Some(2), ""));
}
