//! A look at a path: it has a segment of this user, or a damaged one, or neither.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use bytemuck::Zeroable;
use nix::fcntl::FlockArg;

use super::super::header::{Header, Identity};
use super::super::hold::{unlink, unlink_locked};
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
    /// What is at `path`, unless it is a link, no file, or of another user. What the
    /// system refuses to look at may be anything.
    pub fn at(path: &Path) -> Result<Option<Self>> {
        Self::look(path).map_err(|error| refused("looking at", path, error))
    }

    fn look(path: &Path) -> io::Result<Option<Self>> {
        let mut options = OpenOptions::new();
        // Opens no device and waits for nobody.
        options.read(true).custom_flags(libc::O_PATH | libc::O_NOFOLLOW);
        let handle = match options.open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let meta = handle.metadata()?;
        if !meta.is_file() || meta.uid() != host::user_id() {
            return Ok(None);
        }
        let flaw = match (meta.mode() & 0o7777, meta.nlink()) {
            (0o600, 1) => None,
            (0o600, names) => Some(format!("it has {names} names (hard links)")),
            (mode, _) => Some(format!("its mode is {mode:03o}, not 600")),
        };
        Ok(Some(Self { handle, flaw, bytes: meta.len() }))
    }

    /// Opens it for reading and writing.
    fn open(&self) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).open(self.same())
    }

    /// The very same file, whatever its path leads to by now.
    fn same(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.handle.as_raw_fd()))
    }

    /// The segment that it is, if `path` is that of one of its name.
    pub fn segment(&self, path: &Path) -> Result<Option<(File, Identity)>> {
        match self.flaw {
            Some(_) => Ok(None),
            None => self.read(path).map_err(|error| refused("reading", path, error)),
        }
    }

    /// As [`Own::segment`], whatever the system says of the file; an error says
    /// nothing of what it is.
    fn read(&self, path: &Path) -> io::Result<Option<(File, Identity)>> {
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

    /// Removes it, unless a process holds it, the path leads elsewhere by now, or it
    /// is a segment that `stays`: looked at when it is locked, since its creator may
    /// have been at work until then.
    pub fn remove_unused(&self, path: &Path, stays: fn(&Identity) -> bool) -> Result<bool> {
        let opened = self.open();
        let is_shut = opened.as_ref().is_err_and(|e| e.kind() == ErrorKind::PermissionDenied);
        let file = if is_shut { self.force_open() } else { opened };
        let file = file.map_err(|error| refused("opening", path, error))?;
        let Ok(file) = lock(file, FlockArg::LockExclusiveNonblock) else { return Ok(false) };
        let now = if is_shut { None } else { Self::at(path)? };
        let segment = now.map_or(Ok(None), |now| now.segment(path))?;
        match segment.is_some_and(|(_, identity)| stays(&identity)) {
            true => Ok(false),
            // Held until it is gone: who waits for it looks for its name anew.
            false => unlink_locked(&file, path),
        }
    }

    /// Opens what not even its owner may open, which no segment is: its owner may
    /// change that, and nothing else is lost.
    fn force_open(&self) -> io::Result<File> {
        fs::set_permissions(self.same(), Permissions::from_mode(0o600))?;
        self.open()
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
    let own = Own::look(path).ok()??;
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
    match Own::at(path)? {
        // Another one may be there by now, and whole.
        Some(own) => own.remove_unused(path, |_| true),
        None => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{Files, Store};
    use super::*;

    #[test]
    fn what_has_become_whole_since_it_was_looked_at_stays() {
        let folder = tempfile::tempdir().unwrap();
        let store = Files::in_folder(folder.path());
        let name = SegmentName::new("run", "state", 0).unwrap();
        let path = folder.path().join(name.to_string());
        let new = store.begin(&name, 8).unwrap();
        let seen = Own::at(&path).unwrap().unwrap();
        assert!(!seen.segment(&path).unwrap().unwrap().1.is_ready);
        assert!(!seen.remove_unused(&path, |_| false).unwrap(), "its creator has it");
        drop(new.finish().unwrap());
        assert!(!seen.remove_unused(&path, |identity| identity.is_ready).unwrap());
        assert!(store.attach(&name).unwrap().is_some());
        assert!(seen.remove_unused(&path, |_| false).unwrap());
    }
}
