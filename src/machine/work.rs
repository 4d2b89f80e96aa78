//! Counts what a thread has computed for the solver, in the units of the model of the critical
//! path: a simulated machine charges time for it (`skt_sim::clocked`).

use std::cell::Cell;

use crate::model::path::{Counts, Unit, work};

thread_local!(static DONE: Cell<Counts> = Cell::new(Counts::default()));

/// All that this thread has done so far, without copies of rows.
pub fn done() -> Counts {
    DONE.get()
}

fn count(counts: &Counts) {
    let mut done = DONE.get();
    done.add(counts, 1.0);
    DONE.set(done);
}

/// Counts `A2 -= L2 U` on `rows x cols` with `k` columns of L2, in one BLAS call.
pub fn multiplied(rows: usize, cols: usize, k: usize) {
    count(&work::product(rows as f64, cols as f64, k as f64, true));
}

/// Counts `U = L1^-1 A1` with `k` rows, on `cols` columns.
pub fn solved(k: usize, cols: usize) {
    count(&work::solve(k as f64, cols as f64));
}

/// Counts a panel of `jb` columns, with `rows` rows of this rank below its diagonal block, on `p`
/// process rows.
pub fn factored(rows: usize, jb: usize, p: usize) {
    count(&work::panel(rows as f64, jb as f64, p));
}

/// Counts `entries` entries of the matrix read by the back substitution.
pub fn streamed(entries: usize) {
    count(&Counts::of(&[(Unit::StreamedByte, (entries * size_of::<f64>()) as f64)]));
}
