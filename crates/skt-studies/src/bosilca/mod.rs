//! Bosilca et al., "Unified Model for Assessing Checkpointing Protocols at Extreme-Scale", RR-7950.

pub mod platform;
pub mod scenario;
pub mod waste;

pub use platform::Platform;
pub use scenario::{Application, Scenario};
pub use waste::{BestPeriod, WasteModel};
