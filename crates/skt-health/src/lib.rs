//! Why a machine is slow, before a run and during it.
#![deny(unsafe_op_in_unsafe_fn)]
#![warn(unreachable_pub)]

pub mod doctor;
pub mod environment;
pub mod slow;
