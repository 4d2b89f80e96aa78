//! What the crates of this workspace share: a machine, what a process finds and does on it, and
//! HPL's terms as values and pure functions.
#![deny(unsafe_op_in_unsafe_fn)]
#![warn(unreachable_pub)]

/// The example of the README is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod affinity;
pub mod checkpoint_times;
pub mod child;
pub mod choice;
pub mod clock;
pub mod columns;
pub mod core_use;
pub mod counters;
pub mod descriptors;
pub mod each;
pub mod exit;
pub mod host;
pub mod host_names;
pub mod infile;
pub mod launcher_rank;
pub mod layout;
pub mod levels;
pub mod median;
pub mod memory;
pub mod messages;
pub mod named;
pub mod norms;
pub mod outfile;
pub mod panel_edges;
pub mod phases;
pub mod placement;
pub mod process;
pub mod process_state;
pub mod program;
pub mod ranges;
pub mod shown;
pub mod similar;
pub mod starter;
pub mod streams;
#[doc(hidden)]
pub mod testing;
pub mod thread_clock;
pub mod tournament;
pub mod tree;
pub mod tuning;
pub mod units;
pub mod vectors;
pub mod wait_clock;
pub mod waits;
