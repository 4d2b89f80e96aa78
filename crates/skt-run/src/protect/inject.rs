//! Injected faults: a rank kills itself, as a node that fails would.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::heartbeat;
use skt_checkpoint::checkpoint::hook::{Hook, Step, Wait};
use skt_comm::Result;
use skt_config::protection::{Inject, What};
use skt_host::messages;
use skt_store::codec::checksum;
use skt_store::store::{SegmentName, Store};

/// A fault of this process.
struct Fault {
    what: What,
    /// The text that the user has given.
    text: String,
    /// The name of the fault's mark in the store.
    mark: String,
    /// Whether the fault has happened, in this start or, according to its mark, in an earlier one.
    has_struck: AtomicBool,
    /// Whether its mark could not be left.
    is_refused: AtomicBool,
}

/// The faults of this process. Each happens once a run: it leaves a mark in the store before it
/// happens, so that the same command, started again, continues without it. What happens to each is
/// printed.
pub struct FaultInjector {
    faults: Vec<Fault>,
    store: Box<dyn Store + Send + Sync>,
    run: String,
    process: usize,
    started: std::sync::OnceLock<Instant>,
}

impl FaultInjector {
    /// The faults of `process` among `all`, of run `run`.
    pub fn new(
        all: &[Inject],
        process: usize,
        store: Box<dyn Store + Send + Sync>,
        run: &str,
    ) -> Self {
        let mine = all.iter().enumerate().filter(|(_, inject)| inject.process == process);
        let fault = |(at, inject): (usize, &Inject)| {
            let mark = mark(&all[..at], inject);
            let has_struck = SegmentName::new(run, &mark, process as u32)
                .is_ok_and(|name| matches!(store.peek(&name, &mut []), Ok(Some(_))));
            if has_struck {
                messages::print(format_args!(
                    "--inject {inject}: an earlier start of run {run} has struck it, and this one \
                     does not"
                ));
            }
            let has_struck = AtomicBool::new(has_struck);
            let (what, text) = (inject.what.clone(), inject.text().to_owned());
            Fault { what, text, mark, has_struck, is_refused: AtomicBool::new(false) }
        };
        let faults = mine.map(fault).collect();
        let started = std::sync::OnceLock::new();
        Self { faults, store, run: run.to_owned(), process, started }
    }

    /// Called when `done` columns are eliminated.
    pub fn columns(&self, done: usize) {
        let elapsed = self.started.get_or_init(Instant::now).elapsed();
        self.strike(|what| match what {
            What::Column(column) => *column <= done,
            What::Milliseconds(ms) => elapsed.as_millis() as u64 >= *ms,
            _ => false,
        });
    }

    /// Called when the back substitution begins.
    pub(crate) fn back(&self) {
        self.strike(|what| *what == What::Back);
    }

    /// Whether a bit of the matrix flips, now that `done` columns are eliminated.
    pub(crate) fn flips(&self, done: usize) -> bool {
        let is_now = |what: &What| matches!(what, What::Flip(column) if *column <= done);
        self.faults.iter().any(|fault| is_now(&fault.what) && self.takes(fault, "flips a bit"))
    }

    fn strike(&self, is_now: impl Fn(&What) -> bool) {
        for fault in &self.faults {
            if is_now(&fault.what) && self.takes(fault, "dies") {
                kill_self();
            }
        }
    }

    /// Whether this fault happens now: it has not happened before, and its mark can be left.
    /// Prints that it happens or, once, why it cannot.
    fn takes(&self, fault: &Fault, does: &str) -> bool {
        if fault.has_struck.swap(true, Ordering::Relaxed) {
            return false;
        }
        let name = SegmentName::new(&self.run, &fault.mark, self.process as u32);
        match name.and_then(|name| self.store.create(&name, 8)) {
            Ok(_) => {
                messages::print(format_args!(
                    "--inject {}: rank {} {does}",
                    fault.text, self.process
                ));
                true
            }
            Err(why) => {
                fault.has_struck.store(false, Ordering::Relaxed);
                if !fault.is_refused.swap(true, Ordering::Relaxed) {
                    messages::print(format_args!(
                        "warning: --inject {}: rank {} cannot leave the fault's mark: {why}",
                        fault.text, self.process
                    ));
                }
                false
            }
        }
    }
}

impl Drop for FaultInjector {
    /// Warns of faults that did not happen: such a drill has tested nothing.
    fn drop(&mut self) {
        for fault in self.faults.iter().filter(|fault| !fault.has_struck.load(Ordering::Relaxed)) {
            let is_refused = fault.is_refused.load(Ordering::Relaxed);
            let why = if is_refused { "could not leave its mark" } else { "did not come to it" };
            messages::print(format_args!(
                "warning: --inject {}: it did not strike: rank {} {why}",
                fault.text, self.process
            ));
        }
    }
}

/// The name of a fault's mark: made of its text and the number of equal faults `before` it, so that
/// a start with other faults as well recognizes it.
fn mark(before: &[Inject], inject: &Inject) -> String {
    let number = before.iter().filter(|other| other.text() == inject.text()).count();
    format!("struck{:016x}", checksum(format!("{}#{number}", inject.text()).as_bytes()))
}

impl Hook for FaultInjector {
    fn at(&self, step: &Step) -> Result<()> {
        heartbeat::enter_phase(step.name.name());
        self.strike(|what| matches!(what, What::Step(pattern) if pattern.matches(step)));
        Ok(())
    }

    fn waits(&self, wait: &Wait) {
        skt_comm::expect_pause(wait.seconds.max(wait.expected_seconds));
        heartbeat::wait(wait.seconds, wait.operations, wait.expected_seconds);
    }
}

/// Dies without a message, as in a power failure.
fn kill_self() -> ! {
    // SAFETY: a signal to this process; it does not return.
    unsafe {
        libc::kill(libc::getpid(), libc::SIGKILL);
        loop {
            libc::pause();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skt_store::store::Files;

    #[test]
    fn fault_is_injected_once_its_mark_can_be_written() {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("store");
        let inject: Inject = "flip:0@column:8".parse().unwrap();
        let store = Box::new(Files::in_folder(&folder));
        let faults = FaultInjector::new(&[inject], 0, store, "run");
        assert!(!faults.flips(8), "the next start would strike it again");
        std::fs::create_dir(&folder).unwrap();
        assert!(faults.flips(16));
        assert!(!faults.flips(24), "once a run");
    }

    #[test]
    fn a_fault_keeps_its_mark_on_another_command_line() {
        let [a, b]: [Inject; 2] = ["1@back", "1@encode"].map(|text| text.parse().unwrap());
        assert_eq!(mark(&[], &b), mark(std::slice::from_ref(&a), &b));
        assert_ne!(mark(&[], &a), mark(&[], &b));
        // Two equal faults both happen.
        assert_ne!(mark(&[], &a), mark(std::slice::from_ref(&a), &a));
        assert!(SegmentName::new("run", &mark(&[], &a), 1).is_ok());
    }
}
