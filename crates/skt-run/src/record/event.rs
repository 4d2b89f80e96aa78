//! What happened in a test.

use serde::{Deserialize, Serialize};

/// Something that happened in a test.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Event {
    /// `start`, `checkpoint`, `failure`, `recovery` or `end`.
    pub kind: String,
    /// Seconds from the first start of the timed part to the start of the event.
    pub start_seconds: f64,
    /// Duration of the event in seconds.
    pub seconds: f64,
    /// The number of the checkpoint that was taken, or that the test continued from.
    pub epoch: Option<u64>,
    /// Number of columns that were factored.
    pub column: Option<usize>,
    /// Bytes of the matrix that rank 0 saved.
    pub bytes: Option<u64>,
    /// A description of the event.
    pub detail: String,
}
