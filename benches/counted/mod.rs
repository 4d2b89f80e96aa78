//! Work of the solver, counted in the units of the model: what it takes does not depend on the
//! machine that simulates it.
#![allow(dead_code)] // Each program uses its part.

use std::cell::Cell;

use skt_model::path::work as units;
use skt_model::path::{Counts, Machine, Unit};
use skt_sim::clocked::Ticks;
use skt_solver::work::{self, Work, WorkListener};

/// The machine of the model, without copies of rows, which are not counted.
pub fn machine() -> Machine {
    Machine { copied_byte_seconds: 0.0, ..Machine::ZEN4_CORE }
}

thread_local!(static DONE: Cell<Counts> = Cell::new(Counts::default()));

thread_local!(static GENERATED: Cell<usize> = const { Cell::new(0) });

/// Counts the work of this process from now on: it has one listener.
pub fn listen() {
    work::listen(WorkListener { begins: Some(count), ..WorkListener::default() });
}

/// What all ranks on this thread have computed since it was started.
pub fn done() -> Counts {
    DONE.get()
}

fn count(work: Work) {
    let counts = match work {
        Work::Product { rows, cols, k } => units::product(rows as f64, cols as f64, k as f64, true),
        Work::Solve { k, cols } => units::solve(k as f64, cols as f64),
        Work::Panel { rows, jb, p } => units::panel(rows as f64, jb as f64, p),
        Work::Read { entries } => {
            Counts::from_list(&[(Unit::StreamedByte, (entries * size_of::<f64>()) as f64)])
        }
        Work::Generate { entries } => {
            GENERATED.set(GENERATED.get() + entries);
            return;
        }
    };
    let mut done = DONE.get();
    done.add(&counts, 1.0);
    DONE.set(done);
}

/// The seconds of this thread's counted work on `machine`, with `entry_seconds` for each entry that
/// it has generated.
pub fn ticks(machine: &Machine, entry_seconds: f64) -> Ticks {
    let generated_seconds = GENERATED.get() as f64 * entry_seconds;
    ((machine.seconds(&DONE.get()) + generated_seconds) * 1e12) as Ticks
}

/// The meter of counted work.
pub fn meter() -> Ticks {
    ticks(&machine(), 0.0)
}
