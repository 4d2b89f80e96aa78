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
        let parts: &mut [f64; 5] = bytemuck::cast_mut(self);
        parts.iter_mut().zip(other.parts()).for_each(|(part, more)| *part += more);
    }
}

impl Stall {
    fn parts(self) -> [f64; 5] {
        bytemuck::cast(self)
    }

    /// The sum of all parts, in seconds.
    pub fn seconds(&self) -> f64 {
        self.parts().iter().sum()
    }
}
