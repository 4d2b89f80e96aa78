//! What is at the places of segments and is none: what a death in the first
//! instants of a creation leaves, what is damaged, what another user has planted.

use std::path::PathBuf;

use super::host::Liveness;

/// Memory that no run can use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stub {
    /// Where it is: `shmid 5, key 0x...` or a path.
    pub location: String,
    /// Its bytes.
    pub bytes: u64,
    /// Whether a process is attached.
    pub in_use: bool,
    /// Process that created it, 0 where the store does not tell.
    pub creator_pid: u32,
    /// Whether that process still runs, and so may be about to complete it.
    pub creator: Liveness,
    /// When it was created, seconds since 1970.
    pub created_unix_seconds: u64,
    /// Why it is no segment.
    pub flaw: Flaw,
    /// For the store to find it again.
    pub(super) place: Place,
}

/// Why memory is no segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Flaw {
    /// Its first page is not written yet; surely of this program and user.
    Unnamed,
    /// Surely of this program and user, and no longer whole: how.
    Damaged(String),
    /// Perhaps a damaged one of this program: the user has to say so.
    Doubtful(String),
    /// It claims to be a segment of ours, and another user has made it: who.
    Planted(String),
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
    /// Whether it is surely ours, and nobody will ever complete or use it.
    pub fn is_dead(&self) -> bool {
        match self.flaw {
            Flaw::Unnamed => !self.in_use && self.creator == Liveness::Dead,
            Flaw::Damaged(_) => !self.in_use,
            Flaw::Doubtful(_) | Flaw::Planted(_) => false,
        }
    }

    /// What is wrong with it.
    pub fn why(&self) -> &str {
        match &self.flaw {
            Flaw::Unnamed => "without a name",
            Flaw::Damaged(why) | Flaw::Doubtful(why) | Flaw::Planted(why) => why,
        }
    }
}
