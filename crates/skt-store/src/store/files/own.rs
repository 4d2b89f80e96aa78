//! Inspection of a path: whether it has a segment of this user, a damaged one, or neither.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use bytemuck::Zeroable;
use nix::fcntl::FlockArg;

use super::super::header::{Header, Identity};
use super::super::hold::{unlink, unlink_locked};
use super::super::stub::{Flaw, Stub, StubLocation};
use super::super::{Result, SegmentName};
use super::{ELSEWHERE, lock, refused};
use skt_host::process::{self, Liveness};

/// A regular file of this user.
pub(crate) struct Own {
    /// The file, open without any access rights: it may grant none.
    handle: File,
    /// Why it is no segment, judging by its mode and links.
    flaw: Option<String>,
    bytes: u64,
}

impl Own {
    /// The file at `path`; `None` for a link, another kind of entry, and other users' files. An
    /// error if the system refuses to inspect it: then it may be anything.
    pub(crate) fn at(path: &Path) -> Result<Option<Self>> {
        Self::inspect(path).map_err(|error| refused("looking at", path, error))
    }

    fn inspect(path: &Path) -> io::Result<Option<Self>> {
        let mut options = OpenOptions::new();
        // These flags open no device and wait for no process.
        options.read(true).custom_flags(libc::O_PATH | libc::O_NOFOLLOW);
        let handle = match options.open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let meta = handle.metadata()?;
        if !meta.is_file() || meta.uid() != process::user_id() {
            return Ok(None);
        }
        let flaw = match (meta.mode() & 0o7777, meta.nlink()) {
            (0o600, 1) => None,
            (0o600, names) => Some(format!("it has {names} names (hard links)")),
            (mode, _) => Some(format!("its mode is {mode:03o}, not 600")),
        };
        Ok(Some(Self { handle, flaw, bytes: meta.len() }))
    }

    /// Opens the file for reading and writing.
    fn open(&self) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).open(self.same())
    }

    /// A path to this very file, even if its name now leads to another one.
    fn same(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.handle.as_raw_fd()))
    }

    /// The segment in the file, if `path` belongs to the segment's name.
    pub(crate) fn segment(&self, path: &Path) -> Result<Option<(File, Identity)>> {
        match self.flaw {
            Some(_) => Ok(None),
            None => self.read(path).map_err(|error| refused("reading", path, error)),
        }
    }

    /// The segment in the file, without regard to its mode and links. An error leaves open what the
    /// file is.
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

    /// Removes the file. Returns false if a process holds it, if the path leads elsewhere by now,
    /// or if it is a segment for which `stays` holds: this is checked under the lock, because its
    /// creator may have been working on it until then.
    pub(crate) fn remove_unused(&self, path: &Path, stays: fn(&Identity) -> bool) -> Result<bool> {
        let opened = self.open();
        let is_shut = opened.as_ref().is_err_and(|e| e.kind() == ErrorKind::PermissionDenied);
        let file = if is_shut { self.force_open() } else { opened };
        let file = file.map_err(|error| refused("opening", path, error))?;
        let Ok(file) = lock(file, FlockArg::LockExclusiveNonblock) else { return Ok(false) };
        let now = if is_shut { None } else { Self::at(path)? };
        let segment = now.map_or(Ok(None), |now| now.segment(path))?;
        if segment.is_some_and(|(_, identity)| stays(&identity)) {
            Ok(false)
        } else {
            // Held until it is removed: a process that waits for it looks up its name again.
            unlink_locked(&file, path)
        }
    }

    /// Opens a file that not even its owner may open, which is never a segment: the owner may
    /// change the mode, and nothing else is lost.
    fn force_open(&self) -> io::Result<File> {
        fs::set_permissions(self.same(), Permissions::from_mode(0o600))?;
        self.open()
    }
}

/// The name of the segment that belongs to a path, if one does.
fn name_at(path: &Path) -> Option<SegmentName> {
    let text = path.file_name()?.to_str()?;
    let name = text.split_once(ELSEWHERE).map_or(text, |(name, _)| name);
    SegmentName::parse(name)
}

/// The file at the path of a segment, as a stub, if it is no segment.
pub(crate) fn damaged(path: &Path) -> Option<Stub> {
    name_at(path)?;
    let own = Own::inspect(path).ok()??;
    // A file that cannot be read at this moment is not damaged.
    if own.flaw.is_none() && own.read(path).ok()?.is_some() {
        return None;
    }
    let meta = own.handle.metadata().ok()?;
    // Another process has removed it in the meantime.
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
            // Its contents may be whole, and somebody has given it another name.
            Some(why) if meta.nlink() > 1 => Flaw::Doubtful(why),
            Some(why) => Flaw::Damaged(why),
            None => Flaw::Damaged("its first page is damaged, or of another name".into()),
        },
        place: StubLocation::File(path.to_owned()),
    })
}

/// Frees a stub that is a file; see [`super::super::Store::remove_stub`].
pub(crate) fn remove_stub(stub: &Stub) -> Result<bool> {
    let StubLocation::File(path) = &stub.place else { return Ok(false) };
    // Removed by force, even if a process holds it.
    if stub.in_use || stub.flaw == Flaw::Unnamed {
        return unlink(path);
    }
    match Own::at(path)? {
        // A different, whole file may be there by now.
        Some(own) => own.remove_unused(path, |_| true),
        None => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{Files, Store};
    use super::*;

    #[test]
    fn segment_completed_since_the_check_stays() {
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
