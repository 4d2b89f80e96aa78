//! A rank that runs a program of the user: `skt-hpl rank` starts it, waits for its end, and reports
//! that to the supervisor, see [`super::program`].

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::prctl;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use super::process::{self, PROGRAM_ENV, RANK_COMM};
use super::program::{ProcessEnd, RankEnd};
use skt_checkpoint::heartbeat::{self, Heartbeat};
use skt_host::launcher_rank;

/// Whether the launcher, or a probe, has asked this rank to end.
static ASKED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_: libc::c_int) {
    ASKED.store(true, Ordering::Relaxed);
}

extern "C" fn ignore(_: libc::c_int) {}

/// Runs a program with its arguments to its end; returns its exit code, as a shell would.
pub fn run(program: &OsString, arguments: &[OsString]) -> u8 {
    // In lists of processes this name distinguishes this process from the program.
    let _ = prctl::set_name(RANK_COMM);
    if let Err(error) = listen() {
        return report_end(ProcessEnd::Unstarted(format!("signals: {error}")));
    }
    let mut command = Command::new(program);
    command.args(arguments).env(PROGRAM_ENV, "1");
    // SAFETY: between fork and exec the closure makes one system call, which is async-signal-safe.
    unsafe {
        command.pre_exec(|| prctl::set_pdeathsig(Signal::SIGKILL).map_err(io::Error::from));
    }
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            let why = format!("{}: {error}", program.display());
            return report_end(ProcessEnd::Unstarted(why));
        }
    };
    report_start();
    match child.wait() {
        Ok(status) => ended(status),
        Err(error) => report_end(ProcessEnd::Unstarted(format!("it is lost: {error}"))),
    }
}

/// Reports on the job's rank 0 that its program has started.
fn report_start() {
    if launcher_rank::rank().unwrap_or(0) == 0
        && let Ok(token) = std::env::var(heartbeat::ENV)
    {
        Heartbeat { elapsed_seconds: 0.0, ..Heartbeat::new(token, 0, "start") }.write();
    }
}

/// Lets this process survive the launcher's signals, to report the program's end. The program gets
/// them itself, because they go to the whole process group.
fn listen() -> nix::Result<()> {
    use Signal::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU};
    let ask = SigHandler::Handler(note);
    let pass = SigHandler::Handler(ignore);
    let asked = [SIGTERM, SIGINT, SIGHUP, SIGXCPU].map(|signal| (signal, ask));
    for (signal, handler) in asked.into_iter().chain([(SIGUSR1, pass), (SIGUSR2, pass)]) {
        let action = SigAction::new(handler, SaFlags::SA_RESTART, SigSet::empty());
        // SAFETY: the handlers change an atomic word at most, which is allowed in signal context.
        unsafe { sigaction(signal, &action) }?;
    }
    Ok(())
}

fn ended(status: ExitStatus) -> u8 {
    let end = match status.code() {
        Some(code) => ProcessEnd::Code(code as u8),
        None => ProcessEnd::Signal(status.signal().unwrap_or(0)),
    };
    // A program that was asked to end may end in any way: only a code of 0 counts as its own word.
    if ASKED.load(Ordering::Relaxed) && end != ProcessEnd::Code(0) {
        return end.shell_code();
    }
    report_end(end)
}

/// Writes the record of this rank's end, in one write, and returns the exit code.
fn report_end(end: ProcessEnd) -> u8 {
    let code = end.shell_code();
    let token = std::env::var(heartbeat::ENV).unwrap_or_default();
    let (rank, host) = (launcher_rank::rank(), process::this_host());
    let record = RankEnd { token, rank, host, end };
    let _ = io::stderr().lock().write_all(record.line().as_bytes());
    code
}
