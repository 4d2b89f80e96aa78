//! In-memory checkpoints that survive the loss of ranks.
//!
//! Codec, layout, segments and their stores are those of the crate `skt-store`.
//!
//! This module knows regions of memory, groups of ranks and epochs, but nothing of LU, so any
//! application can use it. docs/protocol.md lists the states and explains why each loss is
//! survived.

pub mod agree;
pub mod alike;
mod config;
mod encode;
mod encoding;
mod error;
pub mod group;
pub mod header;
pub mod hook;
pub mod level;
pub mod methods;
mod opening;
pub mod parameters;
pub mod protocol;
pub mod record;
mod refusal;
mod schedule;
mod segment;
mod vault;

pub(crate) use opening::take_hold;
pub use protocol::{finish, recover};
use skt_store::memory;
