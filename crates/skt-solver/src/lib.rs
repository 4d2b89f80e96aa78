//! The solver of High-Performance Linpack: the matrix, its block-cyclic LU factorization with
//! partial pivoting on a P x Q grid of ranks, and the solution, in HPL's own words.
//!
//! Its ranks are those of a [`skt_comm::Comm`]: MPI in production, and threads of one process
//! in tests. A [`pgesv::guard::Guard`] keeps the matrix, and may take a checkpoint between two
//! panels.
#![deny(unsafe_op_in_unsafe_fn)]
#![warn(unreachable_pub)]

/// The example of the README is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod blas;
mod built_in;
pub mod comm;
pub mod grid;
pub mod matgen;
pub mod mxp;
pub mod pfact;
pub mod pgesv;
pub mod swap;
pub mod team;
pub mod tuning;
pub mod update;
pub mod work;
