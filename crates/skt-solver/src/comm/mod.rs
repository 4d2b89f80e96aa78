//! What the solver adds to [`skt_comm`]: recursive doubling, and the panel broadcasts of HPL.

pub(crate) mod doubling;
pub mod panel_bcast;
pub mod threads;
