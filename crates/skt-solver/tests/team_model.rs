//! The protocol between a team's caller and its workers, in all interleavings and under the memory
//! model of the language: no worker misses a job, each does each job once, and the caller sees what
//! they wrote.

/// The module `super::sync` of the protocol, made of loom's types.
mod sync {
    pub use loom::sync::atomic::{AtomicUsize, Ordering};
    pub use loom::sync::{Condvar, Mutex};

    /// One check without the lock, then sleep: more checks give no new interleavings.
    pub const SPINS: u32 = 1;

    pub fn pause(_: u32) {
        loom::thread::yield_now();
    }
}

#[path = "../src/team/gate.rs"]
mod gate;

use gate::Gate;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

/// The value that one worker writes in a job: the model refuses a read that is not ordered after
/// the write.
struct Slot(UnsafeCell<usize>);

// SAFETY: the model itself checks each access.
unsafe impl Sync for Slot {}

/// Posts `jobs` jobs to `workers` workers, and then the end. A thread is preempted up to
/// `preemptions` times in a run; any number of times if `None`.
fn model(workers: usize, jobs: usize, preemptions: Option<usize>) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = preemptions;
    model.check(move || {
        let gate = Arc::new(Gate::<Option<usize>>::new());
        let slots: Arc<Vec<Slot>> =
            Arc::new((0..workers).map(|_| Slot(UnsafeCell::new(0))).collect());
        let handles: Vec<_> = (0..workers)
            .map(|worker| {
                let (gate, slots) = (gate.clone(), slots.clone());
                thread::spawn(move || {
                    let mut seen = 0;
                    while let Some(job) = gate.next(seen) {
                        seen += 1;
                        // SAFETY: the model checks the access.
                        slots[worker].0.with_mut(|value| unsafe { *value = 10 * *value + job });
                        gate.finish();
                    }
                })
            })
            .collect();
        let mut want = 0;
        for job in 1..=jobs {
            gate.post(Some(job), workers);
            gate.wait();
            want = 10 * want + job;
            for slot in slots.iter() {
                // SAFETY: the model checks the access.
                slot.0.with(|value| assert_eq!(unsafe { *value }, want));
            }
        }
        gate.post(None, 0);
        for handle in handles {
            handle.join().unwrap();
        }
    });
}

#[test]
fn one_worker_gets_all_jobs() {
    model(1, 2, None);
}

#[test]
fn two_workers_get_a_job() {
    // All interleavings would take hours.
    model(2, 1, Some(2));
}
