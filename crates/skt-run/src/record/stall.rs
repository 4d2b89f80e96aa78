//! Why the solver's thread stood still.

use std::ops::AddAssign;

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};

/// Why the solver's thread stood still: each part is the longest of any rank, summed over all
/// checkpoints.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, Pod, Zeroable)]
#[repr(C)]
pub struct Stall {
    /// Seconds to begin: the agreement on what to save, and parities that are carried over.
    pub begin_seconds: f64,
    /// Seconds in which the thread waited for the progress token, which its helper thread had.
    pub turn_seconds: f64,
    /// Seconds for parities that were not done at the cut, from when all ranks had reached it.
    pub encode_seconds: f64,
    /// Seconds for the agreement that the parities are complete, and for COMMIT.
    pub agree_seconds: f64,
    /// Seconds to copy the matrix.
    pub copy_seconds: f64,
}

impl AddAssign for Stall {
    fn add_assign(&mut self, other: Self) {
        self.begin_seconds += other.begin_seconds;
        self.turn_seconds += other.turn_seconds;
        self.encode_seconds += other.encode_seconds;
        self.agree_seconds += other.agree_seconds;
        self.copy_seconds += other.copy_seconds;
    }
}

impl Stall {
    /// The sum of all parts, in seconds.
    pub fn seconds(&self) -> f64 {
        let Self { begin_seconds, turn_seconds, encode_seconds, agree_seconds, copy_seconds } =
            self;
        begin_seconds + turn_seconds + encode_seconds + agree_seconds + copy_seconds
    }
}
