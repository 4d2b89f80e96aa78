//! Segments in every store: deaths while they are made, limits of the machine, other users.

#[path = "../executables/mod.rs"]
mod executables;
#[path = "../mpirun/mod.rs"]
mod mpirun;
#[path = "../skipped/mod.rs"]
mod skipped;

mod planted_files;
mod store_limits;
mod store_others;
mod store_segments;
mod system_v;
