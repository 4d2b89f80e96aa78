//! Standard output and standard error, which may have been closed before the program started.

use std::io::{self, Write as _};
use std::sync::atomic::{AtomicU8, Ordering};

use nix::sys::signal::{SigHandler, Signal, signal};

/// Bit `n` is set if the process was started with its file descriptor `n` closed.
static CLOSED: AtomicU8 = AtomicU8::new(0);

/// Runs before `main` and before Rust's runtime, which opens /dev/null in place of closed
/// descriptors: a report would be lost there without an error.
#[used]
// SAFETY: the C library calls the functions in this section before `main`, with arguments that the
// function does not take; `look` needs nothing that is set up later.
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    for fd in [libc::STDOUT_FILENO, libc::STDERR_FILENO] {
        // SAFETY: asks for a flag, and changes nothing.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } == -1 {
            CLOSED.fetch_or(1 << fd, Ordering::Relaxed);
        }
    }
}

/// Whether the process was started with the descriptor `fd`, of standard output or standard error,
/// closed.
pub fn was_closed(fd: i32) -> bool {
    CLOSED.load(Ordering::Relaxed) & (1 << fd) != 0
}

/// The numbers of those of the two descriptors that were closed.
pub fn closed() -> Vec<i32> {
    [libc::STDOUT_FILENO, libc::STDERR_FILENO].into_iter().filter(|&fd| was_closed(fd)).collect()
}

pub fn stdout() -> io::Result<io::Stdout> {
    if was_closed(libc::STDOUT_FILENO) {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    Ok(io::stdout())
}

/// Writes bytes to standard output, and flushes it.
pub fn print(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = stdout()?.lock();
    stdout.write_all(bytes)?;
    stdout.flush()
}

/// Lets a closed pipe end the process, as other text tools do (`| head`). The benchmark must not
/// call this: there a broken connection must stay an error that the transport can handle.
pub fn die_quietly_on_closed_pipe() {
    // SAFETY: SIG_DFL installs no handler, so no code of ours runs in signal context.
    let _ = unsafe { signal(Signal::SIGPIPE, SigHandler::SigDfl) };
}
