//! The message of a job that a signal ends, about the memory that it leaves.
//!
//! Ctrl-C and SIGTERM end a rank as they always did, and launchers see the same
//! signal; rank 0 writes a line before that.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use skt_terms::units;

use crate::config::RunSpec;
use crate::report::heartbeat;
use crate::run::protect::{self, Settings};

/// The line, made before it is needed: a handler may not allocate.
static LINE: OnceLock<String> = OnceLock::new();
/// Whether there is something that stays.
static IS_KEPT: AtomicBool = AtomicBool::new(false);

extern "C" fn end(signal: libc::c_int) {
    if let (true, Some(line)) = (IS_KEPT.load(Ordering::Relaxed), LINE.get()) {
        // SAFETY: `write` is allowed in signal context; the line is never changed, and
        // nothing is done about an error.
        unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
    }
    // SAFETY: `raise` is allowed in signal context. The signal has its default action
    // again (SA_RESETHAND), and comes when this handler returns.
    unsafe { libc::raise(signal) };
}

/// From now on SIGINT and SIGTERM say what of the run stays, on the rank that calls
/// this, while [`keep`] says that something does. Under a supervisor, which speaks
/// itself, and where a signal is ignored or handled already, nothing is changed.
pub fn listen(spec: &RunSpec, settings: &Settings) {
    const LEGAL: &str = "these signals may be handled";
    if std::env::var_os(heartbeat::ENV).is_some() {
        return;
    }
    LINE.get_or_init(|| line(spec, settings));
    let action = SigAction::new(SigHandler::Handler(end), SaFlags::SA_RESETHAND, SigSet::empty());
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        // SAFETY: the handler does only what is allowed in signal context.
        let before = unsafe { sigaction(signal, &action) }.expect(LEGAL);
        if !matches!(before.handler(), SigHandler::SigDfl) {
            // SAFETY: puts back what was there.
            unsafe { sigaction(signal, &before) }.expect(LEGAL);
        }
    }
}

/// Whether shared memory of the run would stay if it ended now.
pub fn keep(is_kept: bool) {
    IS_KEPT.store(is_kept, Ordering::Relaxed);
}

/// What stays, how to go on, and how to remove it.
fn line(spec: &RunSpec, settings: &Settings) -> String {
    let bytes = spec.tests().into_iter().map(|test| {
        let hosts = std::iter::repeat_n("", test.p * test.q);
        let geometry = protect::smallest_group(settings, hosts);
        let split = protect::memory_split(&test, settings, geometry);
        (split.total() - split.work_space).saturating_mul((test.p * test.q) as u64)
    });
    let bytes = units::bytes(bytes.max().unwrap_or(0));
    let run = &settings.run_id;
    let store = protect::store_flag(&settings.store);
    format!(
        "\nskt-hpl: ended by a signal. Run {run} keeps up to {bytes} of shared memory on its \
         hosts: the same command goes on from its last checkpoint (from the beginning, if there \
         is none yet); `skt-hpl shm clean --run {run}{store}` on each host removes it.\n"
    )
}
