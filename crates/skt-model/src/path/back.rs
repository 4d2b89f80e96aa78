//! The back substitution: `pgesv::back` with clocks instead of work.

use skt_host::layout::Cyclic;

use super::RunParams;
use super::clock::{Moment, Part};
use super::machine::{Counts, Unit};
use super::walk::{Walk, max_held_from};

const DOUBLE: f64 = 8.0;

/// Walks from the last block to the first. The column that solves a block subtracts its part from
/// the rows of the blocks before its own next one, passes these to the column of the next block,
/// and updates the rest of its rows while that column works. Before it solves, one of its ranks,
/// each in turn, gathers the diagonal block.
pub(super) fn substitute(walk: &mut Walk) {
    let start = walk.clocks.clone();
    let RunParams { n, nb, p, q, .. } = *walk.run;
    let (rows, cols) = (Cyclic::rows(nb, p), walk.cols.clone());
    let machine = *walk.machine;
    let message = |bytes: f64| machine.message_seconds + bytes * machine.message_byte_seconds;
    let stream = |entries: f64| Counts::from_list(&[(Unit::StreamedByte, entries * DOUBLE)]);
    let copy = |entries: f64| Counts::from_list(&[(Unit::CopiedByte, 2.0 * entries * DOUBLE)]);
    // Seconds to send data from all other ranks of a process column to one, at once.
    let gathered = |doubles: f64| match p {
        1 => 0.0,
        _ => message(doubles * (1.0 - 1.0 / p as f64) * DOUBLE),
    };
    let share = 1.0 / q as f64;
    let (holder, taker) = (cols.owner(n), cols.owner(n - 1));
    if holder != taker {
        let sent =
            walk.clocks[holder].after(Part::Back, message(max_held_from(rows, 0, n) * DOUBLE));
        walk.clocks[taker] = walk.clocks[taker].and(sent);
    }
    let levels = f64::from(p.next_power_of_two().ilog2());
    let mut handed: Option<Moment> = None;
    for k in (0..n.div_ceil(nb)).rev().step_by(walk.stride) {
        let column = cols.block_owner(k);
        let (top, bottom) = (k * nb, ((k + 1) * nb).min(n));
        let jb = (bottom - top) as f64;
        let own = 1.0 / p as f64;
        let mut clock = walk.clocks[column];
        // Own rows are packed; the gathering rank then puts all rows into their positions.
        let home = copy(jb * jb * (1.0 + own));
        clock = clock.after(Part::Back, machine.seconds(&home) + gathered(jb * jb));
        if let Some(handed) = handed.filter(|_| q > 1) {
            clock = clock.and(handed);
        }
        clock = clock.after(Part::Back, gathered(jb));
        let triangle = stream(jb * jb);
        clock = clock.after(Part::Back, machine.seconds(&triangle));
        clock = clock.after(Part::Back, levels * message(jb * DOUBLE));
        let near_first = cols.earlier_block(k, 1).map_or(0, |next| (next + 1) * nb);
        let near = max_held_from(rows, near_first, top);
        clock = clock.after(Part::Back, machine.seconds(&stream(near * jb)));
        handed = Some(clock.after(Part::Back, message(near * DOUBLE)));
        let far = max_held_from(rows, 0, near_first);
        walk.clocks[column] = clock.after(Part::Back, machine.seconds(&stream(far * jb)));
        walk.counts.back.add(&triangle, share * own);
        walk.counts.back.add(&copy(2.0 * jb * jb), share * own);
        walk.counts.back.add(&stream(top as f64 * own * jb), share);
    }
    for ((phases, end), start) in walk.phases.iter_mut().zip(&walk.clocks).zip(&start) {
        phases.back = end.at_seconds - start.at_seconds;
    }
}
