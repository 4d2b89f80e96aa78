//! A process that is told to end ends between two pieces of work, not within one.
//!
//! Launchers end the ranks that are left of a job with SIGTERM, and with SIGKILL a
//! second later. Data that is changed in place cannot be used where a change was cut
//! short. So each change is a *piece*, between [`begin_piece`] and [`end_piece`], and a
//! process in which one is under way outlives the signal until the last of them is done.
//! Pieces take some tenths of a second at most.
//!
//! ```text
//! handler:  told = signal;  if running = 0: end           either sees the other:
//! begin:    running += 1;   if told: give up the piece    all are sequentially consistent
//! end:      running -= 1;   if it is 0 now, and told: end
//! ```

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

/// Pieces under way.
static RUNNING: AtomicUsize = AtomicUsize::new(0);
/// The signal that has come, or 0.
static TOLD: AtomicI32 = AtomicI32::new(0);
/// What is written to standard error at the end, made before it is needed: a handler may
/// not allocate.
static LAST_WORDS: OnceLock<String> = OnceLock::new();
/// Whether it is true by now.
static ARE_TRUE: AtomicBool = AtomicBool::new(false);

/// Has SIGTERM and SIGINT end this process between pieces, with `last_words` on standard
/// error, if there are any, while [`say_last_words`] says so. A signal that is ignored or
/// handled already stays so.
pub fn listen(last_words: Option<String>) {
    const LEGAL: &str = "these signals may be handled";
    if let Some(words) = last_words {
        LAST_WORDS.get_or_init(|| words);
    }
    let action = SigAction::new(SigHandler::Handler(told), SaFlags::SA_RESTART, SigSet::empty());
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        // SAFETY: the handler does only what is allowed in signal context.
        let before = unsafe { sigaction(signal, &action) }.expect(LEGAL);
        if !matches!(before.handler(), SigHandler::SigDfl) {
            // SAFETY: puts back what was there.
            unsafe { sigaction(signal, &before) }.expect(LEGAL);
        }
    }
}

/// Whether the last words are true from now on.
pub fn say_last_words(are_true: bool) {
    ARE_TRUE.store(are_true, Ordering::Relaxed);
}

extern "C" fn told(signal: libc::c_int) {
    TOLD.store(signal, Ordering::SeqCst);
    if RUNNING.load(Ordering::SeqCst) == 0 {
        end();
    }
}

/// Ends the process as the signal would have. Allowed in signal context.
fn end() -> ! {
    if let (true, Some(words)) = (ARE_TRUE.load(Ordering::Relaxed), LAST_WORDS.get()) {
        // SAFETY: `write` is allowed in signal context; the words are never changed, and
        // nothing is done about an error.
        unsafe { libc::write(libc::STDERR_FILENO, words.as_ptr().cast(), words.len()) };
    }
    let signal = TOLD.load(Ordering::SeqCst);
    // SAFETY: all of these are allowed in signal context; the set is made before it is read.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        // It is blocked while its handler runs.
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
        libc::raise(signal);
        libc::_exit(128 + signal)
    }
}

/// Begins a piece: the process does not end by a signal before [`end_piece`]. Does not
/// return where it has been told to end.
pub fn begin_piece() {
    RUNNING.fetch_add(1, Ordering::SeqCst);
    if TOLD.load(Ordering::SeqCst) != 0 {
        end_piece();
        // Another thread has a piece, at whose end the process ends.
        loop {
            std::thread::park();
        }
    }
}

/// A piece is done.
pub fn end_piece() {
    let is_last = RUNNING.fetch_sub(1, Ordering::SeqCst) == 1;
    if is_last && TOLD.load(Ordering::SeqCst) != 0 {
        end();
    }
}
