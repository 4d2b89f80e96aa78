//! Ranks as threads of one process that call the BLAS, for tests.

use std::fmt::Display;
use std::sync::Once;

use skt_comm::Comm;
use skt_comm::threads::run as run_ranks;

use crate::blas::library::use_one_thread;

/// [`skt_comm::threads::run`]; the BLAS of this process uses one thread a call from then on.
pub fn run<T, E, F>(size: usize, body: F) -> Vec<Result<T, E>>
where
    T: Send,
    E: Send + Display,
    F: Fn(Comm) -> Result<T, E> + Sync,
{
    // A BLAS that threads on its own wants more stack than a thread of Rust has:
    // OpenBLAS 0.3.21 overruns 2 MiB silently, into the stack of another thread.
    static ONE_BLAS_THREAD: Once = Once::new();
    ONE_BLAS_THREAD.call_once(|| {
        use_one_thread();
    });
    run_ranks(size, body)
}
