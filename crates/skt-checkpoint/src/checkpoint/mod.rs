//! In-memory checkpoints that survive the loss of ranks.
//!
//! This module knows regions of memory, groups of ranks and epochs, but nothing of LU, so any
//! application can use it. docs/protocol.md lists the states and says why each loss is survived.

mod abft;
pub mod agree;
mod checkpointer;
pub mod codec;
mod config;
mod double;
pub mod encode;
mod encoding;
mod error;
pub mod finish;
mod gathered;
pub mod group;
pub mod header;
pub mod hook;
mod joining;
pub mod layout;
pub mod level;
pub mod link;
mod memory;
pub mod methods;
mod opening;
pub mod parameters;
pub mod protocol;
pub mod record;
pub mod recover;
mod refusal;
mod restore;
mod schedule;
mod segment;
mod single;
pub mod store;
mod vault;
mod verify;
