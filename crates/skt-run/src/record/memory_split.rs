//! The memory of a rank by purpose.

use serde::{Deserialize, Serialize};

/// The memory of the largest rank by purpose, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemorySplit {
    /// The rank's part of the matrix.
    pub matrix: u64,
    /// Copies of the matrix in checkpoints.
    pub copies: u64,
    /// The parities of its group that the rank keeps.
    pub parities: u64,
    /// The header of the rank's segment, and alignment.
    pub header: u64,
    /// Panels, rows of U and buffers.
    pub work_space: u64,
}

impl MemorySplit {
    /// The sum of all parts; at most `u64::MAX`.
    pub fn total(&self) -> u64 {
        let Self { matrix, copies, parities, header, work_space } = *self;
        [copies, parities, header, work_space].into_iter().fold(matrix, u64::saturating_add)
    }
}
