//! Where the data of a restart may come from.

use serde::{Deserialize, Serialize};

use super::super::agree::found::Content;
use super::super::refusal::Refusal;
use super::disk::{Generation, ImageId};

/// Where the data of an epoch may come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The segments.
    Memory,
    /// The images of a generation on one level.
    Images {
        /// Number of the level.
        level: usize,
        /// Which of them.
        generation: Generation,
    },
}

/// A source with more rot than its parities can rebuild, which a start has found out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rotten {
    /// Which one.
    pub source: Source,
    /// What is wrong with it.
    pub refusal: Refusal,
}

/// An image that a process sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundImage {
    /// Its name.
    pub id: ImageId,
    /// What its seal says; `None` when it has none, or one of other parameters.
    pub content: Option<Content>,
    /// What its parameters differ in from those of this start, in words, if they do.
    pub other: Option<String>,
}

/// The images that a start goes on from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// Number of the level.
    pub level: usize,
    /// Which of them.
    pub generation: Generation,
    /// The image that each process loads; those without one are lost, and rebuilt.
    pub images: Vec<Option<ImageId>>,
    /// Process that tells all the state, and the image that has it.
    pub holder: (usize, ImageId),
    /// Why the memory of the nodes, which is nearer, is not taken.
    pub why: String,
}
