//! A process that is asked to end does so between two critical sections, not within one.
//!
//! Launchers end the remaining ranks of a job with SIGTERM, and with SIGKILL some time later. Data
//! that is changed in place cannot be used if a change was interrupted. So each change is a
//! *critical section*, between `begin_critical` and `end_critical`, and a process with one in
//! progress survives the signal until its last one is done. Critical sections take at most some
//! tenths of a second.
//!
//! ```text
//! handler:  stop = signal;  if running = 0: end           either sees the other:
//! begin:    running += 1;   if stop: give up the section  all are sequentially consistent
//! end:      running -= 1;   if it is 0 now, and stop: end
//! ```
//!
//! Open MPI sends SIGCONT for stopped processes, SIGTERM 1 s later (version 5: 0.25 s), and SIGKILL
//! after the same time again, or at once when a rank of the node has ended in between. So no
//! critical section begins for a while after a SIGCONT: SIGTERM finds all processes between
//! critical sections, except those with a longer one. And a process waits for `LINGER` before it
//! ends: for the critical sections of others, where no SIGCONT came, and for the process that
//! prints a message.
//!
//! Without a signal, MPI ends a rank that loses its launcher: Open MPI calls `_exit` in one of its
//! threads. The program has an [`_exit`] that waits for critical sections in progress.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use skt_host::{launcher_rank, messages};

/// The number of critical sections in progress.
static RUNNING: AtomicUsize = AtomicUsize::new(0);
/// The signal that has arrived, or 0.
static STOP_SIGNAL: AtomicI32 = AtomicI32::new(0);
/// Nanoseconds after SIGCONT for which no critical section begins: longer than the launcher waits
/// before SIGTERM.
static HOLD_NANOSECONDS: AtomicU64 = AtomicU64::new(1_300_000_000);
/// The variable with the seconds that Open MPI 4 waits before SIGTERM, if not the usual second: its
/// ranks have the value, whether it was set on the command line or in the environment. Version 5
/// waits for a quarter of a second.
const LAUNCHER_WAITS: &str = "OMPI_MCA_odls_base_sigkill_timeout";
/// Added to that time, as signals may be late on a busy machine.
const HOLD_MORE_SECONDS: f64 = 0.3;
/// How long a process that has received a signal exists after its last critical section.
const LINGER: Duration = Duration::from_millis(300);
/// A longer critical section is not waited for when MPI ends the process.
const LONGEST_CRITICAL: Duration = Duration::from_secs(2);
/// The id of the process that listens, or 0.
static LISTENER: AtomicU32 = AtomicU32::new(0);
/// Whether the process has begun to end.
static ENDS: AtomicBool = AtomicBool::new(false);
/// When the last SIGCONT came, in nanoseconds of the monotonic clock; 0: none.
static CONTINUED_NANOSECONDS: AtomicU64 = AtomicU64::new(0);
/// The message for standard error at the end, made in advance, as a handler must not allocate.
static LAST_MESSAGE: OnceLock<String> = OnceLock::new();
/// Whether the message is true now.
static IS_ENABLED: AtomicBool = AtomicBool::new(false);

/// These end a run as SIGTERM does: a user, the terminal or the batch system wants its end.
const STOPS: [Signal; 5] =
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGUSR2, Signal::SIGXCPU];

/// Makes the signals that ask to stop end this process between critical sections, with
/// `last_message` on standard error, if any, while it is enabled by `enable_last_message`. A
/// signal that is ignored stays so, see `handle`.
pub fn listen(last_message: Option<String>) {
    LISTENER.store(std::process::id(), Ordering::SeqCst);
    let hold = hold_seconds(std::env::var(LAUNCHER_WAITS).ok().as_deref());
    HOLD_NANOSECONDS.store((1e9 * hold) as u64, Ordering::Relaxed);
    if let Some(words) = last_message {
        LAST_MESSAGE.get_or_init(|| words);
    }
    let stops = STOPS.map(|signal| (signal, handle_stop as extern "C" fn(libc::c_int)));
    for (signal, handler) in stops.into_iter().chain([(Signal::SIGCONT, continued as _)]) {
        // SAFETY: the handlers do only what is allowed in signal context.
        unsafe { handle(signal, handler) };
    }
}

/// Makes the signals that ask to stop end this process, and SIGUSR1 too, as nothing can be saved.
/// Libraries that MPI loads may have taken them.
pub(crate) fn listen_unprotected() {
    listen(None);
    // SAFETY: the handler does only what is allowed in signal context.
    unsafe { handle(Signal::SIGUSR1, handle_stop) };
}

/// Installs `handler` for a signal, unless that is ignored, as `nohup` does. A process begins
/// without handlers, so one that is there is of a library, and is replaced: MPI loads drivers
/// through hwloc, and LLVM, which some contain, takes SIGTERM, SIGINT and SIGUSR1 for itself.
///
/// # Safety
/// The handler does only what is allowed in signal context.
pub(crate) unsafe fn handle(signal: Signal, handler: extern "C" fn(libc::c_int)) {
    const LEGAL: &str = "this signal may be handled";
    let ours = SigHandler::Handler(handler);
    let action = SigAction::new(ours, SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: the caller's promise.
    let before = unsafe { sigaction(signal, &action) }.expect(LEGAL);
    if matches!(before.handler(), SigHandler::SigIgn) {
        // SAFETY: restores the earlier action.
        unsafe { sigaction(signal, &before) }.expect(LEGAL);
        return;
    }
    // A library that replaces `sigaction` may keep the signal.
    // SAFETY: the caller's promise; what is there is the same action.
    let now = unsafe { sigaction(signal, &action) }.expect(LEGAL);
    let is_ours =
        |there| matches!(there, SigHandler::Handler(there) if there as usize == handler as usize);
    if !is_ours(now.handler()) && launcher_rank::is_first() {
        messages::print(format_args!(
            "warning: a library of this process keeps {signal} for itself: skt-hpl does not act on \
             that signal"
        ));
    }
}

/// Seconds after SIGCONT for which no critical section begins, where the launcher was set to wait
/// that long before SIGTERM.
fn hold_seconds(launcher_waits: Option<&str>) -> f64 {
    let seconds = launcher_waits.and_then(|text| text.trim().parse::<f64>().ok());
    seconds.filter(|seconds| seconds.is_finite()).unwrap_or(1.0).max(1.0) + HOLD_MORE_SECONDS
}

/// Sets whether the last words are true.
pub(crate) fn enable_last_message(is_enabled: bool) {
    IS_ENABLED.store(is_enabled, Ordering::Relaxed);
}

extern "C" fn handle_stop(signal: libc::c_int) {
    STOP_SIGNAL.store(signal, Ordering::SeqCst);
    if RUNNING.load(Ordering::SeqCst) == 0 {
        end();
    }
}

extern "C" fn continued(_: libc::c_int) {
    CONTINUED_NANOSECONDS.store(monotonic_nanoseconds(), Ordering::Relaxed);
}

/// Replaces libc's `_exit`: libraries find the program's first. Lets no further critical section
/// begin, and waits for those in progress, at most for `LONGEST_CRITICAL`.
#[unsafe(no_mangle)]
pub extern "C" fn _exit(status: libc::c_int) -> ! {
    // A child that could not execute another program has no critical sections.
    if LISTENER.load(Ordering::SeqCst) == std::process::id() {
        let _ = STOP_SIGNAL.compare_exchange(0, libc::SIGTERM, Ordering::SeqCst, Ordering::SeqCst);
        let end = monotonic_nanoseconds() + LONGEST_CRITICAL.as_nanos() as u64;
        while RUNNING.load(Ordering::SeqCst) > 0 && monotonic_nanoseconds() < end {
            nap(Duration::from_millis(1));
        }
    }
    // SAFETY: ends the process, as this function must.
    unsafe { libc::syscall(libc::SYS_exit_group, status) };
    unreachable!("exit_group does not return");
}

/// The monotonic clock, in nanoseconds. Allowed in signal context.
fn monotonic_nanoseconds() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes only to `now`; allowed in signal context.
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

/// Ends the process as the signal would have. Returns if another thread is doing so. Allowed in
/// signal context.
fn end() {
    if ENDS.swap(true, Ordering::SeqCst) {
        return;
    }
    messages::print_held_in_handler();
    if let (true, Some(words)) = (IS_ENABLED.load(Ordering::Relaxed), LAST_MESSAGE.get()) {
        // SAFETY: `write` is allowed in signal context; the words never change, and an error is
        // ignored.
        unsafe { libc::write(libc::STDERR_FILENO, words.as_ptr().cast(), words.len()) };
    }
    nap(LINGER);
    let signal = STOP_SIGNAL.load(Ordering::SeqCst);
    // SAFETY: all of these are allowed in signal context; the set is initialized before it is read.
    unsafe {
        // SIGXCPU would write all memory to a core file, for which the time is over.
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
        libc::signal(signal, libc::SIG_DFL);
        // The signal is blocked while its handler runs.
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
    // SAFETY: reads and writes only `left`; allowed in signal context. A signal interrupts the
    // sleep.
    while unsafe { libc::nanosleep(&raw const left, &raw mut left) } != 0 {}
}

/// Begins a critical section: no signal ends the process before [`end_critical`]. Does not return
/// if the process has received a signal to end.
pub(crate) fn begin_critical() {
    wait_for_the_end();
    RUNNING.fetch_add(1, Ordering::SeqCst);
    if STOP_SIGNAL.load(Ordering::SeqCst) != 0 {
        end_critical();
        // Another thread has a critical section, at whose end the process ends.
        loop {
            thread::park();
        }
    }
}

pub(crate) fn end_critical() {
    let is_last = RUNNING.fetch_sub(1, Ordering::SeqCst) == 1;
    if is_last && STOP_SIGNAL.load(Ordering::SeqCst) != 0 {
        end();
    }
}

/// A process in the role of a rank, for tests here and of the supervisor.
#[doc(hidden)]
pub mod testing {
    use std::io::{BufRead, BufReader};
    use std::process::{Child, Command, Stdio};

    use super::*;

    const ROLE: &str = "SKT_HPL_TEST_GRACE";
    /// The process exits after this time, if no signal ends it.
    const LIFETIME: Duration = Duration::from_secs(60);

    /// Starts this program's ignored test `test`, which calls [`run_role`], as a process that
    /// listens. Once it has reported so, it is in a critical section for this number of
    /// milliseconds or, for 0, has a thousand short ones, with a line for each: when it began.
    pub fn start(
        test: &str,
        critical_milliseconds: u64,
        prepare: impl FnOnce(&mut Command),
    ) -> Child {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--ignored", "--exact", "--nocapture", test]);
        command.env(ROLE, critical_milliseconds.to_string()).stdout(Stdio::piped());
        prepare(&mut command);
        let mut child = command.spawn().expect("a process");
        let out = child.stdout.take().expect("a pipe");
        let mut out = BufReader::with_capacity(1, out);
        let mut line = String::new();
        while !line.contains("listens") {
            line.clear();
            assert!(out.read_line(&mut line).expect("a line") > 0, "it has ended");
        }
        child.stdout = Some(out.into_inner());
        child
    }

    /// Acts as the rank in a process that [`start`] has started; else does nothing.
    pub fn run_role() {
        let Ok(role) = std::env::var(ROLE) else { return };
        let critical: u64 = role.parse().expect("milliseconds");
        listen(None);
        if critical == 0 {
            println!("listens");
            for _ in 0..1000 {
                begin_critical();
                println!("{}", monotonic_nanoseconds());
                end_critical();
                thread::sleep(Duration::from_millis(10));
            }
            return;
        }
        begin_critical();
        println!("listens");
        thread::sleep(Duration::from_millis(critical));
        end_critical();
        thread::sleep(LIFETIME);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};

    use super::*;
    use nix::sys::signal::kill;
    use nix::unistd::Pid;

    #[test]
    #[ignore = "the others start it"]
    fn plays_its_role() {
        testing::run_role();
    }

    #[test]
    fn critical_sections_wait_as_long_as_the_launcher() {
        for (setting, want) in [(None, 1.3), (Some("5"), 5.3), (Some("0"), 1.3), (Some("inf"), 1.3)]
        {
            assert_eq!(hold_seconds(setting), want, "{setting:?}");
        }
    }

    /// As under `nohup`.
    #[test]
    fn an_ignored_signal_stays_ignored() {
        let mut child = testing::start("grace::tests::plays_its_role", 1, |command| {
            // SAFETY: one system call, which is allowed between fork and exec.
            unsafe {
                command.pre_exec(|| {
                    libc::signal(libc::SIGHUP, libc::SIG_IGN);
                    Ok(())
                })
            };
        });
        let pid = Pid::from_raw(child.id() as i32);
        // Of two pending signals the one with the lower number is delivered first.
        for signal in [Signal::SIGHUP, Signal::SIGUSR2] {
            kill(pid, signal).unwrap();
        }
        assert_eq!(child.wait().unwrap().signal(), Some(Signal::SIGUSR2 as i32));
    }

    #[test]
    fn limit_of_processor_time_ends_a_process_without_a_core_file() {
        let folder = tempfile::tempdir().unwrap();
        let mut child = testing::start("grace::tests::plays_its_role", 1, |command| {
            // SAFETY: one system call, which is allowed between fork and exec.
            unsafe {
                command.current_dir(folder.path()).pre_exec(|| {
                    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
                    libc::getrlimit(libc::RLIMIT_CORE, &raw mut limit);
                    limit.rlim_cur = limit.rlim_max;
                    libc::setrlimit(libc::RLIMIT_CORE, &raw const limit);
                    Ok(())
                })
            };
        });
        kill(Pid::from_raw(child.id() as i32), Signal::SIGXCPU).unwrap();
        let status = child.wait().unwrap();
        assert_eq!((status.signal(), status.core_dumped()), (Some(libc::SIGXCPU), false));
    }

    #[test]
    fn critical_sections_are_delayed_after_sigcont() {
        // The longest time that a launcher waits before it sends SIGTERM.
        const LAUNCHER_NANOSECONDS: u64 = 1_000_000_000;
        let mut child = testing::start("grace::tests::plays_its_role", 0, |_| ());
        let out = BufReader::new(child.stdout.take().unwrap());
        // When critical sections began, by the clock of the process.
        let mut begins = out.lines().map(|line| line.unwrap().parse::<u64>().unwrap());
        let before: Vec<u64> = begins.by_ref().take(20).collect();
        let gaps = before.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(gaps.min() < Some(LAUNCHER_NANOSECONDS / 10), "{before:?}");
        let continued = monotonic_nanoseconds();
        kill(Pid::from_raw(child.id() as i32), Signal::SIGCONT).unwrap();
        let mut last = before[19];
        let resumed = begins.find(|&begin| {
            let gap = begin - last;
            last = begin;
            begin > continued && gap >= LAUNCHER_NANOSECONDS
        });
        assert!(resumed.is_some(), "no gap until the process ended");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
