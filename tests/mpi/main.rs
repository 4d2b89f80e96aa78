//! The built program, and the examples, as jobs under a real `mpirun`.

#[path = "../dice/mod.rs"]
mod dice;
#[path = "../large_machine/mod.rs"]
mod large_machine;
#[path = "../mpi_job/mod.rs"]
mod mpi_job;
#[path = "../mpirun/mod.rs"]
mod mpirun;
#[path = "../planted_blas/mod.rs"]
mod planted_blas;
#[path = "../report_common/mod.rs"]
mod report_common;
#[path = "../report_schema/mod.rs"]
mod report_schema;
#[path = "../skipped/mod.rs"]
mod skipped;
#[path = "../soak/mod.rs"]
mod soak;

mod abft_drill;
mod abft_mpi;
mod auto_mpi;
mod bf16_mpi;
mod blas_kills;
mod blas_libraries;
mod demo;
mod fingerprints;
mod ft_mpi;
mod helper_cores;
mod levels_mpi;
mod mkl_layer;
mod mpi_run;
mod mxp_mpi;
mod papers;
mod pinning;
mod rates_mpi;
mod screen_mpi;
mod shared_store;
mod slow_ranks;
mod store_cli;
mod time_limit;
mod tune_mpi;
mod two_jobs;
mod ulfm_mpi;
mod waits_mpi;
mod xhpl;
