//! The machine of a rank as far as a run depends on it: its BLAS, whether N fits into its memory,
//! and how its process ends.

pub mod environment;
pub mod grace;
pub mod tuning;
