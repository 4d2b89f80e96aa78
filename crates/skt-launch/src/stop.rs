//! Signals to the supervisor: the number of SIGINT (Ctrl-C) and SIGTERM, which ask it to stop, and
//! SIGUSR1, which ends the time of the run.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

static ASKED: AtomicUsize = AtomicUsize::new(0);
static TIME_IS_UP: AtomicBool = AtomicBool::new(false);

extern "C" fn count(_: libc::c_int) {
    ASKED.fetch_add(1, Ordering::Relaxed);
}

extern "C" fn end_time(_: libc::c_int) {
    TIME_IS_UP.store(true, Ordering::Relaxed);
}

/// Starts to count SIGINT and SIGTERM and to note SIGUSR1; none of them ends the process any more.
pub fn listen() -> io::Result<()> {
    for (signal, handler) in [
        (Signal::SIGINT, count as extern "C" fn(libc::c_int)),
        (Signal::SIGTERM, count),
        (Signal::SIGUSR1, end_time),
    ] {
        let handler = SigHandler::Handler(handler);
        let action = SigAction::new(handler, SaFlags::SA_RESTART, SigSet::empty());
        // SAFETY: the handlers only change an atomic word, which is allowed in signal context.
        unsafe { sigaction(signal, &action) }?;
    }
    Ok(())
}

/// Whether SIGUSR1 has come since the last call.
pub fn is_time_up() -> bool {
    TIME_IS_UP.swap(false, Ordering::Relaxed)
}

pub fn asked() -> usize {
    ASKED.load(Ordering::Relaxed)
}
