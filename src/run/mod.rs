//! A run: all tests of a configuration on all ranks, under protection.

pub mod events;
pub mod grace;
pub mod heartbeat;
pub mod job;
pub mod protect;
pub mod ptest;
pub mod tune;
pub mod tuning;
