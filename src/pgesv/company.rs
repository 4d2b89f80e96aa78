//! Company for the update: a thread that looks after what goes on beside it, while
//! the solver's own computes.
//!
//! A message of some megabytes needs somebody to look after it every millisecond or
//! so, and a product takes a hundred. Who speaks to other ranks takes *turns*: the
//! solver's thread has the turn but where it computes, and there gets it back when it
//! asks for it, before anything else begins.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use super::SolveError;
use super::guard::{Beside, Final, Left};

/// Between two looks while messages are on their way.
const PAUSE: Duration = Duration::from_micros(200);
/// Between two looks while there is nothing to do: nobody but the solver, who wakes
/// us, or another rank has anything to say.
const LONG_PAUSE: Duration = Duration::from_millis(5);

/// Who keeps company.
struct Company {
    turn: Mutex<()>,
    /// Whether the solver waits for the turn.
    is_wanted: AtomicBool,
    is_over: AtomicBool,
    /// What is final.
    rows: AtomicUsize,
    cols: usize,
}

/// The right to speak to other ranks, as the solver has it.
pub(super) struct Turn<'c> {
    /// Nobody else speaks, if none.
    company: Option<(&'c Company, Thread)>,
    held: Option<MutexGuard<'c, ()>>,
    /// Seconds it was waited for.
    waited_seconds: f64,
}

/// Ends the company, however the solver's part ends.
struct End<'c>(&'c AtomicBool, Thread);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.unpark();
    }
}

/// What another thread looks after meanwhile.
struct Lent<'b>(&'b mut dyn Beside);

// SAFETY: by the contract of `Beside`, what is called may be called from there.
unsafe impl Send for Lent<'_> {}

impl Lent<'_> {
    fn look_after(&mut self, company: &Company) -> Result<(), SolveError> {
        while !company.is_over.load(Ordering::Relaxed) {
            let turn = company.take();
            let done = Final { rows: company.rows.load(Ordering::Acquire), cols: company.cols };
            // SAFETY: the solver has called this final.
            let left = unsafe { self.0.look_after(done) }?;
            drop(turn);
            match left {
                Left::Work if company.is_wanted.load(Ordering::Relaxed) => thread::sleep(PAUSE),
                Left::Work => {}
                Left::Messages => thread::park_timeout(PAUSE),
                Left::Nothing => thread::park_timeout(LONG_PAUSE),
            }
        }
        Ok(())
    }
}

impl Company {
    fn take(&self) -> MutexGuard<'_, ()> {
        // There is nothing behind it that a panic could leave half done.
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn<'_> {
    /// The turn of who has no company.
    pub fn alone() -> Self {
        Self { company: None, held: None, waited_seconds: 0.0 }
    }

    /// Gives the turn away, until it is taken again: the solver speaks to nobody.
    pub fn give(&mut self) {
        self.held = None;
    }

    /// Takes the turn, if it does not have it.
    pub fn take(&mut self) {
        let Some((company, _)) = &self.company else { return };
        if self.held.is_none() {
            let start = Instant::now();
            company.is_wanted.store(true, Ordering::Relaxed);
            self.held = Some(company.take());
            company.is_wanted.store(false, Ordering::Relaxed);
            self.waited_seconds += start.elapsed().as_secs_f64();
        }
    }

    /// Takes the turn unless it would have to wait. Whether it has it.
    pub fn take_if_free(&mut self) -> bool {
        let Some((company, _)) = &self.company else { return true };
        if self.held.is_none() {
            self.held = match company.turn.try_lock() {
                Ok(held) => Some(held),
                Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            };
        }
        self.held.is_some()
    }

    /// Local rows before `rows` are final: [`Final`].
    ///
    /// # Safety
    /// As [`Beside::look_after`].
    pub unsafe fn rows_are_final(&self, rows: usize) {
        if let Some((company, thread)) = &self.company {
            company.rows.store(rows, Ordering::Release);
            thread.unpark();
        }
    }
}

/// Does `body`, which begins with the turn, in the company of what goes on beside
/// it, if anything does. `done` is final from the beginning.
///
/// # Safety
/// As [`Beside::look_after`].
///
/// # Errors
/// Of `body`, else of its company.
pub(super) unsafe fn keep<R>(
    beside: &mut dyn Beside,
    done: Final,
    body: impl FnOnce(&mut Turn) -> Result<R, SolveError>,
) -> Result<R, SolveError> {
    if !beside.goes_on() {
        return body(&mut Turn::alone());
    }
    let company = Company {
        turn: Mutex::new(()),
        is_wanted: AtomicBool::new(false),
        is_over: AtomicBool::new(false),
        rows: AtomicUsize::new(done.rows),
        cols: done.cols,
    };
    let held = Some(company.take());
    let mut lent = Lent(beside);
    let (result, waited_seconds) = thread::scope(|scope| {
        let other = scope.spawn(|| lent.look_after(&company));
        let thread = other.thread().clone();
        let mut turn =
            Turn { company: Some((&company, thread.clone())), held, waited_seconds: 0.0 };
        let result = {
            let _end = End(&company.is_over, thread);
            body(&mut turn)
        };
        let start = Instant::now();
        let waited_seconds = turn.waited_seconds;
        drop(turn);
        let looked_after = other.join().unwrap_or_else(|panic| resume_unwind(panic));
        let waited_seconds = waited_seconds + start.elapsed().as_secs_f64();
        (result.and_then(|value| looked_after.map(|()| value)), waited_seconds)
    });
    lent.0.kept_waiting(waited_seconds);
    result
}
