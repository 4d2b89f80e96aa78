//! This rank's segment: what outlives the process, and what is known of it.

use super::header::{HeaderLayout, Identity, SegmentId};
use super::layout::SegmentLayout;
use super::memory::Memory;
use super::record::Record;
use super::vault::Vault;

/// This rank's segment.
pub(super) struct OwnSegment<M: Memory> {
    /// The memory of this node.
    pub(super) memory: M,
    pub(super) id: SegmentId,
    pub(super) header: HeaderLayout,
    pub(super) layout: SegmentLayout,
    pub(super) identity: Identity,
    pub(super) vault: Vault<M::Segment>,
    pub(super) record: Record,
    /// The last field, so that the hold is released after the segment.
    pub(super) lock: Option<M::Lock>,
}
