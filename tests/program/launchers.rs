//! What the program makes of its launcher: an MPI that does not know it, and a Slurm that does not
//! report the end of its jobs.

use std::process::Output;
use std::time::Duration;
use std::{fs, thread};

use crate::built::PROGRAM;
use crate::mpirun::{mpi_program, mpirun};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A rank of two, by the variables of a launcher that no MPI of these tests knows.
fn rank_of_two(rank: &str, command: &str) -> Output {
    let mut alone = mpi_program(PROGRAM);
    alone.args(command.split_whitespace());
    alone.env("MV2_COMM_WORLD_SIZE", "2").env("MV2_COMM_WORLD_RANK", rank);
    alone.output().expect("the program")
}

#[test]
fn ranks_that_mpi_does_not_connect_are_an_error_of_the_first() {
    for command in ["--n 100", "doctor --threads 1", "screen", "tune --n 100"] {
        let ended = rank_of_two("0", command);
        let printed = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(2), "{command}: {printed}");
        assert_eq!(text(&ended.stdout), "", "{command}");
        let want = "error: the launcher has started 2 processes (MV2_COMM_WORLD_SIZE), and MPI \
                    sees one: this program is built for ";
        assert!(printed.contains(want), "{command}: {printed}");
    }
    let ended = rank_of_two("1", "--n 100");
    assert_eq!((ended.status.code(), text(&ended.stderr).as_str()), (Some(2), ""));
}

/// `srun --kill-on-bad-exit` sends SIGTERM to the other ranks when the first one ends with an
/// error, and returns the largest code: a rank that is killed would hide the first one's code.
#[test]
fn a_rank_that_waits_for_the_first_to_end_keeps_its_code() {
    let mut command = mpi_program(PROGRAM);
    command.arg("--no-such-flag").env("MV2_COMM_WORLD_SIZE", "2").env("MV2_COMM_WORLD_RANK", "1");
    let mut rank = command.spawn().expect("the program");
    let id = rank.id();
    let catches_sigterm = || {
        let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        mask.is_some_and(|mask| mask >> (Signal::SIGTERM as i32 - 1) & 1 == 1)
    };
    while !catches_sigterm() {
        // It ends without a signal after a second.
        assert!(rank.try_wait().expect("our child").is_none(), "it has not caught SIGTERM");
        thread::sleep(Duration::from_millis(1));
    }
    kill(Pid::from_raw(id as i32), Signal::SIGTERM).expect("our child");
    assert_eq!(rank.wait().expect("our child").code(), Some(2));
}

#[test]
fn an_unknown_slurm_end_is_reported_unless_the_user_gives_one() {
    let printed = |flags: &str| {
        let mut job = mpirun(2);
        // mpirun itself is not to look for Slurm.
        job.args(["env", "SLURM_JOB_ID=7", PROGRAM, "--n", "200", "--progress", "off"]);
        let run = format!("--run-id slurm-end-{}", std::process::id());
        job.args(run.split_whitespace()).args(flags.split_whitespace());
        job.env_remove("SLURM_JOB_END_TIME");
        let ended = job.output().expect("mpirun");
        let printed = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(0), "{flags}: {printed}");
        printed.matches("warning: the end of this Slurm job is not known").count()
    };
    assert_eq!(printed("--ft self"), 1);
    assert_eq!(printed("--ft self --time-limit never"), 0);
    assert_eq!(printed("--ft none"), 0);
}
