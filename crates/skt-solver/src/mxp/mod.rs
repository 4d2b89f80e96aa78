//! HPL-MxP: what surrounds the factorization in low precision.
//!
//! | module | what |
//! |---|---|
//! | [`system`] | the matrices that need no pivoting, and b |
//! | [`part`] | a rank's part of A: in single precision, and its products, with entries computed again |
//! | [`refine`] | iterative refinement in double precision: classic, then GMRES |
//! | [`check`] | norms of the residual |
//!
//! All numbers have the same bits with any vector instructions and any number of threads, except
//! for ||A||_1, which depends on the number of threads.

pub mod check;
mod fasi_higham;
pub mod part;
mod random;
pub mod refine;
pub mod system;
mod vectorized;

/// A rank's part of A is computed in pieces of a row with at most this many columns, which stay in
/// the first-level cache.
const CHUNK: usize = 256;

/// How many sums or streams of random numbers are computed at once: four vectors of AVX-512, so
/// that an addition or a multiplication does not wait for the one before it.
const LANES: usize = 32;
