//! Company for the update: a thread that looks after what goes on beside it, while
//! the solver's own multiplies.
//!
//! A message of some megabytes needs somebody to look after it every millisecond or
//! so, and a product takes a hundred. Who speaks to other ranks takes *turns*: the
//! solver's thread has the turn all the time but in its products.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{mem, thread};

use super::SolveError;
use super::guard::Beside;

/// Between two looks.
const PAUSE: Duration = Duration::from_micros(200);

/// Who keeps company, or nobody.
pub(super) struct Company {
    turn: Mutex<()>,
    rows: AtomicUsize,
    is_over: AtomicBool,
}

/// The right to speak to other ranks.
pub(super) struct Turn<'c> {
    company: &'c Company,
    held: Option<MutexGuard<'c, ()>>,
    /// Seconds it was waited for.
    waited_seconds: f64,
}

/// Ends the company, however the solver's part ends.
struct End<'c>(&'c AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
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
            // SAFETY: the solver has called these rows final.
            unsafe { self.0.rows_are_final(company.rows.load(Ordering::Acquire)) }?;
            drop(turn);
            thread::sleep(PAUSE);
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
    /// Does something that speaks to nobody, while the other thread may.
    pub fn without<R>(&mut self, body: impl FnOnce() -> R) -> R {
        drop(mem::take(&mut self.held));
        let result = body();
        let start = Instant::now();
        self.held = Some(self.company.take());
        self.waited_seconds += start.elapsed().as_secs_f64();
        result
    }

    /// Local rows before `rows` are final: [`Beside::rows_are_final`].
    ///
    /// # Safety
    /// As there.
    pub unsafe fn rows_are_final(&self, rows: usize) {
        self.company.rows.store(rows, Ordering::Release);
    }
}

/// Does `body`, which begins with the turn, in the company of what goes on beside
/// it, if anything does. Rows before `rows` are final from the beginning.
///
/// # Safety
/// As [`Beside::rows_are_final`] of these rows.
///
/// # Errors
/// Of `body`, else of its company.
pub(super) unsafe fn keep<R>(
    beside: Option<&mut dyn Beside>,
    rows: usize,
    body: impl FnOnce(&mut Turn) -> Result<R, SolveError>,
) -> Result<R, SolveError> {
    let company = Company {
        turn: Mutex::new(()),
        rows: AtomicUsize::new(rows),
        is_over: AtomicBool::new(false),
    };
    let mut turn = Turn { company: &company, held: Some(company.take()), waited_seconds: 0.0 };
    let Some(beside) = beside.filter(|beside| beside.goes_on()) else {
        return body(&mut turn);
    };
    let mut lent = Lent(beside);
    let (result, waited_seconds) = thread::scope(|scope| {
        let other = scope.spawn(|| lent.look_after(&company));
        let result = {
            let _end = End(&company.is_over);
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
