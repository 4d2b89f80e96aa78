//! In-memory checkpoints that survive the loss of ranks.
//!
//! Nothing in here knows of LU: only of regions of memory, groups of ranks and
//! epochs, so that any application can use it. docs/protocol.md has the states
//! and says why each loss is survived.

pub mod agree;
pub mod any_code;
pub mod code;
pub mod codec;
pub mod encode;
pub mod finish;
mod flush;
mod gathered;
pub mod group;
pub mod header;
pub mod hook;
pub mod layout;
pub mod link;
pub mod methods;
mod opening;
pub mod parameters;
mod phases;
mod progress;
pub mod protocol;
pub mod record;
pub mod recover;
mod ring;
pub mod store;
mod vault;
mod verify;
