//! The cost of checkpointed runs by the formulas of the literature, as functions.
//!
//! Each paper has a folder or a file, each section a file, and each function its formula above it.
//!
//! The figures of the papers, and a simulator that checks the formulas, are in `skt-studies`.
//!
//! Times are seconds, memory is bytes, rates are flop/s or bytes/s, shares are fractions between 0
//! and 1; every name has its unit.

#![warn(unreachable_pub)]

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

pub const HOUR_SECONDS: f64 = 3600.0;
/// Seconds in a year of 365 days.
pub const YEAR_SECONDS: f64 = 365.0 * 24.0 * HOUR_SECONDS;
