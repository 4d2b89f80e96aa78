//! A process that is told to end ends between two pieces of work, not within one.
//!
//! Launchers end the ranks that are left of a job with SIGTERM, and with SIGKILL some time
//! later. Data that is changed in place cannot be used where a change was cut
//! short. So each change is a *piece*, between [`begin_piece`] and [`end_piece`], and a
//! process in which one is under way outlives the signal until the last of them is done.
//! Pieces take some tenths of a second at most.
//!
//! ```text
//! handler:  told = signal;  if running = 0: end           either sees the other:
//! begin:    running += 1;   if told: give up the piece    all are sequentially consistent
//! end:      running -= 1;   if it is 0 now, and told: end
//! ```
//!
//! Open MPI sends SIGCONT for processes that are stopped, SIGTERM 1 s later (version 5: 0.25 s),
//! and SIGKILL so much later again, or at once when a rank of the node has ended in between. So no
//! piece begins for a while after a SIGCONT: SIGTERM finds all processes between pieces, but for
//! those with a piece that takes longer. And a process that ends waits for `LINGER` before: for
//! the pieces of the others, where no SIGCONT came, and for the one that has something to say.
//!
//! Without a signal, a rank that loses its launcher is ended by MPI: Open MPI calls `_exit` in a
//! thread of its own. The program has an [`_exit`] that waits for pieces that are under way.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

/// Pieces under way.
static RUNNING: AtomicUsize = AtomicUsize::new(0);
/// The signal that has come, or 0.
static TOLD: AtomicI32 = AtomicI32::new(0);
/// No piece begins after SIGCONT for so long, in nanoseconds: longer than the launcher waits with
/// SIGTERM.
static HOLD_NANOSECONDS: AtomicU64 = AtomicU64::new(1_300_000_000);
/// How long Open MPI 4 waits with SIGTERM, in seconds, where that is not the usual second: its
/// ranks have what it was set to, whether on the command line or in the environment. Version 5
/// waits for a quarter of a second.
const LAUNCHER_WAITS: &str = "OMPI_MCA_odls_base_sigkill_timeout";
/// So much longer: signals may be late on a busy machine.
const HOLD_MORE_SECONDS: f64 = 0.3;
/// A process that has been told to end is there for so long after its last piece.
const LINGER: Duration = Duration::from_millis(300);
/// A piece that takes longer is not waited for when MPI ends the process.
const LONGEST_PIECE: Duration = Duration::from_secs(2);
/// The process that listens, or 0.
static LISTENER: AtomicU32 = AtomicU32::new(0);
/// Whether it has begun to end.
static ENDS: AtomicBool = AtomicBool::new(false);
/// When the last SIGCONT came, in nanoseconds of the monotonic clock; 0: none.
static CONTINUED_NANOSECONDS: AtomicU64 = AtomicU64::new(0);
/// What is written to standard error at the end, made before it is needed: a handler may
/// not allocate.
static LAST_WORDS: OnceLock<String> = OnceLock::new();
/// Whether it is true by now.
static ARE_TRUE: AtomicBool = AtomicBool::new(false);

/// Has SIGTERM and SIGINT end this process between pieces, with `last_words` on standard
/// error, if there are any, while [`say_last_words`] says so. A signal that is ignored or
/// handled already stays so.
pub fn listen(last_words: Option<String>) {
    LISTENER.store(std::process::id(), Ordering::SeqCst);
    let hold = hold_seconds(std::env::var(LAUNCHER_WAITS).ok().as_deref());
    HOLD_NANOSECONDS.store((1e9 * hold) as u64, Ordering::Relaxed);
    if let Some(words) = last_words {
        LAST_WORDS.get_or_init(|| words);
    }
    for (signal, handler) in [
        (Signal::SIGINT, told as extern "C" fn(libc::c_int)),
        (Signal::SIGTERM, told),
        (Signal::SIGCONT, continued),
    ] {
        // SAFETY: the handlers do only what is allowed in signal context.
        unsafe { handle(signal, handler) };
    }
}

/// Has `handler` called for a signal, unless that is ignored or handled already.
///
/// # Safety
/// The handler does only what is allowed in signal context.
pub unsafe fn handle(signal: Signal, handler: extern "C" fn(libc::c_int)) {
    const LEGAL: &str = "this signal may be handled";
    let handler = SigHandler::Handler(handler);
    let action = SigAction::new(handler, SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: the caller's promise.
    let before = unsafe { sigaction(signal, &action) }.expect(LEGAL);
    if !matches!(before.handler(), SigHandler::SigDfl) {
        // SAFETY: puts back what was there.
        unsafe { sigaction(signal, &before) }.expect(LEGAL);
    }
}

/// Seconds for which no piece begins after SIGCONT, where the launcher was told to wait that long
/// with SIGTERM.
fn hold_seconds(launcher_waits: Option<&str>) -> f64 {
    let told = launcher_waits.and_then(|text| text.trim().parse::<f64>().ok());
    told.filter(|told| told.is_finite()).unwrap_or(1.0).max(1.0) + HOLD_MORE_SECONDS
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

extern "C" fn continued(_: libc::c_int) {
    CONTINUED_NANOSECONDS.store(monotonic_nanoseconds(), Ordering::Relaxed);
}

/// In the place of libc's, which libraries find behind the program's: of a process that has pieces
/// under way it waits for their end, at most for `LONGEST_PIECE`, and none begins any more.
#[unsafe(no_mangle)]
pub extern "C" fn _exit(status: libc::c_int) -> ! {
    // A child that could not become another program has no pieces.
    if LISTENER.load(Ordering::SeqCst) == std::process::id() {
        let _ = TOLD.compare_exchange(0, libc::SIGTERM, Ordering::SeqCst, Ordering::SeqCst);
        let end = monotonic_nanoseconds() + LONGEST_PIECE.as_nanos() as u64;
        while RUNNING.load(Ordering::SeqCst) > 0 && monotonic_nanoseconds() < end {
            nap(Duration::from_millis(1));
        }
    }
    // SAFETY: ends the process, as this function is to.
    unsafe { libc::syscall(libc::SYS_exit_group, status) };
    unreachable!("exit_group does not return");
}

/// Allowed in signal context.
fn monotonic_nanoseconds() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes to `now` alone; allowed in signal context.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Waits while a SIGTERM may be near.
fn wait_for_the_end() {
    let hold_nanoseconds = HOLD_NANOSECONDS.load(Ordering::Relaxed);
    loop {
        let continued = CONTINUED_NANOSECONDS.load(Ordering::Relaxed);
        if continued == 0 || monotonic_nanoseconds() >= continued + hold_nanoseconds {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Ends the process as the signal would have; returns where another thread does. Allowed in
/// signal context.
fn end() {
    if ENDS.swap(true, Ordering::SeqCst) {
        return;
    }
    if let (true, Some(words)) = (ARE_TRUE.load(Ordering::Relaxed), LAST_WORDS.get()) {
        // SAFETY: `write` is allowed in signal context; the words are never changed, and
        // nothing is done about an error.
        unsafe { libc::write(libc::STDERR_FILENO, words.as_ptr().cast(), words.len()) };
    }
    nap(LINGER);
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

/// Sleeps, at most for a second. Allowed in signal context.
fn nap(time: Duration) {
    let nanoseconds = libc::c_long::from(time.subsec_nanos());
    let mut left = libc::timespec { tv_sec: 0, tv_nsec: nanoseconds };
    // SAFETY: reads and writes `left` alone; allowed in signal context. A signal cuts it short.
    while unsafe { libc::nanosleep(&raw const left, &raw mut left) } != 0 {}
}

/// Begins a piece: the process does not end by a signal before [`end_piece`]. Does not
/// return where it has been told to end.
pub fn begin_piece() {
    wait_for_the_end();
    RUNNING.fetch_add(1, Ordering::SeqCst);
    if TOLD.load(Ordering::SeqCst) != 0 {
        end_piece();
        // Another thread has a piece, at whose end the process ends.
        loop {
            thread::park();
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::{Child, Command, Stdio};
    use std::sync::mpsc;

    use nix::sys::signal::kill;
    use nix::unistd::Pid;

    const ROLE: &str = "SKT_HPL_TEST_GRACE";

    /// A process that listens, and, once it has said so, is in a piece for so many
    /// milliseconds, or has short pieces without end for 0, with a line for each.
    pub fn start(piece_milliseconds: u64, prepare: impl FnOnce(&mut Command)) -> Child {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([
            "--ignored",
            "--exact",
            "--nocapture",
            "machine::grace::tests::plays_its_role",
        ]);
        command.env(ROLE, piece_milliseconds.to_string()).stdout(Stdio::piped());
        prepare(&mut command);
        let mut child = command.spawn().unwrap();
        let out = child.stdout.take().unwrap();
        let mut out = BufReader::with_capacity(1, out);
        let mut line = String::new();
        while !line.contains("listens") {
            line.clear();
            assert!(out.read_line(&mut line).unwrap() > 0, "it has ended");
        }
        child.stdout = Some(out.into_inner());
        child
    }

    #[test]
    #[ignore = "the others start it"]
    fn plays_its_role() {
        let Ok(role) = std::env::var(ROLE) else { return };
        let piece: u64 = role.parse().unwrap();
        listen(None);
        if piece == 0 {
            println!("listens");
            loop {
                begin_piece();
                println!("piece");
                end_piece();
                thread::sleep(Duration::from_millis(10));
            }
        }
        begin_piece();
        println!("listens");
        thread::sleep(Duration::from_millis(piece));
        end_piece();
        thread::sleep(Duration::from_secs(60));
    }

    #[test]
    fn pieces_wait_as_long_as_the_launcher() {
        for (told, want) in [(None, 1.3), (Some("5"), 5.3), (Some("0"), 1.3), (Some("inf"), 1.3)] {
            assert_eq!(hold_seconds(told), want, "{told:?}");
        }
    }

    #[test]
    fn no_piece_begins_for_a_while_after_a_process_is_continued() {
        let mut child = start(0, |_| ());
        let out = BufReader::new(child.stdout.take().unwrap());
        let (sender, pieces) = mpsc::channel();
        thread::spawn(move || out.lines().map_while(Result::ok).try_for_each(|_| sender.send(())));
        let within = |milliseconds| {
            thread::sleep(Duration::from_millis(milliseconds));
            pieces.try_iter().count()
        };
        assert!(within(500) > 2);
        // As long as the longest that a launcher waits before it sends SIGTERM.
        kill(Pid::from_raw(child.id() as i32), Signal::SIGCONT).unwrap();
        // What was written before.
        within(100);
        assert_eq!(within(950), 0);
        assert!(within(1000) > 2, "it goes on");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
