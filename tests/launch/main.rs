//! `skt-hpl launch` on a cluster of namespaces on this machine, with real launchers.

#[path = "../cluster_box/mod.rs"]
mod cluster_box;
#[path = "../dice/mod.rs"]
mod dice;
#[path = "../executables/mod.rs"]
mod executables;
#[path = "../large_machine/mod.rs"]
mod large_machine;
#[path = "../mpirun/mod.rs"]
mod mpirun;
#[path = "../opencl/mod.rs"]
mod opencl;
#[path = "../planted_blas/mod.rs"]
mod planted_blas;
#[path = "../report_schema/mod.rs"]
mod report_schema;
#[path = "../skipped/mod.rs"]
mod skipped;
#[macro_use]
#[path = "../supervised/mod.rs"]
mod supervised;

mod launch_blas;
mod launch_box;
mod launch_json;
mod launch_large;
mod launch_levels;
mod launch_links;
mod launch_mpich;
mod launch_mxp;
mod launch_pairs;
mod launch_program;
mod launch_run;
mod launch_screen;
mod launch_slow_links;
mod launch_slurm;
mod launch_spread;
mod launch_spread_rest;
mod launch_ssh;
mod launch_wrong;
