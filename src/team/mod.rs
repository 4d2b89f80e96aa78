//! The threads of a rank.
//!
//! A fork and join costs a microsecond or so here, against tens for a general
//! pool, because idle workers spin a while before they sleep: a panel forks
//! several times a column.

use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

/// What workers run: called with the worker's number, `1..threads`.
type Job = *const (dyn Fn(usize) + Sync);

/// Turns that an idle worker spins before it sleeps.
const SPINS: u32 = 20_000;

struct Shared {
    /// Number of the job posted last; workers wait for it to change.
    generation: AtomicUsize,
    job: Mutex<Option<SendJob>>,
    posted: Condvar,
    /// Workers that have not finished the current job.
    busy: AtomicUsize,
    panicked: AtomicBool,
    stop: AtomicBool,
}

#[derive(Clone, Copy)]
struct SendJob(Job);

// SAFETY: the closure is Sync, and `Team::fork` keeps it alive until all are done.
unsafe impl Send for SendJob {}

/// A rank's threads: the caller and `threads - 1` workers.
pub struct Team {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Set while workers are out on a job: work forked meanwhile runs on the caller.
    out: Cell<bool>,
}

impl Team {
    /// A team of `threads` (at least 1). `on_start` runs on each worker first,
    /// with its number `1..threads`, for instance to pin it.
    ///
    /// # Errors
    /// When the system gives no more threads.
    pub fn new(
        threads: usize,
        on_start: impl Fn(usize) + Send + Clone + 'static,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            generation: AtomicUsize::new(0),
            job: Mutex::new(None),
            posted: Condvar::new(),
            busy: AtomicUsize::new(0),
            panicked: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        });
        let workers = (1..threads.max(1))
            .map(|id| {
                let (shared, on_start) = (shared.clone(), on_start.clone());
                std::thread::Builder::new().name(format!("team-{id}")).spawn(move || {
                    on_start(id);
                    work(&shared, id);
                })
            })
            .collect::<std::io::Result<_>>()?;
        Ok(Self { shared, workers, out: Cell::new(false) })
    }

    /// A team of the caller alone.
    pub fn solo() -> Self {
        Self::new(1, |_| ()).expect("no thread is started")
    }

    /// Number of threads, the caller included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Number of threads that work forked now would get.
    pub fn free_threads(&self) -> usize {
        if self.out.get() { 1 } else { self.threads() }
    }

    /// Runs `job` on every worker while the caller runs `meanwhile`, then on the
    /// caller too (as number 0); returns when all are done. While the workers
    /// are out already, the caller does all of it alone.
    ///
    /// # Panics
    /// When a worker panicked.
    pub fn fork<R>(&self, job: &(dyn Fn(usize) + Sync), meanwhile: impl FnOnce() -> R) -> R {
        if self.free_threads() == 1 {
            let result = meanwhile();
            job(0);
            return result;
        }
        // SAFETY: `Join` waits for all workers before this frame goes, also on
        // a panic, so the erased lifetime is never outlived.
        let erased: Job =
            unsafe { std::mem::transmute::<*const (dyn Fn(usize) + Sync + '_), Job>(job) };
        self.post(erased);
        let join = Join(self);
        let result = meanwhile();
        job(0);
        drop(join);
        assert!(!self.shared.panicked.load(Ordering::Acquire), "a thread of the team panicked");
        result
    }

    /// Cuts `0..len` into a contiguous range for each thread, each a multiple of
    /// `grain` long but for the last, and runs `body` on them in parallel.
    pub fn split(&self, len: usize, grain: usize, body: impl Fn(Range<usize>) + Sync) {
        let grains = len.div_ceil(grain.max(1));
        let parts = self.free_threads().min(grains);
        if parts <= 1 {
            if len > 0 {
                body(0..len);
            }
            return;
        }
        let bound = |part: usize| (grains * part / parts * grain).min(len);
        let job = |id: usize| {
            if id < parts {
                body(bound(id)..bound(id + 1));
            }
        };
        self.fork(&job, || ());
    }

    fn post(&self, job: Job) {
        self.out.set(true);
        self.shared.busy.store(self.workers.len(), Ordering::Relaxed);
        *self.shared.job.lock().expect("team lock") = Some(SendJob(job));
        self.shared.generation.fetch_add(1, Ordering::Release);
        self.shared.posted.notify_all();
    }
}

/// Waits for the workers when it goes.
struct Join<'a>(&'a Team);

impl Drop for Join<'_> {
    fn drop(&mut self) {
        let mut spins = 0u32;
        while self.0.shared.busy.load(Ordering::Acquire) != 0 {
            spins += 1;
            // On a machine with fewer cores than threads the worker needs this one.
            if spins.is_multiple_of(1024) {
                std::thread::yield_now()
            } else {
                std::hint::spin_loop()
            }
        }
        self.0.out.set(false);
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        {
            let _lock = self.shared.job.lock();
            self.shared.generation.fetch_add(1, Ordering::Release);
            self.shared.posted.notify_all();
        }
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }
}

fn work(shared: &Shared, id: usize) {
    let mut seen = 0;
    loop {
        await_job(shared, seen);
        seen += 1;
        if shared.stop.load(Ordering::Acquire) {
            return;
        }
        let job = shared.job.lock().expect("team lock").expect("a posted job");
        // SAFETY: alive until `busy` is counted down, see `Team::fork`.
        let job = unsafe { &*job.0 };
        let run = std::panic::AssertUnwindSafe(|| job(id));
        if std::panic::catch_unwind(run).is_err() {
            shared.panicked.store(true, Ordering::Release);
        }
        shared.busy.fetch_sub(1, Ordering::Release);
    }
}

fn await_job(shared: &Shared, seen: usize) {
    for spin in 0..SPINS {
        if shared.generation.load(Ordering::Acquire) != seen {
            return;
        }
        if spin % 1024 == 1023 { std::thread::yield_now() } else { std::hint::spin_loop() }
    }
    let mut job = shared.job.lock().expect("team lock");
    while shared.generation.load(Ordering::Acquire) == seen {
        job = shared.posted.wait(job).expect("team lock");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        team.fork(&job, || {
            assert_eq!(team.free_threads(), 1);
            team.split(10, 1, |range| assert_eq!(range, 0..10));
        });
        assert_eq!(count.load(Ordering::Relaxed), 3);
    }

    #[test]
    #[should_panic(expected = "a thread of the team panicked")]
    fn a_worker_that_panics_is_heard_of() {
        let team = Team::new(2, |_| ()).unwrap();
        team.fork(&|id| assert_ne!(id, 1), || ());
    }
}
