//! Studies of checkpointed runs: the figures and tables of the literature, and a simulator.
//!
//! The formulas that a run or a plan needs are in [`skt_model`]. Here are those that only the
//! papers' figures and tables need, and what evaluates all of them:
//!
//! - [`bautista`]: Bautista Gomez et al., "Low-overhead checkpoint for large-scale GPU-accelerated
//!   systems"
//! - [`bosilca`]: Bosilca et al., "Unified Model for Assessing Checkpointing Protocols at
//!   Extreme-Scale", INRIA RR-7950, 2012
//! - [`tang`]: Tang et al., "An Efficient In-Memory Checkpoint Method and its Practice on
//!   Fault-Tolerant HPL", TPDS 2018: the largest machines, and the reliability
//! - [`published`]: runs of HPL on machines of others, and what the model predicts for them
//! - [`sim`]: a discrete-event simulator that checks all formulas
//! - [`cli`]: the program `skt-studies`, which also draws the figures

#![warn(missing_docs, unreachable_pub)]

pub mod bautista;
pub mod bosilca;
pub mod cli;
mod error;
mod figures;
mod plot;
pub mod published;
pub mod sim;
pub mod tang;

pub use error::StudyError;
