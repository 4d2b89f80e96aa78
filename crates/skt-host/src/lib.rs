//! A machine, and what a process finds and does on it.
//!
//! | module | what |
//! |---|---|
//! | [`descriptors`] | the limit on connections and files |
//! | [`counters`] | `/proc` and `/sys`: processor, topology, control groups, power |
//! | [`host`], [`memory`] | the host in short, and how much memory a process may still use |
//! | [`affinity`] | the CPUs that a thread may run on |
//! | [`placement`], [`helper_cores`] | which cores the threads of a rank get |
//! | [`occupants`], [`claims`] | who else computes there; two starts at once |
//! | [`core_use`] | how long the threads had a core, and who used the rest |
//! | [`process`] | processes, each distinguished from a later one with its number |
//! | [`process_state`] | what a library that is loaded is not to change |
//! | [`launcher_rank`] | the rank of this process, before MPI is up |
//! | [`child`], [`each`] | waits for a child process; work on many items at a time |
//! | [`program`], [`starter`] | files of programs; the flags of launchers |
//! | [`messages`] | messages on standard error |
//! | [`outfile`] | files in folders that others may write to |
//! | [`infile`] | files that a user names, to be read |
//! | [`streams`] | whether standard output or standard error was closed before the start |
//! | [`vectors`] | the vector instructions that have kernels |
//! | [`clock`] | points in time, as numbers and as text |
//! | [`wait_clock`] | the clock of a loop that waits: a job that stood still is not late |
//! | [`waits`] | long waits of a start are announced |
//! | [`thread_clock`] | what a thread has used of its core |
#![deny(unsafe_op_in_unsafe_fn)]
#![warn(missing_docs, unreachable_pub)]

pub mod affinity;
pub mod child;
pub mod claims;
pub mod clock;
pub mod core_use;
pub mod counters;
pub mod descriptors;
pub mod each;
pub mod helper_cores;
pub mod host;
pub mod infile;
pub mod launcher_rank;
pub mod memory;
pub mod messages;
pub mod occupants;
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
