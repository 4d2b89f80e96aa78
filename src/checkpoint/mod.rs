//! In-memory checkpoints that survive the loss of ranks.
//!
//! Nothing in here knows of LU: only of regions of memory, groups of ranks and
//! epochs, so that any application can use it.

pub mod codec;
pub mod memory;
pub mod store;
