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
