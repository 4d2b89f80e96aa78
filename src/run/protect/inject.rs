//! Injected faults: a rank kills itself, as a node that fails would.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::checkpoint::codec::checksum;
use crate::checkpoint::hook::{Hook, Step, StepPattern, Wait};
use crate::checkpoint::store::{SegmentName, Store};
use crate::heartbeat;
use crate::hpl::comm::{self, Result};
use skt_host::messages;

/// A fault that a user asks for. `[RANK@]WHAT` kills a rank, with WHAT a step of the protocol,
/// `column:J`, `time:SECONDS`, or `back` (in the back substitution). `flip:RANK@column:J` flips a
/// bit of its matrix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Inject {
    text: String,
    /// The process that dies, by its rank in the launcher's order.
    pub process: usize,
    /// When the fault happens.
    pub what: What,
}

/// When a fault happens, and whether the rank dies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// At a step of the checkpoint protocol.
    Step(StepPattern),
    /// When this column is eliminated.
    Column(usize),
    /// This number of milliseconds after the start of the factorization.
    Milliseconds(u64),
    /// At the beginning of the back substitution.
    Back,
    /// The rank does not die: when this column is eliminated, a bit of the matrix flips.
    Flip(usize),
}

/// A text that is no fault to inject.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}`: {why}; say [RANK@]STEP, [RANK@]column:J, [RANK@]time:SECONDS, [RANK@]back or flip:RANK@column:J"
)]
pub struct BadInject {
    text: String,
    why: String,
}

impl FromStr for Inject {
    type Err = BadInject;

    fn from_str(text: &str) -> std::result::Result<Self, BadInject> {
        let bad = |why: String| BadInject { text: text.to_owned(), why };
        let (is_flip, fault) = text.strip_prefix("flip:").map_or((false, text), |f| (true, f));
        let (process, what) = fault.split_once('@').unwrap_or(("0", fault));
        let process = process.parse().map_err(|_| bad(format!("`{process}` is no rank")))?;
        let number = |number: &str| -> std::result::Result<f64, BadInject> {
            let value: f64 = number.parse().map_err(|_| bad(format!("`{number}` is no number")))?;
            if (0.0..1e12).contains(&value) { Ok(value) } else { Err(bad("out of range".into())) }
        };
        let what = match what.split_once(':') {
            Some(("column", column)) if is_flip => What::Flip(number(column)? as usize),
            _ if is_flip => return Err(bad("a bit flips at a column".into())),
            Some(("column", column)) => What::Column(number(column)? as usize),
            Some(("time", seconds)) => What::Milliseconds((number(seconds)? * 1e3) as u64),
            None if what == "back" => What::Back,
            // `recover:rebuild` is another way to say `recover-rebuild`.
            Some(("recover", step)) => What::Step(parse_step(&format!("recover-{step}"), &bad)?),
            _ => What::Step(parse_step(what, &bad)?),
        };
        Ok(Self { text: text.to_owned(), process, what })
    }
}

fn parse_step(
    text: &str,
    bad: &impl Fn(String) -> BadInject,
) -> std::result::Result<StepPattern, BadInject> {
    text.parse().map_err(|error| bad(format!("{error}")))
}

impl TryFrom<String> for Inject {
    type Error = BadInject;
    fn try_from(text: String) -> std::result::Result<Self, BadInject> {
        text.parse()
    }
}

impl From<Inject> for String {
    fn from(inject: Inject) -> String {
        inject.text
    }
}

impl fmt::Display for Inject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

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
            let (what, text) = (inject.what.clone(), inject.text.clone());
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
    pub fn back(&self) {
        self.strike(|what| *what == What::Back);
    }

    /// Whether a bit of the matrix flips, now that `done` columns are eliminated.
    pub fn flips(&self, done: usize) -> bool {
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
    let number = before.iter().filter(|other| other.text == inject.text).count();
    format!("struck{:016x}", checksum(format!("{}#{number}", inject.text).as_bytes()))
}

impl Hook for FaultInjector {
    fn at(&self, step: &Step) -> Result<()> {
        heartbeat::enter_phase(step.name.name());
        self.strike(|what| matches!(what, What::Step(pattern) if pattern.matches(step)));
        Ok(())
    }

    fn waits(&self, wait: &Wait) {
        comm::expect_pause(wait.seconds.max(wait.expected_seconds));
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
    use crate::checkpoint::store::Files;

    #[test]
    fn a_fault_whose_mark_cannot_be_left_strikes_when_it_can() {
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

    #[test]
    fn faults_are_read_and_written() {
        for (text, process, what) in [
            ("3@column:4096", 3, What::Column(4096)),
            ("time:1.5", 0, What::Milliseconds(1500)),
            ("2@back", 2, What::Back),
            ("1@encode:3", 1, What::Step("encode:3".parse().unwrap())),
            ("recover:rebuild", 0, What::Step("recover-rebuild".parse().unwrap())),
            ("flip:2@column:512", 2, What::Flip(512)),
            ("flip:column:512", 0, What::Flip(512)),
            ("flush:tile=7", 0, What::Step("flush:band=7".parse().unwrap())),
        ] {
            let inject: Inject = text.parse().unwrap();
            assert_eq!((inject.process, &inject.what), (process, &what), "{text}");
            let json = serde_json::to_string(&inject).unwrap();
            assert_eq!(serde_json::from_str::<Inject>(&json).unwrap(), inject);
        }
        for text in
            ["", "x@back", "column:x", "time:-1", "explode", "1@encode:x", "flip:1@back", "flip:"]
        {
            assert!(text.parse::<Inject>().is_err(), "{text}");
        }
    }
}
