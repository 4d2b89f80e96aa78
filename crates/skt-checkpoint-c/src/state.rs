//! What a checkpoint saves besides the regions.

use bytemuck::{Pod, Zeroable};

const VERSION: u64 = 2;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct SavedState {
    version: u64,
    /// Seconds of the run so far, over all starts; they decide when images of a level are due.
    seconds: f64,
}

impl SavedState {
    pub(crate) fn new(seconds: f64) -> Self {
        Self { version: VERSION, seconds }
    }
}

/// The seconds in a state, as the levels read them.
pub(crate) fn seconds_of(state: &[u8]) -> f64 {
    match bytemuck::try_pod_read_unaligned::<SavedState>(state) {
        Ok(SavedState { version: VERSION, seconds }) => seconds,
        _ => 0.0,
    }
}
