//! What a level of images has done.

use serde::{Deserialize, Serialize};

/// What a level of images has done on rank 0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LevelFacts {
    /// The level, as `local:FOLDER` or `global:FOLDER`.
    pub name: String,
    /// Number of images that a rank has written in the last start.
    pub images: u64,
    /// Bytes of these images.
    pub bytes: u64,
    /// Seconds that it took to write the images, while the solver continued or, with checksums in
    /// the elimination, waited.
    pub seconds: f64,
    /// Seconds that the solver waited for images of any level.
    pub stall_seconds: f64,
    /// Core seconds to write the images.
    #[serde(default)]
    pub cpu_seconds: f64,
    /// Seconds between two images that follow from the cost of the last one; `None` if the interval
    /// does not depend on it, or if the cost is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_seconds: Option<f64>,
    /// Number of images that were given up.
    pub given_up: u64,
    /// The newest checkpoint of which all ranks are known to have an image; 0 if there is none.
    pub complete_epoch: u64,
    /// Why no more images were written, if a write or the opening of the level has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

impl LevelFacts {
    /// The rate of writing, in bytes per second.
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.bytes as f64 / self.seconds } else { 0.0 }
    }
}
