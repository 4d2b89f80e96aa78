//! The benchmark itself: the matrix, its factorization on the process grid, and the
//! solution, in HPL's own words.

pub mod comm;
pub mod grid;
pub mod matgen;
pub mod pfact;
pub mod pgesv;
pub mod swap;
pub mod update;
