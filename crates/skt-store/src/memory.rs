//! The interface of the protocol to the memory of a node.

use std::any::Any;
use std::io;
use std::ops::DerefMut;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Name of a segment within a run and a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SegmentId {
    /// The logical rank whose data it holds.
    pub rank: usize,
    /// The start of the job that made it.
    pub start: u64,
}

/// An open segment of this process.
pub type OpenSegment = Box<dyn DerefMut<Target = [u8]> + Send>;

/// A hold on the run, released when dropped and when the process dies.
pub type Hold = Arc<dyn Any + Send + Sync>;

/// The memory of a node that outlives processes: the segments of one run. All operations return the
/// errors of the system.
pub trait Memory {
    /// Keeps other jobs of this run off this node. Each process of a job on the node takes one
    /// hold, with its `index`, counted from 0.
    ///
    /// # Errors
    /// When another job has the run and does not release it within some time, of kind
    /// [`io::ErrorKind::WouldBlock`] if that job is ending; any error of the system.
    fn lock(&mut self, index: usize) -> io::Result<Hold>;

    /// The names of all segments of this run on this node. Removes those whose creators have died
    /// before they were complete: the caller has a hold on the run.
    fn list(&mut self) -> io::Result<Vec<SegmentId>>;

    /// Reads the start of a segment into `into`, as many bytes as there are and fit, and returns
    /// the size of the segment. Must not disturb its users.
    ///
    /// # Errors
    /// Any error of the system; [`io::ErrorKind::NotFound`] when there is no such segment.
    fn read_header(&mut self, id: SegmentId, into: &mut [u8]) -> io::Result<usize>;

    /// Creates a segment of zeros, with its memory reserved.
    ///
    /// # Errors
    /// When there is not enough memory, or a segment of that name exists.
    fn create(&mut self, id: SegmentId, bytes: usize) -> io::Result<OpenSegment>;

    /// Opens an existing segment.
    ///
    /// # Errors
    /// Any error of the system; [`io::ErrorKind::NotFound`] when there is no such segment.
    fn attach(&mut self, id: SegmentId) -> io::Result<OpenSegment>;

    /// Removes a segment, if it exists.
    fn remove(&mut self, id: SegmentId) -> io::Result<()>;
}
