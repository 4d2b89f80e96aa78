//! What a rank runs on: its host, its cores and threads, the BLAS, the launcher.

pub mod blas;
pub mod environment;
pub mod launcher_rank;
pub mod team;
