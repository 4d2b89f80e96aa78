//! Studies of checkpointed runs: the figures and tables of the literature, and a simulator.
//!
//! The formulas that a run or a plan needs are in [`skt_model`]. Here are those that only the
//! papers' figures and tables need, and what evaluates all of them.

#![warn(unreachable_pub)]

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
