//! Simulated ranks: transports for tests and benches, which no program ships.
//!
//! `tests/crash` runs the checkpoint protocol on [`fibers`].
#![deny(unsafe_op_in_unsafe_fn)]
#![warn(unreachable_pub)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod checkpoints;
pub mod clocked;
pub mod fibers;
mod ranks;
