//! Ranks, their messages, and memory that outlives their processes: what a checkpointed application
//! needs, without LU, BLAS or command line.
//!
//! | module | what |
//! |---|---|
//! | [`client`] | checkpoints for any code over MPI, in a few calls: begin here |
//! | [`comm`] | messages between ranks: the crate `skt-comm` |
//! | [`time_limit`] | the time that a job has |
//! | [`heartbeat`] | heartbeats for `skt-hpl launch` |
//! | [`tuning`] | values found by measurement |
//! | [`checkpoint`] | the protocol; codec and store: the crate `skt-store` |
#![deny(unsafe_op_in_unsafe_fn)]
#![warn(missing_docs, unreachable_pub)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Messages between ranks: the crate `skt-comm`.
pub use skt_comm as comm;

pub mod checkpoint;
pub mod client;
pub mod heartbeat;
pub mod time_limit;
pub mod tuning;
