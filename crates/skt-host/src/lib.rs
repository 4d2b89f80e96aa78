//! A machine, and what a process finds and does on it.
#![deny(unsafe_op_in_unsafe_fn)]
#![warn(unreachable_pub)]

pub mod affinity;
pub mod child;
pub mod clock;
pub mod core_use;
pub mod counters;
pub mod descriptors;
pub mod each;
pub mod host;
pub mod infile;
pub mod launcher_rank;
pub mod memory;
pub mod messages;
pub mod outfile;
pub mod placement;
pub mod process;
pub mod process_state;
pub mod program;
pub mod starter;
pub mod streams;
#[doc(hidden)]
pub mod testing;
pub mod thread_clock;
pub mod vectors;
pub mod wait_clock;
pub mod waits;
