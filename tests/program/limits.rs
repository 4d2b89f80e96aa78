//! Orders that no machine holds, and machines with next to no memory, are refused at once, with the
//! reason.

use std::process::Output;
use std::time::{Duration, Instant};

use crate::mpirun::mpi_program;

const SOON: Duration = Duration::from_secs(600);

/// Runs the program with `flags` and at most `most_kib` of address space. It is killed if it does
/// not end soon.
fn run(most_kib: Option<usize>, flags: &str) -> Output {
    let limit = most_kib.map_or(String::new(), |kib| format!("ulimit -v {kib}; "));
    let program = env!("CARGO_BIN_EXE_skt-hpl");
    let start = Instant::now();
    let mut command = mpi_program("timeout");
    let output = command
        .args(["-s", "KILL", &SOON.as_secs().to_string(), "sh", "-c"])
        .arg(format!("{limit}exec \"$0\" {flags}"))
        .arg(program)
        // OpenBLAS 0.3.29 allocates work space for each of its threads when it is loaded, and never
        // gives up, before any code of ours runs: it must not have more threads.
        .env("OPENBLAS_NUM_THREADS", "1")
        // The C library takes 64 MiB of addresses for each thread that allocates while another one
        // does: whether MPI gets through its start would depend on how busy this machine is.
        .env("MALLOC_ARENA_MAX", "1")
        .output()
        .expect("sh and timeout");
    assert!(start.elapsed() < SOON, "{flags}: hangs: {output:?}");
    output
}

#[track_caller]
fn assert_refused(output: &Output, words: &[&str]) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    for word in words {
        assert!(text.contains(word), "no {word:?} in {text}");
    }
}

#[test]
fn bytes_beyond_64_bits_do_not_fit() {
    for flags in ["--n 2147483648 --nb 1", "--n 4294967295 --nb 2147483647 --depth 2147483647"] {
        let flags = format!("{flags} --progress off");
        let words = ["does not fit", "would need 16.0 EiB", "The largest N that fits"];
        assert_refused(&run(None, &flags), &words);
    }
}

/// OpenBLAS asks for its work space for ever, and the built-in BLAS ends the process. How much MPI
/// itself takes before, and whether it gets through its start with less, depends on the MPI: the
/// limit is raised until a run passes, and then lowered in steps that are smaller than the work
/// space, until a run reports that the BLAS lacks it. Between that report and a run that passes,
/// down to 1000 KiB, a run reports the limit, too, whatever it is that does not fit.
#[test]
fn lack_of_address_space_for_the_blas_is_reported() {
    // What suffices for one of these is not much more than another one needs.
    let mut enough_kib = 400_000;
    for (threads, blas, step_kib) in
        [(1, "", 20_000), (2, "", 20_000), (2, "--blas built-in", 1000)]
    {
        let flags = format!("--n 100 --nb 10 --progress off --threads {threads} {blas}");
        let is_enough = |most_kib: usize| {
            let output = run(Some(most_kib), &flags);
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(!text.contains("panicked"), "{most_kib} KiB: {text}");
            let is_reported =
                ["work space of the BLAS", "(ulimit -v)"].iter().any(|&w| text.contains(w));
            if is_reported {
                assert_refused(&output, &["(ulimit -v)"]);
            }
            (output.status.success(), is_reported, text.into_owned())
        };
        while !is_enough(enough_kib).0 {
            enough_kib += 20_000;
        }
        // From there in halves: with much less, MPI itself fails in its own ways.
        let mut too_little_kib = enough_kib / 2;
        while enough_kib - too_little_kib > step_kib {
            let between_kib = too_little_kib.midpoint(enough_kib);
            if run(Some(between_kib), &flags).status.success() {
                enough_kib = between_kib;
            } else {
                too_little_kib = between_kib;
            }
        }
        let mut reported_kib = enough_kib;
        loop {
            reported_kib -= step_kib;
            match is_enough(reported_kib) {
                (true, ..) => enough_kib = reported_kib,
                (false, _, text) if text.contains("work space of the BLAS") => break,
                (false, ..) => {}
            }
        }
        while enough_kib - reported_kib > 1000 {
            let between_kib = reported_kib.midpoint(enough_kib);
            match is_enough(between_kib) {
                (true, ..) => enough_kib = between_kib,
                (false, true, _) => reported_kib = between_kib,
                (false, false, text) => {
                    panic!("{between_kib} KiB are not enough, and it is not told: {text}")
                }
            }
        }
    }
}
