//! What keeps a segment attached, and frees the very one that is held.
//!
//! A name may lead to another segment by now. So what is freed is what is held, and
//! not what is found under the name: a System V segment by its id, a file by a path
//! that leads to the file that is locked. Nobody takes the path away from under the
//! lock (but by force), so it stays as it was found until it is taken away.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::fcntl::Flock;

use super::{Result, StoreError};

/// What keeps a segment attached.
#[derive(Debug)]
pub enum Hold {
    /// A System V segment.
    SysV { shmid: i32 },
    /// A mapped file, locked for this process alone as long as it is open.
    File { path: PathBuf, file: Flock<File> },
}

impl Hold {
    /// Frees the segment; false when it is gone. The mapping stays.
    pub fn free(&self) -> Result<bool> {
        match self {
            Self::SysV { shmid } => remove_id(*shmid),
            Self::File { path, file } => unlink_locked(file, path),
        }
    }
}

/// Frees a System V segment; false when another process was faster.
pub fn remove_id(shmid: i32) -> Result<bool> {
    // SAFETY: a system call without memory of ours.
    if unsafe { libc::shmctl(shmid, libc::IPC_RMID, std::ptr::null_mut()) } == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error().raw_os_error() {
        Some(libc::EINVAL | libc::EIDRM) => Ok(false),
        _ => Err(StoreError::last(format!("shmctl(shmid {shmid}, IPC_RMID)"))),
    }
}

/// Whether `path` leads to that very file.
pub fn is_at(file: &Flock<File>, path: &Path) -> bool {
    let (Ok(here), Ok(there)) = (file.metadata(), fs::symlink_metadata(path)) else { return false };
    (here.dev(), here.ino()) == (there.dev(), there.ino())
}

/// Takes the path of a locked file away; false when it leads elsewhere.
pub fn unlink_locked(file: &Flock<File>, path: &Path) -> Result<bool> {
    if is_at(file, path) { unlink(path) } else { Ok(false) }
}

/// Takes a path away, whatever it leads to; false when another process was faster.
pub fn unlink(path: &Path) -> Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(StoreError::system(format!("removing {}", path.display()), error)),
    }
}
