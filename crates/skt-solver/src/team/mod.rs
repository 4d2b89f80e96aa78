//! The threads of a rank.
//!
//! A fork and join of two pinned threads costs 0.3 to 0.6 us here, against 13 us and more in
//! rayon's pool (`broadcast`), because idle workers spin a while before they sleep: a panel forks
//! several times a column. `gate` passes jobs to workers; a model check tries all its
//! interleavings.

mod gate;

use std::cell::Cell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use gate::Gate;

/// The parts of the protocol between a caller and its workers.
mod sync {
    pub(super) use std::sync::atomic::{AtomicUsize, Ordering};
    pub(super) use std::sync::{Condvar, Mutex};

    use crate::tuning::TUNING;

    pub(crate) const SPINS: u32 = TUNING.idle_spins;

    /// Step `spin` of a loop that waits for another thread.
    pub(crate) fn pause(spin: u32) {
        // On a machine with fewer cores than threads that thread needs this core.
        if spin.is_multiple_of(TUNING.spins_a_yield) {
            std::thread::yield_now()
        } else {
            std::hint::spin_loop()
        }
    }
}

/// A job of the workers: called with the worker's number, `1..threads`.
type Task = *const (dyn Fn(usize) + Sync);

#[derive(Clone, Copy)]
struct SendTask(Task);

// SAFETY: the closure is Sync, and `Team::fork` keeps it alive until all workers are done.
unsafe impl Send for SendTask {}

struct Shared {
    /// Passes jobs on; `None` ends a worker.
    gate: Gate<Option<SendTask>>,
    panicked: AtomicBool,
}

/// A rank's threads: the caller and `threads - 1` workers.
pub struct Team {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Whether workers are busy: work forked while they are runs on the caller.
    out: Cell<bool>,
    helper_cpu: Option<usize>,
}

impl Team {
    /// A team of `threads` threads, at least 1. `on_start` runs on each worker first, with its
    /// number `1..threads`, for instance to pin it.
    pub fn new(
        threads: usize,
        on_start: impl Fn(usize) + Send + Clone + 'static,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared { gate: Gate::new(), panicked: AtomicBool::new(false) });
        // If it is dropped on an error, it ends its workers.
        let (workers, out) = (Vec::new(), Cell::new(false));
        let mut team = Self { shared, workers, out, helper_cpu: None };
        for id in 1..threads {
            let (shared, on_start) = (team.shared.clone(), on_start.clone());
            let body = move || {
                on_start(id);
                work(&shared, id);
            };
            team.workers.push(std::thread::Builder::new().name(format!("team-{id}")).spawn(body)?);
        }
        Ok(team)
    }

    /// A team of only the caller.
    pub fn solo() -> Self {
        Self::new(1, |_| ()).expect("no thread is started")
    }

    /// Sets the CPU that is kept for other threads than the team's.
    pub fn with_helper_cpu(mut self, cpu: Option<usize>) -> Self {
        self.helper_cpu = cpu;
        self
    }

    pub fn helper_cpu(&self) -> Option<usize> {
        self.helper_cpu
    }

    /// The number of threads, including the caller.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs `job` on every worker while the caller runs `overlapped`, then on the caller (number
    /// 0). Returns when all are done. If the workers are busy, the caller does all of it alone.
    pub fn fork<R>(&self, job: &(dyn Fn(usize) + Sync), overlapped: impl FnOnce() -> R) -> R {
        if self.workers.is_empty() || self.out.get() {
            let result = overlapped();
            job(0);
            return result;
        }
        // SAFETY: `Join` waits for all workers before this frame ends, even on a panic, so the
        // closure outlives its erased lifetime.
        let erased: Task =
            unsafe { std::mem::transmute::<*const (dyn Fn(usize) + Sync + '_), Task>(job) };
        self.out.set(true);
        self.shared.gate.post(Some(SendTask(erased)), self.workers.len());
        let join = Join(self);
        let result = overlapped();
        job(0);
        drop(join);
        assert!(!self.shared.panicked.load(Ordering::Relaxed), "a thread of the team panicked");
        result
    }

    /// Cuts `0..len` into a contiguous range for each thread, each but the last a multiple of
    /// `grain` long, and runs `body` on them in parallel. The ranges depend only on `len`, `grain`
    /// and the number of threads: while the workers are busy, the caller takes one range after the
    /// other, so that a product has the same bits in both cases.
    pub fn split(&self, len: usize, grain: usize, body: impl Fn(Range<usize>) + Sync) {
        let grain = grain.max(1);
        let grains = len.div_ceil(grain);
        let parts = self.threads().min(grains);
        let part = |part: usize| {
            let bound = |part: usize| (grains * part / parts * grain).min(len);
            body(bound(part)..bound(part + 1));
        };
        if parts <= 1 || self.out.get() {
            (0..parts).for_each(part);
            return;
        }
        let job = |id: usize| {
            if id < parts {
                part(id);
            }
        };
        self.fork(&job, || ());
    }
}

struct Join<'a>(&'a Team);

impl Drop for Join<'_> {
    fn drop(&mut self) {
        self.0.shared.gate.wait();
        self.0.out.set(false);
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.gate.post(None, 0);
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }
}

fn work(shared: &Shared, id: usize) {
    let mut seen = 0;
    while let Some(job) = shared.gate.next(seen) {
        seen += 1;
        // SAFETY: the closure is alive until this worker has finished, see `Team::fork`.
        let job = unsafe { &*job.0 };
        if catch_unwind(AssertUnwindSafe(|| job(id))).is_err() {
            shared.panicked.store(true, Ordering::Relaxed);
        }
        shared.gate.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn every_index_is_done_once() {
        for threads in 1..5 {
            let team = Team::new(threads, |_| ()).unwrap();
            for len in [0, 1, 7, 64, 1000] {
                for grain in [1, 8, 100] {
                    let done: Vec<_> = (0..len).map(|_| AtomicUsize::new(0)).collect();
                    team.split(len, grain, |range| {
                        assert_eq!(range.start % grain, 0);
                        for i in range {
                            done[i].fetch_add(1, Ordering::Relaxed);
                        }
                    });
                    assert!(done.iter().all(|d| d.load(Ordering::Relaxed) == 1));
                }
            }
        }
    }

    #[test]
    fn nested_work_runs_on_the_caller() {
        let team = Team::new(3, |_| ()).unwrap();
        let count = AtomicUsize::new(0);
        let job = |_| {
            count.fetch_add(1, Ordering::Relaxed);
        };
        let caller = std::thread::current().id();
        team.fork(&job, || {
            team.split(10, 1, |_| assert_eq!(std::thread::current().id(), caller));
        });
        assert_eq!(count.load(Ordering::Relaxed), 3);
    }

    /// The bits depend on how the work is cut into pieces.
    #[test]
    fn pieces_are_the_same_inside_of_a_fork_and_outside() {
        for threads in 1..6 {
            let team = Team::new(threads, |_| ()).unwrap();
            let pieces = |len, grain| {
                let pieces = Mutex::new(Vec::new());
                team.split(len, grain, |piece| pieces.lock().unwrap().push(piece));
                let mut pieces = pieces.into_inner().unwrap();
                pieces.sort_by_key(|piece| piece.start);
                pieces
            };
            for (len, grain) in [(0, 1), (1, 1), (10, 1), (10, 4), (2250, 256), (600, 2048)] {
                let inside = team.fork(&|_| (), || pieces(len, grain));
                assert_eq!(inside, pieces(len, grain), "{len} by {grain}, {threads} threads");
                assert_eq!(inside.len(), threads.min(len.div_ceil(grain)));
            }
        }
    }

    #[test]
    #[should_panic(expected = "a thread of the team panicked")]
    fn panic_of_a_worker_is_reported() {
        let team = Team::new(2, |_| ()).unwrap();
        team.fork(&|id| assert_ne!(id, 1), || ());
    }
}
