//! Memory that is found where segments would be and is no segment: left by a death in the first
//! instants of a creation, damaged, or planted by another user.

use std::path::PathBuf;

use skt_host::process::Liveness;

/// Memory that no run can use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stub {
    /// The stub's location: `shmid 5, key 0x...` or a path.
    pub location: String,
    /// The stub's bytes.
    pub bytes: u64,
    /// Whether a process is attached.
    pub in_use: bool,
    /// The process that created it; 0 if unknown to the store.
    pub creator_pid: u32,
    /// Whether that process still runs, and so may be about to complete it.
    pub creator: Liveness,
    /// Time of its creation, in seconds since 1970.
    pub created_unix_seconds: u64,
    /// Why it is no segment.
    pub flaw: Flaw,
    /// Where the store finds it again.
    pub(super) place: StubLocation,
}

/// Why memory is no segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Flaw {
    /// The first page is not written yet; surely of this program and user.
    Unnamed,
    /// Surely of this program and user, but damaged in the described way.
    Damaged(String),
    /// Perhaps a damaged segment of this program: the user has to decide.
    Doubtful(String),
    /// A segment that claims to be this user's, but that the named other user has made.
    Planted(String),
}

/// Where a store finds a stub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StubLocation {
    /// Id of a System V segment.
    SysV(i32),
    File(PathBuf),
}

impl Stub {
    /// Whether it is surely of this user, and no process will ever complete or use it.
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
