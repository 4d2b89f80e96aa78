//! A second thread for the update, which progresses checkpoints and messages while the solver's own
//! thread computes.
//!
//! A message needs several calls of its transport before it is under way, and a product takes 30 ms
//! and more. The thread that may call the transport holds a *token*. The solver's thread holds it
//! except while it computes, and gets it back as soon as it asks for it, before the other thread
//! begins anything else.
//!
//! A call runs on the solver's core and displaces data in its caches, which costs the solver tens
//! of microseconds. So the calls for the solver's messages come soon after these were sent, and
//! then less and less often: during a product that takes ten times as long there are only about ten
//! calls more.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use super::SolveError;
use super::final_part::{Final, Reached, Stretch};
use super::guard::{Background, Remaining};
use crate::tuning::TUNING;
use skt_comm::{Comm, Tag};
use skt_host::affinity;

/// The pause between two calls while messages of the background are in progress, and the shortest
/// pause while messages of the solver are.
const PAUSE: Duration = Duration::from_micros(TUNING.pause_micros);
/// The pause between two calls while there is nothing to do, and the longest pause. Only the
/// solver, which wakes the thread, or another rank can give the thread something to do.
const LONG_PAUSE: Duration = Duration::from_micros(TUNING.long_pause_micros);

/// The tag of a message that no rank sends: the probe for it lets the transport progress others.
const TAG_OF_NO_MESSAGE: Tag = 0x126;

struct SharedState {
    token: Mutex<()>,
    is_wanted: AtomicBool,
    is_over: AtomicBool,
    stretch: Stretch,
    /// The final part of the matrix at the start; `rows` has its rows now.
    done: Final,
    rows: AtomicUsize,
    start: Instant,
    /// When the solver last sent messages, in nanoseconds from `start` on.
    sent_nanos: AtomicU64,
}

/// The pause before the next call for messages sent `since` ago: a fixed share of it, bounded.
fn pause(since: Duration) -> Duration {
    (since / TUNING.pauses_on_the_way).clamp(PAUSE, LONG_PAUSE)
}

/// The solver's right to communicate with other ranks.
pub(super) struct Token<'c> {
    shared: Option<(&'c SharedState, Thread)>,
    held: Option<MutexGuard<'c, ()>>,
    waited_seconds: f64,
}

/// Ends the second thread when dropped, whatever way the solver's part ends.
struct EndThreadOnDrop<'c>(&'c AtomicBool, Thread);

impl Drop for EndThreadOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.unpark();
    }
}

struct Lent<'b> {
    background: &'b mut dyn Background,
    /// The group of ranks, where messages of the solver are in progress.
    messages: Option<&'b Comm>,
}

// SAFETY: `Lent` only calls `Background::progress` and `Comm::probe`, one call at a time, with the
// token held, without which no other thread of the rank communicates. `Background` is an unsafe
// trait whose implementations allow this call on any thread, and the transport allows its own, one
// at a time.
unsafe impl Send for Lent<'_> {}

impl Lent<'_> {
    /// Calls the background once, if anything runs there, and the transport, for all messages.
    fn progress_once(&mut self, shared: &SharedState) -> Result<Remaining, SolveError> {
        let _token = shared.acquire();
        let mut remaining = Remaining::Nothing;
        if self.background.is_active() {
            let done = shared.done.with_rows(shared.rows.load(Ordering::Acquire));
            remaining = self.background.progress(done)?;
        }
        if let Some(comm) = self.messages {
            comm.probe(comm.rank(), TAG_OF_NO_MESSAGE)?;
        }
        Ok(remaining)
    }

    fn progress(&mut self, shared: &SharedState) -> Result<(), SolveError> {
        while !shared.is_over.load(Ordering::Relaxed) {
            let remaining = self.progress_once(shared)?;
            match remaining {
                Remaining::Work if shared.is_wanted.load(Ordering::Relaxed) => {
                    thread::sleep(PAUSE);
                }
                Remaining::Work => {}
                Remaining::Messages => thread::park_timeout(PAUSE),
                Remaining::Nothing if self.messages.is_some() => {
                    thread::park_timeout(shared.pause());
                }
                Remaining::Nothing => thread::park_timeout(LONG_PAUSE),
            }
        }
        Ok(())
    }
}

impl SharedState {
    fn acquire(&self) -> MutexGuard<'_, ()> {
        // The mutex protects no data that a panic could leave half changed.
        self.token.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn elapsed_nanos(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn pause(&self) -> Duration {
        let sent = self.sent_nanos.load(Ordering::Relaxed);
        pause(Duration::from_nanos(self.elapsed_nanos().saturating_sub(sent)))
    }
}

impl Token<'_> {
    pub(crate) fn alone() -> Self {
        Self { shared: None, held: None, waited_seconds: 0.0 }
    }

    /// Releases the token. The solver then calls no transport until it acquires it again.
    pub(crate) fn release(&mut self) {
        self.held = None;
    }

    /// Whether this thread may call the transport: with the token, or without a second thread.
    pub(crate) fn is_held(&self) -> bool {
        self.shared.is_none() || self.held.is_some()
    }

    pub(crate) fn acquire(&mut self) {
        let Some((shared, _)) = &self.shared else { return };
        if self.held.is_none() {
            let start = Instant::now();
            shared.is_wanted.store(true, Ordering::Relaxed);
            self.held = Some(shared.acquire());
            shared.is_wanted.store(false, Ordering::Relaxed);
            self.waited_seconds += start.elapsed().as_secs_f64();
        }
    }

    /// Acquires the token unless that would wait. Returns whether it is held.
    pub(crate) fn try_acquire(&mut self) -> bool {
        let Some((shared, _)) = &self.shared else { return true };
        if self.held.is_none() {
            self.held = match shared.token.try_lock() {
                Ok(held) => Some(held),
                Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            };
        }
        self.held.is_some()
    }

    pub(crate) fn messages_are_sent(&self) {
        let Some((shared, thread)) = &self.shared else { return };
        shared.sent_nanos.store(shared.elapsed_nanos(), Ordering::Relaxed);
        thread.unpark();
    }

    pub(crate) fn report(&self, reached: Reached) {
        let Some((shared, thread)) = &self.shared else { return };
        let done = shared.stretch.final_part(reached);
        debug_assert_eq!(done.cols(), shared.done.cols());
        if done.rows() > shared.rows.load(Ordering::Relaxed) {
            shared.rows.store(done.rows(), Ordering::Release);
            thread.unpark();
        }
    }
}

/// The background work up to the next cut, and the stretch that gives the final part at each step.
pub(super) struct BackgroundWork<'b> {
    pub background: &'b mut dyn Background,
    pub stretch: Stretch,
    /// The CPU kept for the second thread; without one it runs where the solver's own thread does.
    pub helper_cpu: Option<usize>,
}

impl BackgroundWork<'_> {
    /// Progresses the background, if anything runs there, until `is_over`.
    pub(crate) fn progress_until(
        &mut self,
        reached: Reached,
        mut is_over: impl FnMut() -> Result<bool, SolveError>,
    ) -> Result<(), SolveError> {
        let done = self.stretch.final_part(reached);
        let mut call_seconds = 0.0;
        while self.background.is_active() && !is_over()? {
            let start = Instant::now();
            self.background.progress(done)?;
            call_seconds = start.elapsed().as_secs_f64();
        }
        // `is_over` may have become true during the last call.
        self.background.add_stall(call_seconds);
        Ok(())
    }

    /// Runs `body`, which begins with the token, while a second thread, which `starter` starts,
    /// progresses the background, if anything runs there, and the transport, if `messages` names a
    /// group of ranks. The factorization is at `reached`. If the system refuses the second thread,
    /// `body` runs alone: only the overlap is lost, until the next call. An error of `body` takes
    /// precedence over one of the background.
    pub(crate) fn run_overlapped_with<R>(
        &mut self,
        starter: thread::Builder,
        reached: Reached,
        messages: Option<&Comm>,
        body: impl FnOnce(&mut Token) -> Result<R, SolveError>,
    ) -> Result<R, SolveError> {
        if !self.background.is_active() && messages.is_none() {
            return body(&mut Token::alone());
        }
        let done = self.stretch.final_part(reached);
        let shared = SharedState {
            token: Mutex::new(()),
            is_wanted: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            stretch: self.stretch.clone(),
            done,
            rows: AtomicUsize::new(done.rows()),
            start: Instant::now(),
            sent_nanos: AtomicU64::new(0),
        };
        let held = Some(shared.acquire());
        let mut lent = Lent { background: &mut *self.background, messages };
        let helper_cpu = self.helper_cpu;
        let progress = || {
            affinity::pin_as_planned(helper_cpu);
            lent.progress(&shared)
        };
        let (result, waited_seconds) = thread::scope(|scope| {
            let named = starter.name("skt-background".into());
            let Ok(other) = named.spawn_scoped(scope, progress) else {
                return (body(&mut Token::alone()), 0.0);
            };
            let thread = other.thread().clone();
            let mut token =
                Token { shared: Some((&shared, thread.clone())), held, waited_seconds: 0.0 };
            let result = {
                let _end = EndThreadOnDrop(&shared.is_over, thread);
                body(&mut token)
            };
            let start = Instant::now();
            let waited_seconds = token.waited_seconds;
            drop(token);
            let progressed = other.join().unwrap_or_else(|panic| resume_unwind(panic));
            let waited_seconds = waited_seconds + start.elapsed().as_secs_f64();
            (result.and_then(|value| progressed.map(|()| value)), waited_seconds)
        });
        self.background.add_stall(waited_seconds);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::{ColumnMap, Cyclic};

    /// The number of calls for messages that are in progress for as long as `product`.
    fn calls(product: Duration) -> u32 {
        let mut since = Duration::ZERO;
        (0..)
            .find(|_| {
                since += pause(since);
                since > product
            })
            .expect("an end")
    }

    #[test]
    fn calls_come_soon_then_ever_less_often() {
        assert_eq!(pause(Duration::ZERO), PAUSE);
        assert_eq!(pause(Duration::from_secs(10)), LONG_PAUSE);
        // Enough calls that a message gets going, and few enough to cost next to nothing.
        for (millis, least, most) in [(1, 4, 5), (10, 10, 15), (100, 20, 45), (1000, 180, 220)] {
            let calls = calls(Duration::from_millis(millis));
            assert!((least..=most).contains(&calls), "{calls} in {millis} ms");
        }
    }

    /// A background that must not be called.
    struct Idle;

    // SAFETY: it does nothing.
    unsafe impl Background for Idle {
        fn is_active(&self) -> bool {
            true
        }

        fn progress(&mut self, _: Final) -> Result<Remaining, SolveError> {
            unreachable!("there is no second thread")
        }

        fn add_stall(&mut self, seconds: f64) {
            assert_eq!(seconds, 0.0);
        }
    }

    #[test]
    fn without_a_second_thread_the_solver_works_alone() {
        let all = Cyclic { nb: 8, procs: 1 };
        let cols = ColumnMap::cyclic(8, 1);
        let stretch = Stretch { n: 8, nb: 8, rows: all, cols, myrow: 0, mycol: 0, end: 1 };
        let mut work = BackgroundWork { background: &mut Idle, stretch, helper_cpu: None };
        // No address space has such a stack.
        let refused = thread::Builder::new().stack_size(1 << (usize::BITS - 4));
        let begun = Reached::Begun;
        let is_held = work.run_overlapped_with(refused, begun, None::<&Comm>, |token| {
            token.release();
            Ok(token.is_held() && token.try_acquire())
        });
        assert!(is_held.expect("no error"));
    }
}
