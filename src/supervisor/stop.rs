//! Ctrl-C and SIGTERM as a number that the supervisor reads, and SIGUSR1, by which the time of
//! the run ends.

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

/// From now on SIGINT and SIGTERM are counted, SIGUSR1 is noted, and none ends the process.
///
/// # Errors
/// What the system says.
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

/// Whether SIGUSR1 has come since this was asked last.
pub fn is_time_up() -> bool {
    TIME_IS_UP.swap(false, Ordering::Relaxed)
}

/// How often we were asked to stop.
pub fn asked() -> usize {
    ASKED.load(Ordering::Relaxed)
}
