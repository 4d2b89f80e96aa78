//! Why a checkpoint or a recovery fails.

use std::io;

use super::agree::Refusal;
use super::header::SegmentId;
use super::methods::Method;
use crate::comm::CommError;

/// Why a checkpoint or a recovery failed.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The job is ending: a rank died.
    #[error(transparent)]
    Comm(#[from] CommError),
    /// The job cannot go on from what was found.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The node's memory.
    #[error("{what} of rank {rank}'s segment ({bytes} bytes): {source}")]
    Memory {
        /// What was tried.
        what: &'static str,
        /// The rank whose segment it is.
        rank: usize,
        /// Its size, 0 where not known.
        bytes: usize,
        /// What the system said.
        source: io::Error,
    },
    /// The files of a level.
    #[error("{what} of level {level}: {source}")]
    Level {
        /// What was tried.
        what: &'static str,
        /// The level, as users know it.
        level: String,
        /// What the system said.
        source: io::Error,
    },
    /// Images of a method that has none.
    #[error("levels need method self, double or abft; this is {0}")]
    NoLevels(Method),
    /// The code does not reach to the group's size.
    #[error("a group of {members} with {parities} parities: {reason}")]
    Code {
        /// Members of the group.
        members: usize,
        /// Parities of a stripe.
        parities: usize,
        /// What the code said.
        reason: String,
    },
    /// Members cannot read each other's memory.
    #[error(
        "encoder `direct` needs all ranks of a group on one host, where each sees the segments of \
         the others; here some do not. Use `auto` or `ring`"
    )]
    NotDirect,
    /// The application's state, or the result of the run, does not fit into the
    /// header.
    #[error(
        "a state or result of {bytes} bytes; the header was made for {capacity} at most \
         (state_capacity_bytes)"
    )]
    StateTooLarge {
        /// Its size.
        bytes: usize,
        /// The room there is.
        capacity: usize,
    },
}

/// Result of a checkpoint operation.
pub type Result<T> = std::result::Result<T, CheckpointError>;

pub(super) fn memory_error(
    what: &'static str,
    id: SegmentId,
    bytes: usize,
) -> impl FnOnce(io::Error) -> CheckpointError {
    move |source| CheckpointError::Memory { what, rank: id.rank, bytes, source }
}
