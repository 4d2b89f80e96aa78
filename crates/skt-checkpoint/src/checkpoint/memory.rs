//! What the protocol asks of the memory of a node.

use std::io;
use std::ops::{DerefMut, Range};

use super::header::SegmentId;

/// Another rank's segment, to be read where it lies.
pub trait Peer {
    /// Bytes of the segment.
    ///
    /// # Safety
    /// Their owner must not write to them as long as the slice is in use.
    unsafe fn bytes(&self, range: Range<usize>) -> &[u8];

    /// These bytes will be read for the first time: whatever makes that faster.
    fn will_read(&self, _: Range<usize>) {}
}

/// Memory of a node that outlives the process: the segments of one run.
pub trait Memory {
    /// A segment in use.
    type Segment: DerefMut<Target = [u8]>;
    /// A segment in use by another rank.
    type Peer: Peer;

    /// A hold on the run, given up when dropped, and by the death of the process.
    type Lock;

    /// Keeps other jobs of this run off this node. Each process of a job on the node
    /// has a hold of its own, and an `index`, from 0 on.
    ///
    /// # Errors
    /// When another job has it, and does not give it up in some time; as the system
    /// has it.
    fn lock(&mut self, index: usize) -> io::Result<Self::Lock>;

    /// All segments of this run on this node.
    ///
    /// # Errors
    /// As the system has it.
    fn list(&mut self) -> io::Result<Vec<SegmentId>>;

    /// Reads as many bytes from the start of a segment as it has and as fit,
    /// and returns the size of the segment. Must not disturb its users.
    ///
    /// # Errors
    /// As the system has it.
    fn read_header(&mut self, id: SegmentId, into: &mut [u8]) -> io::Result<usize>;

    /// Makes a segment of zeros, its memory reserved.
    ///
    /// # Errors
    /// When there is no such room, or a segment of that name exists.
    fn create(&mut self, id: SegmentId, bytes: usize) -> io::Result<Self::Segment>;

    /// Opens an existing segment.
    ///
    /// # Errors
    /// As the system has it.
    fn attach(&mut self, id: SegmentId) -> io::Result<Self::Segment>;

    /// The segment of another rank, if it can be read from this node.
    ///
    /// # Errors
    /// As the system has it.
    fn peer(&mut self, id: SegmentId) -> io::Result<Option<Self::Peer>>;

    /// Removes a segment; one that is gone already is no error.
    ///
    /// # Errors
    /// As the system has it.
    fn remove(&mut self, id: SegmentId) -> io::Result<()>;
}
