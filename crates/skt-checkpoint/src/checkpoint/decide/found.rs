use serde::{Deserialize, Serialize};

use crate::checkpoint::header::{Identity, SegmentId};
use crate::checkpoint::record::Record;
use skt_store::codec::checksum;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FoundSegment {
    pub id: SegmentId,
    /// `None` when the header is not whole, or has other parameters.
    pub content: Option<Content>,
    /// The differences of its parameters from those of this start, in words, if there are any.
    pub other: Option<String>,
}

/// What all have to agree on. One process reads that of every rank, thousands in a large job, so it
/// omits the parameters, which are those of the start, and has a checksum of the state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Content {
    pub rank: usize,
    pub group: usize,
    pub members: Vec<usize>,
    pub record: Record,
    /// Checksum of the state.
    pub state: u64,
}

impl Content {
    pub(crate) fn new(identity: Identity, record: &Record) -> Self {
        let Identity { rank, group, members, .. } = identity;
        let state = checksum(record.state());
        Self { rank, group, members, record: record.without_state(), state }
    }
}
