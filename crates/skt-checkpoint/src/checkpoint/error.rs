use std::io;

use skt_host::units::counted;

use super::decide::Refusal;
use super::header::SegmentId;
use super::methods::Method;
use skt_comm::CommError;

/// Why a checkpoint or a recovery failed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages describe the fields")]
pub enum CheckpointError {
    /// A rank died, so the job is ending.
    #[error(transparent)]
    Comm(#[from] CommError),
    /// The job cannot resume from what was found.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// An operation on a segment in the node's memory failed.
    #[error("{what}: {source}")]
    Memory {
        /// The operation, as a participle with its object: `creating the segment of rank 3`.
        what: String,
        source: io::Error,
    },
    /// An operation on the files of a level failed.
    #[error("{what} of level {level}: {source}")]
    Level {
        /// The operation, as a participle with its object: `writing an image`.
        what: &'static str,
        level: String,
        source: io::Error,
    },
    /// Levels were given for a method that has no images.
    #[error("levels need method self, double or abft; this is {0}")]
    NoLevels(Method),
    /// The code has no shape for a group of this size.
    #[error("a group of {members} with {}: {reason}", counted(*parities, "parity"))]
    Code { members: usize, parities: usize, reason: String },
    /// The application's state, or the result of the run, does not fit into the header.
    #[error(
        "a state or result of {bytes} bytes; the header was made for {capacity} at most \
         (state_capacity_bytes)"
    )]
    StateTooLarge { bytes: usize, capacity: usize },
}

/// The result of a checkpoint operation.
pub type Result<T> = std::result::Result<T, CheckpointError>;

/// The error of an operation, a participle, on the segment `id`.
pub(super) fn memory_error(
    what: &'static str,
    id: SegmentId,
) -> impl FnOnce(io::Error) -> CheckpointError {
    move |source| CheckpointError::Memory {
        what: format!("{what} the segment of rank {}", id.rank),
        source,
    }
}
