//! Ranks as threads of one process, for tests, which call the BLAS.

use std::fmt::Display;
use std::sync::Once;

pub use skt_checkpoint::comm::threads::ThreadComm;
use skt_checkpoint::comm::threads::run as run_ranks;

use crate::machine::environment::blas::use_one_thread;

/// As [`skt_checkpoint::comm::threads::run`]. The BLAS of this process is told to use
/// one thread a call from now on.
///
/// # Panics
/// When a rank panicked, after all have ended.
pub fn run<T, E, F>(size: usize, body: F) -> Vec<Result<T, E>>
where
    T: Send,
    E: Send + Display,
    F: Fn(ThreadComm) -> Result<T, E> + Sync,
{
    // A BLAS that threads on its own wants more stack than a thread of Rust has:
    // OpenBLAS 0.3.21 overruns 2 MiB silently, into the stack of another thread.
    static ONE_BLAS_THREAD: Once = Once::new();
    ONE_BLAS_THREAD.call_once(|| {
        use_one_thread();
    });
    run_ranks(size, body)
}
