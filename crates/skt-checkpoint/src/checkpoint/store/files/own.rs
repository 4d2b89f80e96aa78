//! What of this user's is at a path: a segment, or a damaged one.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use bytemuck::Zeroable;
use nix::fcntl::{Flock, FlockArg};

use super::super::header::{Header, Identity};
use super::super::host::{self, Liveness};
use super::super::stub::{Flaw, Place, Stub};
use super::super::{Result, SegmentName};
use super::{ELSEWHERE, lock, refused};

/// A regular file of this user.
pub struct Own {
    /// Open without any right to it: it may have none.
    handle: File,
    /// Why it is no segment, as far as the system says.
    flaw: Option<String>,
    bytes: u64,
}

impl Own {
    /// What is at `path`, unless it is a link, no file, or of another user.
    pub fn at(path: &Path) -> Option<Self> {
        let mut options = OpenOptions::new();
        // Opens no device and waits for nobody.
        options.read(true).custom_flags(libc::O_PATH | libc::O_NOFOLLOW);
        let handle = options.open(path).ok()?;
        let meta = handle.metadata().ok()?;
        if !meta.is_file() || meta.uid() != host::user_id() {
            return None;
        }
        let flaw = match (meta.mode() & 0o7777, meta.nlink()) {
            (0o600, 1) => None,
            (0o600, names) => Some(format!("it has {names} names (hard links)")),
            (mode, _) => Some(format!("its mode is {mode:03o}, not 600")),
        };
        Some(Self { handle, flaw, bytes: meta.len() })
    }

    /// Opens it for reading and writing.
    fn open(&self) -> std::io::Result<File> {
        OpenOptions::new().read(true).write(true).open(self.same())
    }

    /// The very same file, whatever its path leads to by now.
    fn same(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.handle.as_raw_fd()))
    }

    /// The segment that it is, if `path` is that of one of its name.
    pub fn segment(&self, path: &Path) -> Option<(File, Identity)> {
        self.read(path).ok()?.filter(|_| self.flaw.is_none())
    }

    /// As [`Own::segment`], whatever the system says of the file; an error says
    /// nothing of what it is.
    fn read(&self, path: &Path) -> std::io::Result<Option<(File, Identity)>> {
        let mut file = self.open()?;
        let mut header = Header::zeroed();
        match file.read_exact(bytemuck::bytes_of_mut(&mut header)) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        let identity = usize::try_from(self.bytes).ok().and_then(|bytes| header.identity(bytes));
        let is_named = |identity: &Identity| name_at(path).as_ref() == Some(&identity.name);
        Ok(identity.filter(is_named).map(|identity| (file, identity)))
    }

    /// Removes it, unless a process holds it or the path leads elsewhere by now.
    pub fn remove_unused(&self, path: &Path) -> Result<bool> {
        let file = self.open().or_else(|error| match error.kind() {
            // Its owner may change that, and nothing else is lost.
            ErrorKind::PermissionDenied => {
                fs::set_permissions(self.same(), Permissions::from_mode(0o600))?;
                self.open()
            }
            _ => Err(error),
        });
        let file = file.map_err(|error| refused("opening", path, error))?;
        match lock(file, FlockArg::LockExclusiveNonblock) {
            // Held until it is gone: who waits for it looks for its name anew.
            Ok(file) if is_at(&file, path) => unlink(path),
            _ => Ok(false),
        }
    }
}

/// Whether `path` leads to that very file.
pub fn is_at(file: &Flock<File>, path: &Path) -> bool {
    let (Ok(here), Ok(there)) = (file.metadata(), fs::symlink_metadata(path)) else { return false };
    (here.dev(), here.ino()) == (there.dev(), there.ino())
}

/// Takes a path away; false when another process was faster.
pub fn unlink(path: &Path) -> Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(refused("removing", path, error)),
    }
}

/// Name of the segment that belongs to a path, if there is one.
fn name_at(path: &Path) -> Option<SegmentName> {
    let text = path.file_name()?.to_str()?;
    let name = text.split_once(ELSEWHERE).map_or(text, |(name, _)| name);
    SegmentName::parse(name)
}

/// The file at the path of a segment, if it is none.
pub fn damaged(path: &Path) -> Option<Stub> {
    name_at(path)?;
    let own = Own::at(path)?;
    // What cannot be read at this moment is not damaged.
    if own.flaw.is_none() && own.read(path).ok()?.is_some() {
        return None;
    }
    let meta = own.handle.metadata().ok()?;
    // Gone since, by the hand of another process.
    if meta.nlink() == 0 {
        return None;
    }
    let file = own.open().ok();
    Some(Stub {
        location: path.display().to_string(),
        bytes: own.bytes,
        in_use: file.is_some_and(|file| lock(file, FlockArg::LockSharedNonblock).is_err()),
        creator_pid: 0,
        creator: Liveness::Unknown,
        created_unix_seconds: u64::try_from(meta.mtime()).unwrap_or(0),
        flaw: match own.flaw {
            // What it holds may be whole, and somebody has given it another name.
            Some(why) if meta.nlink() > 1 => Flaw::Doubtful(why),
            Some(why) => Flaw::Damaged(why),
            None => Flaw::Damaged("its first page is damaged, or of another name".into()),
        },
        place: Place::File(path.to_owned()),
    })
}

/// Frees a stub, as [`super::super::Store::remove_stub`].
pub fn remove_stub(stub: &Stub) -> Result<bool> {
    let Place::File(path) = &stub.place else { return Ok(false) };
    // By force, also what a process holds.
    if stub.in_use || stub.flaw == Flaw::Unnamed {
        return unlink(path);
    }
    match Own::at(path) {
        Some(own) => own.remove_unused(path),
        None => Ok(false),
    }
}
