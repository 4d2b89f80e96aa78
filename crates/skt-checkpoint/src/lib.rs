//! Ranks, their messages, and memory that outlives their processes: what a checkpointed application
//! needs, without LU, BLAS or command line.
//!
//! | module | what |
//! |---|---|
//! | [`client`] | checkpoints for any code over MPI, in a few calls: begin here |
//! | [`mover`] | memory that only calls of its owner can copy, as that of a device |
//! | [`comm`] | what ranks say to each other: MPI, threads; memory of a node |
//! | [`time_limit`] | the time that a job has |
//! | [`sign`] | signs of life for `skt-hpl launch` |
//! | [`pages`] | huge pages for shared memory, copies past the caches |
//! | [`thread_clock`] | what a thread has used of its core |
//! | [`wait_clock`] | the clock of a loop that waits: a job that stood still is not late |
//! | [`tuning`] | values found by measurement |
//! | [`checkpoint`] | codec, store, protocol |
#![deny(unsafe_op_in_unsafe_fn)]
#![warn(missing_docs)]

/// The example of the README is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod checkpoint;
pub mod client;
pub mod comm;
pub mod mover;
pub mod pages;
pub mod sign;
pub mod thread_clock;
pub mod time_limit;
pub mod tuning;
pub mod wait_clock;
