//! Simulated ranks: transports for tests and benches, which no program ships.
//!
//! | module | what |
//! |---|---|
//! | [`fibers`] | ranks under a seeded scheduler that can kill one at every step |
//! | [`clocked`] | hundreds of ranks with clocks, under a simulated network |
//! | [`checkpoints`] | checkpoints and recoveries of [`clocked`] ranks |
//!
//! `tests/crash` runs the checkpoint protocol on [`fibers`].
#![deny(unsafe_op_in_unsafe_fn)]
#![warn(missing_docs, unreachable_pub)]

/// The example of the README is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod checkpoints;
pub mod clocked;
pub mod fibers;
mod ranks;
