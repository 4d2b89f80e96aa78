//! The errors of stores, each with what to do about it.

use std::fmt::Display;
use std::io;
use std::path::PathBuf;

use skt_host::memory::address_limit_bytes;
use skt_host::units;

use super::SegmentName;

/// Why a store refuses an operation.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages describe the fields")]
pub enum StoreError {
    /// There is no kind of store of that name.
    #[error("unknown store `{0}`; one of {stores}", stores = super::STORES)]
    UnknownKind(String),
    /// The run id or the role is not legal in a name.
    #[error(
        "run id `{run}`, role `{role}`: the {what} must be letters, digits, `.`, `_` (and `-` in \
         a run id), at most 64 and 32 bytes, not empty"
    )]
    BadName { run: String, role: String, what: &'static str },
    #[error("{name}: {bytes} bytes; the size of a segment is a positive multiple of 8")]
    BadSize { name: SegmentName, bytes: usize },
    #[error("{name} exists already at {location}; `skt-hpl store clean` removes what is stale")]
    Exists { name: SegmentName, location: String },
    /// What is at a segment's place is not used, and not read either.
    #[error(
        "{location} is not used: {why}. Remove it, or have its owner do so, or take another run id \
         or store"
    )]
    Foreign { location: String, why: String },
    /// Another process is attached to the segment.
    #[error("{name} at {location} is in use by another process: is the run still active?")]
    InUse { name: SegmentName, location: String },
    /// The machine, or the limit of its container, does not have that much memory.
    #[error(
        "{name}: {} of memory are wanted, {} are available ({limit}): take a smaller N or more \
         nodes", units::bytes(*wanted_bytes), units::bytes(*available_bytes)
    )]
    NoMemory { name: SegmentName, wanted_bytes: u64, available_bytes: u64, limit: String },
    /// The file system does not have that much space.
    #[error(
        "{name}: {} are wanted in {}, {} are free: enlarge it (tmpfs: mount -o remount,size=...) \
         or use the store `sysv`", units::bytes(*wanted_bytes), folder.display(),
        units::bytes(*available_bytes)
    )]
    NoSpace { name: SegmentName, folder: PathBuf, wanted_bytes: u64, available_bytes: u64 },
    /// A limit of System V shared memory is too low.
    #[error("{name}: {limit} = {value}, {enough} is needed: sysctl -w {limit}={enough}")]
    Limit { name: SegmentName, limit: &'static str, value: u64, enough: u64 },
    /// The process may not map as much.
    #[error("{what}: {source}; its limit is {limit_bytes} bytes: raise it (ulimit -v)")]
    NoAddressSpace { what: String, source: io::Error, limit_bytes: u64 },
    #[error("listing {}: {source}; the folder of the segments must exist", folder.display())]
    NoFolder { folder: PathBuf, source: io::Error },
    /// The system refused for another reason.
    #[error("{what}: {source}")]
    System { what: String, source: io::Error },
}

impl StoreError {
    /// Whether the same call fails again until a limit, a setting or other users' memory changes;
    /// an attached process, in contrast, may detach at any time.
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Exists { .. } | Self::InUse { .. } => false,
            // The owner of this folder does not change without intervention.
            Self::System { source, .. } => source.kind() == io::ErrorKind::PermissionDenied,
            _ => true,
        }
    }

    /// Whether the folder of the segments cannot be used, as on a node that has lost its mount:
    /// without this node the same call may succeed.
    pub fn is_of_the_folder(&self) -> bool {
        matches!(self, Self::NoFolder { .. } | Self::System { .. })
    }

    pub(super) fn exists(name: &SegmentName, location: impl Into<String>) -> Self {
        Self::Exists { name: name.clone(), location: location.into() }
    }

    /// The error for a segment that was removed right after its creation.
    pub(super) fn robbed(name: &SegmentName, location: impl Display) -> Self {
        let what = format!(
            "{name}, just made at {location}, was removed by another process (`skt-hpl store clean \
             --force` does so): start again"
        );
        Self::system(what, io::ErrorKind::NotFound)
    }

    /// The error for `what`, a call that maps a segment, which the system refused with `source`.
    pub(super) fn unmapped(what: String, source: impl Into<io::Error>) -> Self {
        let source = source.into();
        let is_full = source.raw_os_error() == Some(libc::ENOMEM);
        match address_limit_bytes().filter(|_| is_full) {
            Some(limit_bytes) => Self::NoAddressSpace { what, source, limit_bytes },
            None => Self::System { what, source },
        }
    }

    /// The error for `what`, which the system has just refused: reads `errno`.
    pub(super) fn last(what: impl Into<String>) -> Self {
        Self::System { what: what.into(), source: io::Error::last_os_error() }
    }

    /// The error for `what`, which the system refused with `source`.
    pub(super) fn system(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::System { what: what.into(), source: source.into() }
    }
}
