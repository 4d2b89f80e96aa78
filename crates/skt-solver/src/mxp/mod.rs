//! HPL-MxP: what surrounds the factorization in low precision.
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

/// The columns of a piece in which a rank's part of A is computed: it stays in the first cache.
const CHUNK: usize = 256;

/// How many sums or streams of random numbers are computed at once: four vectors of AVX-512, so
/// that an addition or a multiplication does not wait for the one before it.
const LANES: usize = 32;
