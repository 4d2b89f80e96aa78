//! Bosilca et al., "Unified Model for Assessing Checkpointing Protocols at
//! Extreme-Scale", INRIA RR-7950, May 2012.

pub mod platform;
pub mod scenario;
pub mod waste;

pub use platform::Platform;
pub use scenario::{Application, Scenario};
pub use waste::{BestPeriod, WasteModel};
