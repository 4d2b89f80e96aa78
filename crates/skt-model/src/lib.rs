//! The cost of checkpointed runs by the formulas of the literature, as functions.
//!
//! Each paper has a folder or a file, each section a file, and each function its formula above it:
//!
//! - [`tang`]: Tang et al., "An Efficient In-Memory Checkpoint Method and its Practice on
//!   Fault-Tolerant HPL", TPDS 2018
//! - [`chen`]: Chen and Dongarra, "A Scalable Checkpoint Encoding Algorithm for Diskless
//!   Checkpointing", HASE 2008
//! - [`exact`]: closed forms without the first-order assumption, for exponential failures
//! - [`inmemory`]: in-memory checkpoints with m parities and abort-and-restart with spares
//! - [`levels`]: Benoit et al., "Towards Optimal Multi-Level Checkpointing", IEEE TC 2017, with
//!   images that are written while the work continues
//! - [`kinds`]: nodes of unequal speed, and the rates of process columns on them
//! - [`plan`]: from a machine to a configuration
//! - [`path`]: the critical path of the solver itself, after Dongarra, Luszczek and Petitet, "The
//!   LINPACK Benchmark: Past, Present and Future", 2003
//! - [`table`]: named values as JSON and as text
//!
//! The figures and tables of the papers, and a simulator that checks the formulas, are in the crate
//! `skt-studies`.
//!
//! Times are seconds, memory is bytes, rates are flop/s or bytes/s, shares are
//! fractions between 0 and 1; every name has its unit.

#![warn(missing_docs, unreachable_pub)]

/// The example of the README is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod chen;
pub mod error;
pub mod exact;
pub mod group;
pub mod inmemory;
pub mod kinds;
pub mod levels;
pub mod optimum;
pub mod path;
pub mod plan;
pub mod table;
pub mod tang;

pub use error::ModelError;
pub use group::Group;

/// Seconds in an hour.
pub const HOUR_SECONDS: f64 = 3600.0;
/// Seconds in a year of 365 days.
pub const YEAR_SECONDS: f64 = 365.0 * 24.0 * HOUR_SECONDS;
