//! High-Performance Linpack: a block-cyclic LU factorization with partial
//! pivoting on a P x Q grid of ranks, a drop-in for the reference `xhpl`.
#![deny(unsafe_op_in_unsafe_fn)]
#![warn(missing_docs)]

pub mod blas;
pub mod checkpoint;
pub mod cli;
pub mod comm;
pub mod config;
pub mod environment;
pub mod grid;
pub mod job;
pub mod matgen;
pub mod model;
pub mod pfact;
pub mod pgesv;
pub mod protect;
pub mod ptest;
pub mod report;
pub mod supervisor;
pub mod swap;
pub mod team;
pub mod update;
