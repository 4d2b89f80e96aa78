//! What a process finds on its node.

use serde::{Deserialize, Serialize};

use crate::checkpoint::codec::checksum;
use crate::checkpoint::header::{Identity, SegmentId};
use crate::checkpoint::record::Record;

/// A segment that a process has found on its node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundSegment {
    /// Its name.
    pub id: SegmentId,
    /// What the segment says it is, and how far; `None` when the header is not whole, or
    /// of other parameters.
    pub content: Option<Content>,
    /// What its parameters differ in from those of this start, in words, if they do.
    pub other: Option<String>,
}

/// What a segment says, as far as all have to agree on it. In a job of thousands of ranks
/// one process reads as many of them: so it has no parameters, which are those of the
/// start, and of the state, which may be long, a checksum.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// Logical rank.
    pub rank: usize,
    /// Index of its group.
    pub group: usize,
    /// Ranks of its group.
    pub members: Vec<usize>,
    /// How far it is, without the state.
    pub record: Record,
    /// Checksum of the state.
    pub state: u64,
}

impl Content {
    /// What a segment of the parameters of this start says.
    pub fn of(identity: Identity, record: &Record) -> Self {
        let Identity { rank, group, members, .. } = identity;
        let state = checksum(record.state());
        Self { rank, group, members, record: record.without_state(), state }
    }
}
