//! The machine of a rank: its host, its cores and threads, the BLAS, the launcher; and how its
//! process ends.

pub mod environment;
pub mod grace;
pub mod launcher_rank;
pub mod tuning;
