//! Orders that no machine holds, and machines with next to no memory, are refused at once, with the
//! reason.

use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use tempfile::tempdir;

use crate::mpirun::mpi_program;

const SOON: Duration = Duration::from_secs(600);

/// Runs the program with `flags` and at most `most_kib` of address space, where `cache` has the
/// trials of a BLAS that passed. It is killed if it does not end soon.
fn run(most_kib: Option<usize>, cache: &Path, flags: &str) -> Output {
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
        .env("XDG_CACHE_HOME", cache)
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
    let cache = tempdir().unwrap();
    for flags in ["--n 2147483648 --nb 1", "--n 4294967295 --nb 2147483647 --depth 2147483647"] {
        let flags = format!("{flags} --progress off");
        let words = ["does not fit", "would need 16.0 EiB", "The largest N that fits"];
        assert_refused(&run(None, cache.path(), &flags), &words);
    }
}

/// OpenBLAS asks for its work space for ever, and the built-in BLAS ends the process: what their
/// trial reports ends the run first. With how little MPI gets through its own start is not even
/// monotonic, as it tries other things where it gets less: each limit below one that suffices is
/// tried, and a run that ends there reports why, or MPI does.
#[test]
fn lack_of_address_space_for_the_blas_is_reported() {
    // Of MPI, and of the allocator of Rust.
    const REASONS: [&str; 6] = ["ERROR", "mca_", "opal_", "mpi", "*** ", "memory allocation of"];
    let cache = tempdir().unwrap();
    // The steps are smaller than the work space that lacks.
    for (threads, blas, step_kib) in [(1, "", 8000), (2, "", 8000), (2, "--blas built-in", 3000)] {
        let flags = format!("--n 100 --nb 10 --progress off --threads {threads} {blas}");
        let mut reports = 0;
        for most_kib in (40_000..1_000_000).step_by(step_kib) {
            let output = run(Some(most_kib), cache.path(), &flags);
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(!text.contains("panicked"), "{most_kib} KiB: {text}");
            if output.status.success() && reports > 0 {
                break;
            } else if text.contains("error: ") {
                assert_refused(&output, &["(ulimit -v)"]);
                reports += usize::from(text.contains("work space of the BLAS"));
            } else if !output.status.success() {
                // With next to nothing MPI dies without a word.
                let is_silent = text.is_empty() && reports == 0;
                let has_reason = is_silent || REASONS.iter().any(|&word| text.contains(word));
                assert!(has_reason, "{most_kib} KiB are not enough without a reason: {text}");
            }
        }
        assert!(reports > 0, "{flags}: never short of work space");
    }
}
