//! In-memory checkpoints that survive the loss of ranks: regions of memory, groups of ranks and
//! epochs, but nothing of LU, so any application can use them. docs/protocol.md lists the states
//! and explains why each loss is survived.

pub mod alike;
mod config;
pub mod decide;
mod encode;
mod encoding;
mod error;
pub mod group;
pub mod header;
pub mod hook;
pub mod level;
pub mod methods;
pub mod parameters;
pub mod protocol;
pub mod record;
mod refusal;
mod schedule;
mod segment;
mod start;
mod vault;

pub use protocol::{finish, recover};
use skt_store::memory;
pub(crate) use start::take_hold;
