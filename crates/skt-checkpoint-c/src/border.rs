//! The entry of every call from C: catches panics, admits one thread at a time, keeps messages.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ffi::{CString, c_char, c_int};
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Mutex, Once, TryLockError};

use skt_host::shown::printable;

use crate::code::{Code, Result, Stop};
use crate::raw;
use crate::session::Session;

pub(crate) enum RunState {
    None,
    Open(Box<Session>),
    Over(Stop),
}

static STATE: Mutex<RunState> = Mutex::new(RunState::None);

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::default();
    /// Whether this thread is in a call, whose return code reports a panic.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Within a call. Others, which this library does not catch, are reported as before.
fn keep_panics_quiet() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if IS_INSIDE.try_with(Cell::get).unwrap_or(false) {
                let _ = PANIC.try_with(|at| *at.borrow_mut() = info.to_string());
            } else {
                report(info);
            }
        }));
    });
}

pub(crate) fn call(body: impl FnOnce(&mut RunState) -> Result<Code>) -> c_int {
    keep_panics_quiet();
    IS_INSIDE.set(true);
    let done = panic::catch_unwind(AssertUnwindSafe(|| on_state(body)));
    let code = done.unwrap_or_else(|payload| {
        // Dropping what was thrown may throw again.
        std::mem::forget::<Box<dyn Any + Send>>(payload);
        set_message(&bug().text);
        Code::Internal
    });
    IS_INSIDE.set(false);
    code as c_int
}

/// Runs a call that needs neither MPI nor a run, and returns its code.
pub(crate) fn local(body: impl FnOnce() -> Result<()>) -> c_int {
    let (code, text) = match body() {
        Ok(()) => (Code::Success, String::new()),
        Err(stop) => (stop.code, stop.text),
    };
    set_message(&text);
    code as c_int
}

fn on_state(body: impl FnOnce(&mut RunState) -> Result<Code>) -> Code {
    let mut state = match STATE.try_lock() {
        Ok(state) => state,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => {
            set_message(
                "another thread is in a call of this library, or a callback of this one: make one \
                 call at a time",
            );
            return Code::Thread;
        }
    };
    set_message("");
    let done = raw::check_mpi().and_then(|()| guarded(&mut state, body));
    match done {
        Ok(code) => code,
        Err(stop) => {
            set_message(&stop.text);
            let code = stop.code;
            if stop.is_over && !matches!(*state, RunState::Over(_)) {
                // The session's memory may be in use by messages that other ranks still send.
                std::mem::forget(std::mem::replace(&mut *state, RunState::Over(stop)));
            }
            code
        }
    }
}

/// Unless the run is over; a panic ends the run and is reported to the other ranks.
fn guarded(state: &mut RunState, body: impl FnOnce(&mut RunState) -> Result<Code>) -> Result<Code> {
    if let RunState::Over(stop) = state {
        return Err(stop.clone());
    }
    panic::catch_unwind(AssertUnwindSafe(|| body(state))).unwrap_or_else(|payload| {
        std::mem::forget(payload);
        let stop = bug();
        if let RunState::Open(session) = state {
            session.notify_failure(&stop);
        }
        Err(stop)
    })
}

fn bug() -> Stop {
    let at = PANIC.try_with(RefCell::take).unwrap_or_default();
    Stop::over(Code::Internal, format!("a bug of this library: {at}"))
}

/// A text for C, without zeros within.
pub(crate) fn c_text(text: &str) -> CString {
    let text: Vec<u8> = text.bytes().filter(|&byte| byte != 0).collect();
    CString::new(text).expect("no zero is left")
}

/// A thread that ends, as in a function of `atexit`, has no message any more, only return codes.
pub(crate) fn set_message(text: &str) {
    // Some texts are of the program's callbacks, of drivers or of files, and it prints them.
    let text = c_text(&printable(text));
    let _ = MESSAGE.try_with(|message| *message.borrow_mut() = text);
}

pub(crate) fn message() -> *const c_char {
    // A thread that ends has no message any more.
    MESSAGE.try_with(|message| message.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_bug_with_its_place_and_the_run_is_over() {
        keep_panics_quiet();
        IS_INSIDE.set(true);
        let stop = guarded(&mut RunState::None, |_| panic!("on purpose")).expect_err("it panics");
        IS_INSIDE.set(false);
        assert_eq!((stop.code, stop.is_over), (Code::Internal, true));
        assert!(
            stop.text.contains("border.rs") && stop.text.contains("on purpose"),
            "{}",
            stop.text
        );
        let over = guarded(&mut RunState::Over(stop.clone()), |_| unreachable!("the run is over"));
        assert_eq!(over, Err(stop));
    }
}
