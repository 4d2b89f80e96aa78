//! A run: all tests of a configuration on all ranks, under protection.
//!
//! | module | what |
//! |---|---|
//! | [`job`] | all tests of a run |
//! | [`ptest`] | one test: generate, solve, time, check |
//! | [`protect`] | where the solver and the checkpoints meet |
//! | [`power`] | the energy of tests, by counters and meters |
//! | [`cores`] | how long the ranks had their cores |
//! | [`record`] | what is known of a test: data that checkpoints keep and reports print |
//! | [`progress`] | a line on standard error: what runs, how much is done, how long it takes |
//! | [`events`] | what a run reports while it runs |
//! | [`tune`] | the fastest parameters, by short tests |
#![deny(unsafe_op_in_unsafe_fn)]
#![warn(unreachable_pub)]

pub mod cores;
pub(crate) mod error;
pub mod events;
pub mod grace;
pub mod heartbeat;
pub mod job;
pub mod power;
pub mod progress;
pub mod protect;
pub mod ptest;
pub mod record;
pub mod tune;
pub mod tuning;
