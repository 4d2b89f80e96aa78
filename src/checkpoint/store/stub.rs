//! What a death in the first instants of a creation leaves: memory of ours that
//! does not say yet whose it is.

use std::path::PathBuf;

use super::host::Liveness;

/// A segment without its first page, surely of this program and user: how, each
/// store knows. No run needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stub {
    /// Where it is: `shmid 5, key 0x...` or a path.
    pub location: String,
    /// Its bytes.
    pub bytes: u64,
    /// Whether a process is attached.
    pub in_use: bool,
    /// Process that created it.
    pub creator_pid: u32,
    /// Whether that process still runs, and so may be about to complete it.
    pub creator: Liveness,
    /// When it was created, seconds since 1970.
    pub created_unix_seconds: u64,
    /// For the store to find it again.
    pub(super) place: Place,
}

/// Where a store finds a stub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// Id of a System V segment.
    SysV(i32),
    /// A file.
    File(PathBuf),
}

impl Stub {
    /// Whether nobody will ever complete it.
    pub fn is_dead(&self) -> bool {
        !self.in_use && self.creator == Liveness::Dead
    }
}
