//! Signals to the supervisor. No signal that can be handled, except after an error of this program,
//! ends it before its job: that would leave the job unwatched.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::{io, ptr};

use libc::c_int;
use nix::sys::signal::Signal;

/// These ask to stop as SIGTERM does: the terminal is closed, the batch system warns of the end, or
/// a limit is reached. So do the real-time signals, which would end a process, too.
const REQUESTS: [Signal; 10] = [
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR2,
    Signal::SIGXCPU,
    Signal::SIGPWR,
    Signal::SIGALRM,
    Signal::SIGVTALRM,
    Signal::SIGPROF,
    Signal::SIGIO,
    Signal::SIGSTKFLT,
];

static ASKED: AtomicUsize = AtomicUsize::new(0);
/// The last signal that asked to stop, until it is reported; else 0.
static UNREPORTED: AtomicI32 = AtomicI32::new(0);
static TIME_IS_UP: AtomicBool = AtomicBool::new(false);

extern "C" fn count(signal: c_int) {
    ASKED.fetch_add(1, Ordering::Relaxed);
    UNREPORTED.store(signal, Ordering::Relaxed);
}

/// Asks once: a limit that stays exceeded, or a terminal and its shell, send several, which is no
/// impatience.
extern "C" fn ask(signal: c_int) {
    if ASKED.fetch_max(1, Ordering::Relaxed) == 0 {
        UNREPORTED.store(signal, Ordering::Relaxed);
    }
}

/// A write beyond the largest size of a file fails instead.
extern "C" fn ignore(_: c_int) {}

extern "C" fn end_time(_: c_int) {
    TIME_IS_UP.store(true, Ordering::Relaxed);
}

/// Starts to count SIGINT (Ctrl-C), SIGTERM, [`REQUESTS`] and real-time signals, which ask to stop,
/// and to note SIGUSR1, which ends the time of the run. What is ignored stays so (`nohup`), except
/// the three that are named here.
pub(crate) fn listen() -> io::Result<()> {
    for (signal, handler) in
        [(Signal::SIGINT, count as Handler), (Signal::SIGTERM, count), (Signal::SIGUSR1, end_time)]
    {
        handle(signal as c_int, handler)?;
    }
    let requests = REQUESTS.iter().map(|signal| *signal as c_int).chain(real_time());
    let requests = requests.map(|signal| (signal, ask as Handler));
    for (signal, handler) in requests.chain([(Signal::SIGXFSZ as c_int, ignore as Handler)]) {
        let before = handle(signal, handler)?;
        if before.sa_sigaction == libc::SIG_IGN {
            // SAFETY: no handler.
            checked(unsafe { libc::sigaction(signal, &raw const before, ptr::null_mut()) })?;
        }
    }
    Ok(())
}

/// The real-time signals that the C library does not use itself.
fn real_time() -> impl Iterator<Item = c_int> {
    libc::SIGRTMIN()..=libc::SIGRTMAX()
}

type Handler = extern "C" fn(c_int);

/// Installs one of the handlers above, and returns what was there before.
fn handle(signal: c_int, handler: Handler) -> io::Result<libc::sigaction> {
    // SAFETY: plain data for which all zeros is a value: no handler, no flags, an empty set.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = handler as libc::sighandler_t;
    action.sa_flags = libc::SA_RESTART;
    let mut before = action;
    // SAFETY: the handlers change atomic words at most, which is allowed in signal context.
    checked(unsafe { libc::sigaction(signal, &raw const action, &raw mut before) })?;
    Ok(before)
}

fn checked(result: c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The name of the signal that asked to stop since the last call, if one has.
pub(crate) fn unreported() -> Option<String> {
    match UNREPORTED.swap(0, Ordering::Relaxed) {
        0 => None,
        signal => Some(match Signal::try_from(signal) {
            Ok(signal) => signal.as_str().to_owned(),
            Err(_) => format!("SIGRTMIN+{}", signal - libc::SIGRTMIN()),
        }),
    }
}

pub(crate) fn is_time_up() -> bool {
    TIME_IS_UP.swap(false, Ordering::Relaxed)
}

pub(crate) fn asked() -> usize {
    ASKED.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use nix::sys::signal::{SigHandler, raise, signal};

    use super::*;

    /// Signals are of the whole process, so another one raises them.
    #[test]
    fn signals_ask_to_stop_unless_they_are_ignored() {
        const ROLE: &str = "SKT_HPL_TEST_STOP";
        const TEST: &str = "stop::tests::signals_ask_to_stop_unless_they_are_ignored";
        let Ok(role) = std::env::var(ROLE) else {
            for role in ["ignored", "handled"] {
                let mut child = Command::new(std::env::current_exe().unwrap());
                let output = child.args(["--exact", TEST]).env(ROLE, role).output().unwrap();
                let printed = String::from_utf8_lossy(&output.stdout);
                assert!(output.status.success(), "{role}: {}\n{printed}", output.status);
            }
            return;
        };
        let is_ignored = role == "ignored";
        // The tests themselves may run under nohup.
        let action = if is_ignored { SigHandler::SigIgn } else { SigHandler::SigDfl };
        // SAFETY: no handler.
        unsafe { signal(Signal::SIGHUP, action) }.unwrap();
        listen().unwrap();
        raise(Signal::SIGHUP).unwrap();
        assert_eq!(asked(), usize::from(!is_ignored));
        raise(Signal::SIGXFSZ).unwrap();
        assert_eq!(asked(), usize::from(!is_ignored));
        assert_eq!(unreported(), (!is_ignored).then(|| "SIGHUP".to_owned()));
        for signal in real_time() {
            // SAFETY: a signal of this process.
            assert_eq!(unsafe { libc::raise(signal) }, 0);
        }
        assert_eq!(unreported(), is_ignored.then(|| "SIGRTMIN+0".to_owned()));
        for signal in REQUESTS {
            raise(signal).unwrap();
        }
        assert_eq!((asked(), unreported()), (1, None));
        raise(Signal::SIGTERM).unwrap();
        assert_eq!((asked(), unreported()), (2, Some("SIGTERM".to_owned())));
    }
}
