//! Checkpoints of simulated ranks that die, on nodes whose memory and disks go with them.

mod camera;
mod cluster;
mod disks;
mod essence;
mod futures;
mod levels;

mod crash_exhaustive;
mod crash_finish;
mod crash_levels;
mod crash_random;
mod crash_smoke;
mod ibarrier;

use std::collections::BTreeSet;

/// Whether `SKT_CRASH_SOAK` (any value but 0) asks for all kills of all runs, and more restarts.
fn is_soak() -> bool {
    std::env::var_os("SKT_CRASH_SOAK").is_some_and(|value| value != "0")
}

/// All sets of 1 to `most` of the numbers below `count`.
fn sets(count: usize, most: usize) -> Vec<BTreeSet<usize>> {
    (1u32..1 << count)
        .filter(|set| set.count_ones() as usize <= most)
        .map(|set| (0..count).filter(|number| set >> number & 1 == 1).collect())
        .collect()
}
