//! What ranks say to each other: all of [`skt_checkpoint::comm`], and what HPL needs
//! beside it.

pub mod panel_bcast;
pub mod threads;

pub use skt_checkpoint::comm::*;
