//! Why a machine is slow, before a run and during it.
//!
//! | module | what |
//! |---|---|
//! | [`environment`] | what a run finds: hosts, BLAS, memory for N, a self-test of DGEMM |
//! | [`doctor`] | facts about hosts, rules that judge them, and remedies |
//! | [`slow`] | ranks and links that are slower than others of their kind |
#![deny(unsafe_op_in_unsafe_fn)]
#![warn(missing_docs, unreachable_pub)]

pub mod doctor;
pub mod environment;
pub mod slow;
