//! Ctrl-C and SIGTERM as a number that the supervisor reads.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

static ASKED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count(_: libc::c_int) {
    ASKED.fetch_add(1, Ordering::Relaxed);
}

/// From now on SIGINT and SIGTERM are counted and do not end the process.
///
/// # Errors
/// What the system says.
pub fn listen() -> io::Result<()> {
    let action = SigAction::new(SigHandler::Handler(count), SaFlags::SA_RESTART, SigSet::empty());
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        // SAFETY: the handler only adds to an atomic number, which is allowed
        // in signal context.
        unsafe { sigaction(signal, &action) }?;
    }
    Ok(())
}

/// How often we were asked to stop.
pub fn asked() -> usize {
    ASKED.load(Ordering::Relaxed)
}
