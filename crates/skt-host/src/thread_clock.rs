//! The clock of a thread, for measurements that other programs on its core must not lengthen.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Seconds of a core that the calling thread has used so far, in the system's code, too.
pub fn thread_cpu_seconds() -> f64 {
    let taken = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("Linux has this clock");
    Duration::from(taken).as_secs_f64()
}
