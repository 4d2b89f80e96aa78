//! What the crates of this workspace have in common: HPL's terms as values and pure functions. This
//! crate has no files, no running ranks, and no matrix.
#![warn(unreachable_pub)]

/// The example of the README is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod checkpoint_times;
pub mod choice;
pub mod columns;
pub mod exit;
pub mod layout;
pub mod levels;
pub mod median;
pub mod named;
pub mod norms;
pub mod panel_edges;
pub mod phases;
pub mod ranges;
pub mod shown;
pub mod similar;
pub mod tournament;
pub mod tree;
pub mod tuning;
pub mod units;
