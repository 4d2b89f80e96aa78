use serde::{Deserialize, Serialize};

use super::super::decide::found::Content;
use super::super::refusal::Refusal;
use super::disk::{Generation, ImageId};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EpochSource {
    Memory,
    Images { level: usize, generation: Generation },
}

/// A source that this start has found to have more rot than its parities can rebuild.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rotten {
    pub source: EpochSource,
    pub refusal: Refusal,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FoundImage {
    pub id: ImageId,
    /// Contents of its seal; `None` if it has no seal, or one of other parameters.
    pub content: Option<Content>,
    /// The checkpoint that a user has chosen for the start of this name, if this is a note of that.
    pub chosen: Option<Generation>,
    /// The differences of its parameters from those of this start, in words, if there are any.
    pub other: Option<String>,
}

/// What can be restored from a level.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restorable {
    /// The generations that can be restored, newest first, without those known to be rotten.
    pub generations: Vec<Generation>,
    /// Whether the newest of them lacks images of some ranks, or has rotten ones, and so survives
    /// fewer losses than a complete one.
    pub is_lacking: bool,
    /// A generation that survives every loss that the last complete one survives: that one, or a
    /// newer one that lacks no image which older ones have.
    pub most_redundant: Option<Generation>,
    /// The generation that a user has chosen to continue from, until the run has newer ones.
    pub chosen: Option<Generation>,
}

impl Restorable {
    /// The newest `keep`, the most redundant, and the chosen one with all that are newer.
    pub(crate) fn kept(&self, keep: usize) -> Vec<Generation> {
        let is_kept = |&(i, generation): &(usize, &Generation)| {
            i < keep
                || Some(*generation) == self.most_redundant
                || self.chosen.is_some_and(|chosen| *generation >= chosen)
        };
        self.generations.iter().enumerate().filter(is_kept).map(|(_, kept)| *kept).collect()
    }

    /// The part of [`Self::kept`] that the run continues from: generations newer than the chosen
    /// one go as soon as this start has complete images.
    pub(crate) fn continued(&self, keep: usize) -> Vec<Generation> {
        let mut kept = self.kept(keep);
        kept.retain(|generation| self.chosen.is_none_or(|chosen| *generation <= chosen));
        kept
    }
}

/// The images that a start resumes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// The index of the level.
    pub level: usize,
    /// The generation of the images.
    pub generation: Generation,
    /// The image that each process loads; a rank without one is lost, and rebuilt.
    pub images: Vec<Option<ImageId>>,
    /// The process that broadcasts the state, and its image.
    pub holder: (usize, ImageId),
    /// Why the memory of the nodes, which would come first, is not used.
    pub why: String,
}
