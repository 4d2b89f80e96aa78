//! The barrier that is entered and then polled, on simulated ranks under many schedules.

use std::cell::RefCell;

use skt_comm::CommError;
use skt_comm::ibarrier::IBarrier;
use skt_sim::fibers::{SimOptions, run};

/// No rank leaves barrier b before all have entered it, under many schedules, and all know then
/// whether any rank has made a request.
#[test]
fn barrier_completes_only_after_all_have_entered() {
    for seed in 0..300 {
        let size = 1 + seed as usize % 9;
        let mut options = SimOptions::new(size, seed);
        options.rendezvous = seed % 2 == 0;
        let entered = RefCell::new(vec![0; size]);
        let outcome = run(&options, |comm| {
            let mut barrier = IBarrier::new()?;
            for turn in 1..6 {
                assert!(barrier.progress(&comm)?, "none has been entered");
                entered.borrow_mut()[comm.rank()] = turn;
                // Each turn another rank makes a request, and in some turns none does.
                let asking = (seed as usize / 9 + turn) % (size + 1);
                barrier.enter(&comm, comm.rank() == asking)?;
                let is_over = (comm.rank() + turn) % 3 == 0 && {
                    comm.point().step(&"work")?;
                    barrier.progress(&comm)?
                };
                if !is_over {
                    barrier.wait(&comm)?;
                }
                assert_eq!(barrier.wait(&comm)?, asking < size, "seed {seed}, turn {turn}");
                assert!(entered.borrow().iter().all(|&at| at >= turn), "seed {seed}");
            }
            Ok::<_, CommError>(())
        });
        assert!(outcome.results.iter().all(Result::is_ok), "seed {seed}: {outcome:?}");
    }
}

/// The barrier is not complete while a rank has not entered, however often it is polled.
#[test]
fn it_waits_for_the_last() {
    let outcome = run(&SimOptions::new(3, 1), |comm| {
        let mut barrier = IBarrier::new()?;
        if comm.rank() < 2 {
            barrier.enter(&comm, false)?;
            for _ in 0..20 {
                assert!(!barrier.progress(&comm)?);
            }
            comm.send(&[0u8], 2, 1)?;
        } else {
            (0..2).try_for_each(|rank| comm.recv(&mut [0u8], rank, 1))?;
            barrier.enter(&comm, false)?;
        }
        barrier.wait(&comm)
    });
    assert!(outcome.results.iter().all(Result::is_ok), "{outcome:?}");
}

/// Rank 0 sends to rank 2 in the last round, and rank 2 tests for that message only after it
/// has received another one.
#[test]
fn progress_does_not_wait_for_its_own_messages() {
    let options = SimOptions { rendezvous: true, ..SimOptions::new(3, 1) };
    let outcome = run(&options, |comm| {
        let mut barrier = IBarrier::new()?;
        barrier.enter(&comm, false)?;
        match comm.rank() {
            0 => {
                while !barrier.progress(&comm)? {}
                comm.send(&[0u8], 2, 1)?;
            }
            2 => comm.recv(&mut [0u8], 0, 1)?,
            _ => {}
        }
        barrier.wait(&comm)
    });
    assert!(outcome.results.iter().all(Result::is_ok), "{outcome:?}");
}
