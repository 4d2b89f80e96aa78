//! A start that waits prints what it waits for.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::mpi_job::Job;
use crate::mpirun::{mpirun, shared_library};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_skt-hpl");
/// The variable with the milliseconds after which a wait is announced.
const FIRST: &str = "SKT_HPL_ANNOUNCE_MILLISECONDS";

/// Starts a job, acts once its standard error has a line with all of these words, and returns its
/// whole output, in which it passes.
fn act_once_printed(command: &mut Command, words: &[&str], act: impl FnOnce()) -> String {
    let mut child: Child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("mpirun");
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    let mut text = String::new();
    loop {
        let line = lines.next().unwrap_or_else(|| panic!("{words:?}: {text}")).expect("a line");
        text += &format!("{line}\n");
        if words.iter().all(|word| line.contains(word)) {
            break;
        }
    }
    act();
    child.stdout.take().expect("piped").read_to_string(&mut text).expect("text");
    text.extend(lines.map_while(Result::ok));
    assert!(child.wait().expect("our child").success(), "{text}");
    assert!(text.contains("PASSED"), "{text}");
    text
}

#[test]
fn a_wait_for_a_rank_that_starts_late_is_announced() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("begin");
    let late = "[ $OMPI_COMM_WORLD_RANK = 0 ] || { n=0; while [ ! -e $FILE ] && [ $((n+=1)) -lt 6000 ]; do sleep 0.02; done; }; \
                exec \"$0\" \"$@\"";
    let mut job = mpirun(2);
    job.args(["--bind-to", "none", "sh", "-c", late, PROGRAM, "--n", "100", "--ft", "none"]);
    job.env("FILE", &file).env(FIRST, "100");
    let words = ["rank 0 on ", "all ranks in MPI_Init"];
    act_once_printed(&mut job, &words, || std::fs::write(&file, "").expect("our folder"));
}

/// Rank 1 stands still between `MPI_Init` and its first message to rank 0.
#[test]
fn a_rank_that_stands_still_after_mpi_init_is_named() {
    let folder = TempDir::new().expect("a folder");
    let source = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int MPI_Init_thread(int *argc, void *argv, int required, int *provided) {
    int (*real)(int *, void *, int, int *) = dlsym(RTLD_NEXT, "MPI_Init_thread");
    int code = real(argc, argv, required, provided);
    if (!strcmp(getenv("OMPI_COMM_WORLD_RANK"), "1"))
        for (int naps = 0; naps < 6000 && access(getenv("FILE"), F_OK); naps++) usleep(20000);
    return code;
}
"#;
    let library = shared_library("late_rank", source);
    let file = folder.path().join("begin");
    let mut job = mpirun(2);
    job.args(["--bind-to", "none", PROGRAM, "--n", "100", "--ft", "none"]);
    job.env("FILE", &file).env(FIRST, "100").env("LD_PRELOAD", library);
    let words = ["all ranks to come", "rank 1 has not come yet"];
    act_once_printed(&mut job, &words, || std::fs::write(&file, "").expect("our folder"));
}

/// A process of an earlier job stands still, and holds the run, until it is killed.
#[test]
fn a_start_that_waits_for_a_holder_prints_so() {
    let flags = "--n 1500 --nb 64 --checkpoint-every 3p! --progress off";
    let job = Job::new(Path::new(PROGRAM), 2, "held", flags);
    let mut stopped = Vec::new();
    let first = job.spawn(&[]);
    while stopped.is_empty() {
        std::thread::sleep(std::time::Duration::from_millis(5));
        let is_there = (0..2).all(|rank| !job.segments(Some(rank)).is_empty());
        stopped = if is_there { job.processes() } else { Vec::new() };
    }
    let signal = |pids: &[u32], signal| {
        pids.iter().for_each(|&pid| _ = kill(Pid::from_raw(pid as i32), signal));
    };
    signal(&stopped, Signal::SIGSTOP);
    let mut second = mpirun(2);
    second.args(["--bind-to", "none", PROGRAM, "--run-id", job.run()]);
    second.args(flags.split_whitespace()).env(FIRST, "100");
    let words = ["rank 0 on ", "the process that holds run", job.run()];
    act_once_printed(&mut second, &words, || signal(&stopped, Signal::SIGKILL));
    job.wait(first, || ());
    job.assert_nothing_is_left();
}
