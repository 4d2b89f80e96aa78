//! What can go wrong with segments, and what to do then.

use std::fmt::Display;
use std::io;
use std::path::PathBuf;

use super::SegmentName;

/// Why a store refuses.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No store of that name.
    #[error("unknown store `{0}`; one of {stores}", stores = super::STORES)]
    UnknownKind(String),
    /// A name that cannot be one.
    #[error(
        "run id `{run}`, role `{role}`: the {what} must be letters, digits, `.`, `_` (and `-` in \
         a run id), at most 64 and 32 bytes, not empty"
    )]
    BadName {
        /// The run id.
        run: String,
        /// The role.
        role: String,
        /// Which of them is wrong.
        what: &'static str,
    },
    /// A size that cannot be one.
    #[error("{name}: {bytes} bytes; the size of a segment is a positive multiple of 8")]
    BadSize {
        /// The segment.
        name: SegmentName,
        /// Bytes asked for.
        bytes: usize,
    },
    /// There is one already.
    #[error("{name} exists already at {location}; `skt-hpl store clean` removes what is stale")]
    Exists {
        /// The segment.
        name: SegmentName,
        /// Where it is.
        location: String,
    },
    /// Every key that the name leads to is taken by other segments.
    #[error(
        "{name}: all {tried} System V keys for it are taken by other segments, the first of them \
         by {holder}: have that user, or the administrator, remove it (ipcrm -m ID; `ipcs -m` \
         lists all), or use the store `posix`"
    )]
    NoKey {
        /// The segment.
        name: SegmentName,
        /// Keys tried.
        tried: usize,
        /// Which segment has the first of them, and whose it is.
        holder: String,
    },
    /// A folder's token cannot be made.
    #[error(
        "{}: no name for the file that tells this folder from others ({last} is of no use: {why}); \
         remove it, or have its owner do so, or use a folder of your own", folder.display()
    )]
    NoToken {
        /// The folder.
        folder: PathBuf,
        /// The last name tried.
        last: String,
        /// What is there.
        why: String,
    },
    /// Another process is attached.
    #[error("{name} at {location} is in use by another process: is the run still going on?")]
    InUse {
        /// The segment.
        name: SegmentName,
        /// Where it is.
        location: String,
    },
    /// The machine, or the limit of its container, has not that much memory.
    #[error(
        "{name}: {wanted_bytes} bytes of memory are wanted, {available_bytes} are available \
         ({limit}): take a smaller N or more nodes"
    )]
    NoMemory {
        /// The segment.
        name: SegmentName,
        /// Bytes still to be reserved.
        wanted_bytes: u64,
        /// Bytes that can be had.
        available_bytes: u64,
        /// What sets the bound: `MemAvailable`, or a control group's file.
        limit: String,
    },
    /// The file system has not that much space.
    #[error(
        "{name}: {wanted_bytes} bytes are wanted in {}, {available_bytes} are free: enlarge it \
         (tmpfs: mount -o remount,size=...) or use the store `sysv`", folder.display()
    )]
    NoSpace {
        /// The segment.
        name: SegmentName,
        /// The folder.
        folder: PathBuf,
        /// Bytes asked for.
        wanted_bytes: u64,
        /// Bytes free.
        available_bytes: u64,
    },
    /// A limit of System V shared memory is too low.
    #[error("{name}: {wanted} wanted, but {limit} = {value}; raise it: sysctl -w {limit}={enough}")]
    Limit {
        /// The segment.
        name: SegmentName,
        /// The setting, e.g. `kernel.shmmax`.
        limit: &'static str,
        /// Its value, in its own unit.
        value: u64,
        /// A value that would do.
        enough: u64,
        /// What was asked for.
        wanted: String,
    },
    /// The system refused otherwise.
    #[error("{what}: {source}")]
    System {
        /// The call and what it was about.
        what: String,
        /// What the system says.
        source: io::Error,
    },
}

impl StoreError {
    /// Whether the same call fails again until a limit, a setting or other users'
    /// memory is changed; who is attached may go by itself.
    pub fn is_permanent(&self) -> bool {
        !matches!(self, Self::Exists { .. } | Self::InUse { .. } | Self::System { .. })
    }

    /// A segment just made is no longer there.
    pub(super) fn robbed(name: &SegmentName, location: impl Display) -> Self {
        let what = format!(
            "{name}, just made at {location}, was removed by another process (`skt-hpl store clean \
             --force` does so): start again"
        );
        Self::system(what, io::ErrorKind::NotFound)
    }

    /// The system refused `what` just now: reads `errno`.
    pub(super) fn last(what: impl Into<String>) -> Self {
        Self::System { what: what.into(), source: io::Error::last_os_error() }
    }

    /// The system refused `what` with this error.
    pub(super) fn system(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::System { what: what.into(), source: source.into() }
    }
}
