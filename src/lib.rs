//! High-Performance Linpack: a block-cyclic LU factorization with partial
//! pivoting on a P x Q grid of ranks, a drop-in for the reference `xhpl`.
#![deny(unsafe_op_in_unsafe_fn)]
#![warn(missing_docs)]

pub mod comm;
pub mod config;
pub mod model;
pub mod report;
