//! How a job reaches the workers of a team, and how the caller learns of its end.
//!
//! The caller increases the generation of a job under the lock that a worker holds from its last
//! read of the generation until it sleeps, so that no worker misses a job. A worker first reads it
//! without the lock for a while, which makes a fork cheap.
//!
//! `super::sync` names the types: those of the standard library or, in the model check, those that
//! try all interleavings (`tests/team_model.rs`).

use super::sync::{AtomicUsize, Condvar, Mutex, Ordering, SPINS, pause};

pub(crate) struct Gate<J> {
    generation: AtomicUsize,
    job: Mutex<Option<J>>,
    posted: Condvar,
    /// Workers that have not finished the job.
    busy: AtomicUsize,
}

impl<J: Copy> Gate<J> {
    pub(crate) fn new() -> Self {
        Self {
            generation: AtomicUsize::new(0),
            job: Mutex::new(None),
            posted: Condvar::new(),
            busy: AtomicUsize::new(0),
        }
    }

    /// Posts `job` to `workers` workers, which have finished the one before.
    pub(crate) fn post(&self, job: J, workers: usize) {
        self.busy.store(workers, Ordering::Relaxed);
        let mut posted = self.job.lock().expect("team lock");
        *posted = Some(job);
        self.generation.fetch_add(1, Ordering::Release);
        drop(posted);
        self.posted.notify_all();
    }

    /// On a worker: waits for the job after the first `seen` ones.
    pub(crate) fn next(&self, seen: usize) -> J {
        for spin in 1..=SPINS {
            if self.generation.load(Ordering::Acquire) != seen {
                break;
            }
            pause(spin);
        }
        let mut job = self.job.lock().expect("team lock");
        while self.generation.load(Ordering::Acquire) == seen {
            job = self.posted.wait(job).expect("team lock");
        }
        job.expect("a posted job")
    }

    pub(crate) fn finish(&self) {
        self.busy.fetch_sub(1, Ordering::Release);
    }

    /// Waits until all workers have finished the job. Their writes are visible afterwards.
    pub(crate) fn wait(&self) {
        let mut spin = 0;
        while self.busy.load(Ordering::Acquire) != 0 {
            spin += 1;
            pause(spin);
        }
    }
}
