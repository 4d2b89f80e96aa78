//! The work of simulated ranks, in units of the model. A process has one listener, so all tests
//! that count work share this one.

use std::cell::Cell;

use skt_model::path::{Counts, work as units};
use skt_solver::work::{self, Work, WorkListener};

thread_local!(static DONE: Cell<Counts> = Cell::new(Counts::default()));

/// What all ranks on this thread have computed since it was started.
pub fn done() -> Counts {
    DONE.get()
}

/// Counts the work of this process from now on. Reads of the matrix are left out.
pub fn listen() {
    work::listen(WorkListener { begins: Some(count), ..WorkListener::default() });
}

fn count(work: Work) {
    let counts = match work {
        Work::Product { rows, cols, k } => units::product(rows as f64, cols as f64, k as f64, true),
        Work::Solve { k, cols } => units::solve(k as f64, cols as f64),
        Work::Panel { rows, jb, p } => units::panel(rows as f64, jb as f64, p),
        Work::Read { .. } | Work::Generate { .. } => return,
    };
    let mut done = DONE.get();
    done.add(&counts, 1.0);
    DONE.set(done);
}
