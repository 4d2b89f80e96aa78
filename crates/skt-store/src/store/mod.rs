//! Memory that outlives the process.
//!
//! A [`Segment`] is a page-aligned range of bytes with a name. Dropping it detaches it;
//! [`Segment::remove`] and [`Store::remove`] free it. There are three backends:
//!
//! | store | memory | bound by |
//! |---|---|---|
//! | [`SysV`] (default) | System V, huge pages on request | `kernel.shmmax`, `kernel.shmall` |
//! | [`Files::posix`] | POSIX shared memory | size of /dev/shm |
//! | [`Files::in_folder`] | mapped files on tmpfs, hugetlbfs or an SSD | the file system |
//!
//! Each segment begins with a page that identifies it (`header`). Memory of another user, or with
//! other rights than 0600, is never read, listed or removed. A segment is attached by one process
//! at a time. docs/store.md has the details.

mod error;
mod files;
mod header;
pub mod host;
mod segment;
mod sysv;

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use error::StoreError;
pub use files::Files;
pub use host::{Host, StoreHazard, SysvLimits};
pub use segment::{NewSegment, Segment};
pub use skt_host::process::Liveness;
pub use sysv::SysV;

/// The result of a store's operation.
pub type Result<T> = std::result::Result<T, StoreError>;

/// How often [`Store::list`] probes segments that seem in use again, and how long it waits before
/// each probe.
const PROBE_ROUNDS: u32 = 4;
const PROBE_PAUSE: Duration = Duration::from_millis(5);

/// How often, and how far apart, an operation retries while another process briefly probes a
/// segment.
const ATTACH_TRIES: u32 = 20;
const ATTACH_PAUSE: Duration = Duration::from_millis(5);

/// What removes segments between two starts of a run, for messages about segments that are gone.
pub const CLEANERS: &str = "a restart of the host, or a cleaner of segments that no process is \
    attached to (ipcrm in a Slurm epilog or a cron job, systemd's RemoveIPC). Have it spare \
    segments of skt-hpl, or keep images on disks";

/// Longest run id, in bytes.
pub const RUN_BYTES_MAX: usize = 64;
/// Longest role, in bytes.
pub(crate) const ROLE_BYTES_MAX: usize = 32;

/// The prefix of every name.
const PREFIX: &str = "skt-hpl-";

/// The name of a segment: its run, its part of a rank's state, and its logical rank.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentName {
    run: String,
    role: String,
    rank: u32,
}

impl SegmentName {
    /// The name for `run`, `role` and `rank`.
    ///
    /// # Errors
    /// [`StoreError::BadName`] unless `run` and `role` consist of letters, digits, `.`, `_` and `-`
    /// (no `-` in a role), are not empty, and have at most [`RUN_BYTES_MAX`] and `ROLE_BYTES_MAX`
    /// bytes.
    pub fn new(run: &str, role: &str, rank: u32) -> Result<Self> {
        let is_plain = |text: &str, bytes_max, also: char| {
            let is_legal = |c: char| c.is_ascii_alphanumeric() || "._".contains(c) || c == also;
            (1..=bytes_max).contains(&text.len()) && text.chars().all(is_legal)
        };
        let what = if !is_plain(run, RUN_BYTES_MAX, '-') {
            "run id"
        } else if !is_plain(role, ROLE_BYTES_MAX, '.') {
            "role"
        } else {
            return Ok(Self { run: run.to_owned(), role: role.to_owned(), rank });
        };
        Err(StoreError::BadName { run: run.into(), role: role.into(), what })
    }

    /// Reads the text that `Display` writes.
    fn parse(text: &str) -> Option<Self> {
        let (rest, rank) = text.strip_prefix(PREFIX)?.rsplit_once('-')?;
        let (run, role) = rest.rsplit_once('-')?;
        let name = Self::new(run, role, rank.parse().ok()?).ok()?;
        // `parse` would read `+7` and `07` as 7, too.
        (name.to_string() == text).then_some(name)
    }

    /// The id of the run.
    pub fn run(&self) -> &str {
        &self.run
    }

    /// The part of a rank's state.
    pub fn role(&self) -> &str {
        &self.role
    }

    /// The logical rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }
}

impl fmt::Display for SegmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}-{}-{}", self.run, self.role, self.rank)
    }
}

/// What a store knows of a segment without attaching it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentInfo {
    /// The segment's name.
    pub name: SegmentName,
    /// The segment's location: `shmid 5, key 0x...` or a path.
    pub location: String,
    /// Bytes of data, without the header page.
    pub bytes: usize,
    /// Whether its creation is complete.
    pub is_ready: bool,
    /// Whether a process is attached.
    pub in_use: bool,
    /// The number of attached processes, if the store knows it.
    pub attached: Option<u64>,
    /// The process that created it.
    pub creator_pid: u32,
    /// Whether that process still runs.
    pub creator: Liveness,
    /// Time of its creation, in seconds since 1970.
    pub created_unix_seconds: u64,
}

/// Stages of a creation, at which tests let the creator die.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The segment exists, and is not identified yet.
    Made,
    /// The segment is identified; none of its memory is reserved yet.
    Named,
    /// This many bytes are reserved, of those that must be before mapping.
    Reserving(usize),
    /// Everything that must be reserved before mapping is reserved.
    Reserved,
}

/// Identifies the memory of a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreId {
    /// Equal for two processes that see the same segments, whatever the names of their hosts.
    pub memory: String,
    /// The kernel through which this process sees the memory.
    pub kernel: String,
}

/// Memory for segments. All operations return the errors of the system.
pub trait Store {
    /// Identifies the memory of the store. If machines may share the folder's file system, a small
    /// file is created there that distinguishes the folder from others.
    fn id(&self) -> Result<StoreId>;

    /// [`Store::begin`], with calls of `at` at the stages of the creation.
    fn begin_at(&self, name: &SegmentName, bytes: usize, at: &dyn Fn(Stage)) -> Result<NewSegment>;

    /// Starts to create a segment of `bytes` zero bytes; [`NewSegment::finish`] completes it.
    /// Checks the system's limits and the free memory. An incomplete segment of that name that no
    /// process holds is replaced.
    ///
    /// # Errors
    /// [`StoreError::Exists`] when a complete segment of that name exists; typed errors for lack of
    /// memory, space or permission.
    fn begin(&self, name: &SegmentName, bytes: usize) -> Result<NewSegment> {
        self.begin_at(name, bytes, &|_| ())
    }

    /// Creates a segment of `bytes` zero bytes, with all of its memory reserved.
    fn create(&self, name: &SegmentName, bytes: usize) -> Result<Segment> {
        self.begin(name, bytes)?.finish()
    }

    /// Attaches the segment of that name; `None` if there is no complete one.
    ///
    /// # Errors
    /// [`StoreError::InUse`] when another process is attached to it.
    fn attach(&self, name: &SegmentName) -> Result<Option<Segment>>;

    /// Copies the start of a complete segment's data to `into`, as many bytes as there are and fit,
    /// without attaching the segment. Returns the size of the data, or `None` if there is no such
    /// segment.
    fn peek(&self, name: &SegmentName, into: &mut [u8]) -> Result<Option<usize>>;

    /// Frees the segment of that name, attached or not. Returns whether there was one. An attached
    /// process keeps the memory until it detaches, but no longer holds the name; a process frees
    /// its own segment with [`Segment::remove`] instead.
    fn remove(&self, name: &SegmentName) -> Result<bool>;

    /// Frees the segment of that name if no process is attached to it. Returns whether it did.
    fn remove_unused(&self, name: &SegmentName) -> Result<bool>;

    /// Frees the incomplete segment of that name, unless its creator still works on it. Returns
    /// whether it did. A complete segment stays.
    fn remove_dead(&self, name: &SegmentName) -> Result<bool>;

    /// All segments of this user, sorted by name, as they are at this instant. A segment may seem
    /// in use because another process has attached it to read its header; [`Store::list`] waits for
    /// that to pass.
    fn list_once(&self) -> Result<Vec<SegmentInfo>>;

    /// All segments of this user, sorted by name.
    fn list(&self) -> Result<Vec<SegmentInfo>> {
        let mut list = self.list_once()?;
        for _ in 0..PROBE_ROUNDS {
            if !list.iter().any(|info| info.in_use) {
                break;
            }
            std::thread::sleep(PROBE_PAUSE);
            let again = self.list_once()?;
            let used_before = |name: &SegmentName| {
                list.iter().any(|info: &SegmentInfo| info.in_use && info.name == *name)
            };
            let settle = |mut info: SegmentInfo| {
                info.in_use = info.in_use && used_before(&info.name);
                info
            };
            list = again.into_iter().map(settle).collect();
        }
        Ok(list)
    }

    /// What on this machine may remove the segments.
    fn hazards(&self) -> Vec<StoreHazard>;
}

/// The kinds of stores, as a user names them.
pub const STORES: &str = "sysv, sysv-huge, posix, file:FOLDER";

/// A kind of store, as a user names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreKind {
    /// `sysv`, or `sysv-huge` with huge pages.
    SysV {
        /// Whether new segments ask for huge pages.
        huge_pages: bool,
    },
    /// `posix`.
    Posix,
    /// `file:FOLDER`.
    Files(PathBuf),
}

impl StoreKind {
    /// The folder of the segments, if they are files.
    pub(crate) fn folder(&self) -> Option<&Path> {
        match self {
            Self::SysV { .. } => None,
            Self::Posix => Some(Path::new(files::POSIX)),
            Self::Files(folder) => Some(folder),
        }
    }

    /// Opens the store.
    pub fn open(&self) -> Box<dyn Store + Send + Sync> {
        match self {
            Self::SysV { huge_pages } => Box::new(SysV::new(*huge_pages)),
            Self::Posix => Box::new(Files::posix()),
            Self::Files(folder) => Box::new(Files::in_folder(folder)),
        }
    }
}

impl FromStr for StoreKind {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<Self> {
        match (text, text.strip_prefix("file:")) {
            ("sysv", _) => Ok(Self::SysV { huge_pages: false }),
            ("sysv-huge", _) => Ok(Self::SysV { huge_pages: true }),
            ("posix", _) => Ok(Self::Posix),
            (_, Some(folder)) if !folder.is_empty() => Ok(Self::Files(folder.into())),
            _ => Err(StoreError::UnknownKind(text.to_owned())),
        }
    }
}

impl fmt::Display for StoreKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SysV { huge_pages: false } => f.write_str("sysv"),
            Self::SysV { huge_pages: true } => f.write_str("sysv-huge"),
            Self::Posix => f.write_str("posix"),
            Self::Files(folder) => write!(f, "file:{}", folder.display()),
        }
    }
}

/// Removes an incomplete segment of that name, unless a process is working on it. `find` returns
/// whether the segment of the name is complete, and its location; `remove_dead` tries to remove it.
fn make_way(
    name: &SegmentName,
    find: impl Fn() -> Result<Option<(bool, String)>>,
    remove_dead: impl Fn() -> Result<bool>,
) -> Result<()> {
    for tries_left in (0..ATTACH_TRIES).rev() {
        match find()? {
            None => break,
            Some((is_ready, location)) if is_ready || tries_left == 0 => {
                return Err(StoreError::Exists { name: name.clone(), location });
            }
            Some(_) if remove_dead()? => break,
            Some(_) => std::thread::sleep(ATTACH_PAUSE),
        }
    }
    Ok(())
}

/// Refuses a size that is not a positive number of whole doubles, or is too large.
fn check_bytes(name: &SegmentName, bytes: usize) -> Result<()> {
    let largest = isize::MAX as usize - header::PAGE_BYTES - (1 << 30);
    if bytes == 0 || !bytes.is_multiple_of(8) || bytes > largest {
        return Err(StoreError::BadSize { name: name.clone(), bytes });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_and_distinguished() {
        let name = SegmentName::new("a-1.b_C", "state", 7).unwrap();
        assert_eq!(name.to_string(), "skt-hpl-a-1.b_C-state-7");
        assert_eq!(SegmentName::parse("skt-hpl-a-1.b_C-state-7"), Some(name));
        for text in ["", "skt-hpl-", "skt-hpl-run-state", "skt-hpl-run-state-07", "a-run-state-7"] {
            assert_eq!(SegmentName::parse(text), None, "{text}");
        }
        let long = "x".repeat(RUN_BYTES_MAX + 1);
        for (run, role) in
            [("", "a"), ("a", ""), ("a/b", "a"), ("a", "b-c"), ("a b", "a"), (&long, "a")]
        {
            let refused = SegmentName::new(run, role, 0);
            assert!(matches!(refused, Err(StoreError::BadName { .. })), "{run} {role}");
        }
    }

    #[test]
    fn kinds_parse_and_print() {
        for text in STORES.split(", ") {
            assert_eq!(text.parse::<StoreKind>().unwrap().to_string(), text);
        }
        for text in ["", "file:", "tape"] {
            assert!(matches!(text.parse::<StoreKind>(), Err(StoreError::UnknownKind(_))));
        }
    }
}
