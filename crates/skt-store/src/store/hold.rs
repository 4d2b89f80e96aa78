//! The attachment to a segment, by which exactly the held segment is freed.
//!
//! The name of an attached segment may come to lead to another segment. So a segment is freed by
//! what is held, not by what its name leads to: a System V segment by its id, a file by a path that
//! leads to the locked file. No one removes the path of a locked file (except by force), so the
//! path stays valid until the holder removes it.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::fcntl::Flock;

use super::{Result, StoreError};

/// The attachment to a segment.
#[derive(Debug)]
pub(crate) enum Hold {
    /// A System V segment, by its id.
    SysV { shmid: i32 },
    /// A mapped file, locked for this process alone while it is open.
    File { path: PathBuf, file: Flock<File> },
}

impl Hold {
    /// Frees the segment; false if it is gone already. The mapping stays.
    pub(crate) fn free(&self) -> Result<bool> {
        match self {
            Self::SysV { shmid } => remove_id(*shmid),
            Self::File { path, file } => unlink_locked(file, path),
        }
    }
}

/// Frees a System V segment; false if another process was faster.
pub(crate) fn remove_id(shmid: i32) -> Result<bool> {
    // SAFETY: a system call that touches no memory of this process.
    if unsafe { libc::shmctl(shmid, libc::IPC_RMID, std::ptr::null_mut()) } == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error().raw_os_error() {
        Some(libc::EINVAL | libc::EIDRM) => Ok(false),
        _ => Err(StoreError::last(format!("shmctl(shmid {shmid}, IPC_RMID)"))),
    }
}

/// Whether `path` leads to this very file.
pub(crate) fn is_at(file: &Flock<File>, path: &Path) -> bool {
    let (Ok(here), Ok(there)) = (file.metadata(), fs::symlink_metadata(path)) else { return false };
    (here.dev(), here.ino()) == (there.dev(), there.ino())
}

/// Removes the path of a locked file; false if it leads elsewhere.
pub(crate) fn unlink_locked(file: &Flock<File>, path: &Path) -> Result<bool> {
    if is_at(file, path) { unlink(path) } else { Ok(false) }
}

/// Removes a path, whatever it leads to; false if another process was faster.
pub(crate) fn unlink(path: &Path) -> Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(StoreError::system(format!("removing {}", path.display()), error)),
    }
}
