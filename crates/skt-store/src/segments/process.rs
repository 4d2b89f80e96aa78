//! What a process contributes to the segments of its run, besides the protocol.

use crate::store::{NewSegment, StoreError};

/// The threads of a process, and the supervisor that watches it. The defaults are for a process
/// that works with segments on one thread and that no supervisor watches.
pub trait Process {
    /// Touches the memory of a new segment of `bytes` bytes, so that its pages exist. What this
    /// leaves untouched is touched afterwards, on the calling thread.
    ///
    /// # Errors
    /// [`StoreError::NoMemory`], when the memory runs out.
    fn touch(&self, new: &NewSegment, bytes: usize) -> Result<(), StoreError> {
        let _ = (new, bytes);
        Ok(())
    }

    /// Called while this process reserves a segment of `bytes` bytes: `seconds` after the
    /// beginning, with `done_bytes` of it done. Any thread may call it.
    fn reserves(&self, seconds: f64, done_bytes: usize, bytes: usize) {
        let _ = (seconds, done_bytes, bytes);
    }

    /// Called while this process does what others wait for, such as a pass over memory: `seconds`
    /// after the beginning, with `pieces` of it done.
    fn passes(&self, seconds: f64, pieces: usize) {
        let _ = (seconds, pieces);
    }

    /// Called several times a second while this process waits for another one to end; `seconds`
    /// counts from the beginning of the wait.
    fn waits(&self, seconds: f64) {
        let _ = seconds;
    }

    /// The name of the run whose supervisor has started this process, if one has.
    fn supervisor(&self) -> Option<String> {
        None
    }
}

/// A process with the defaults of [`Process`].
#[derive(Debug, Clone, Copy)]
pub struct Plain;

impl Process for Plain {}
