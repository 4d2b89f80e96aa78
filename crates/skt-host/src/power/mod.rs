//! The energy of a node over time: power as it was sampled, and the thread that samples it.

pub mod curve;
pub mod sampler;
pub mod tracker;

pub use curve::{Curve, Energy, PowerPiece};
pub use sampler::Sampler;
