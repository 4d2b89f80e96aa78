//! A file whose header does not yet identify its segment.
//!
//! It has no name, so that the system frees it when its creator dies. On a file system that cannot
//! do that, its name identifies the creating process, and so when it is a [`Stub`].

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use nix::fcntl::{AT_FDCWD, AtFlags, FlockArg};

use super::super::stub::{Flaw, Stub, StubLocation};
use super::lock;
use crate::codec::checksum;
use skt_host::process::{self, ProcessId};

const PREFIX: &str = "skt-hpl-new.";

/// A new file that does not have the name of its segment yet. Dropping the draft removes its
/// provisional name, if it has one.
pub(crate) struct Draft {
    named: Option<PathBuf>,
}

impl Draft {
    /// Creates an empty file in `folder`, for this user alone.
    pub(crate) fn create(folder: &Path) -> io::Result<(File, Self)> {
        match options().custom_flags(libc::O_TMPFILE).open(folder) {
            Ok(file) => Ok((file, Self { named: None })),
            Err(error) if is_unknown(&error) => Self::create_named(folder),
            Err(error) => Err(error),
        }
    }

    /// Creates an empty file with a provisional name, on a file system where every file has a name.
    fn create_named(folder: &Path) -> io::Result<(File, Self)> {
        let path = folder.join(name_now());
        let file = options().create_new(true).open(&path)?;
        Ok((file, Self { named: Some(path) }))
    }

    /// Gives the file its name. Fails if that name exists.
    pub(crate) fn publish(&self, file: &File, path: &Path) -> io::Result<()> {
        match &self.named {
            Some(named) => fs::hard_link(named, path),
            None => {
                let open = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
                let follow = AtFlags::AT_SYMLINK_FOLLOW;
                Ok(nix::unistd::linkat(AT_FDCWD, &open, AT_FDCWD, path, follow)?)
            }
        }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(named) = &self.named {
            // A name that cannot be removed is a stub.
            let _ = fs::remove_file(named);
        }
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    options
}

/// Whether the error means that a file system, or a kernel, has no files without a name.
fn is_unknown(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR | libc::EINVAL))
}

/// A name that no other draft has or had: a number, the creating process, and a checksum of both.
fn name_now() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let text = format!("{PREFIX}{number}.{}", ProcessId::this().text());
    format!("{text}.{:016x}", checksum(text.as_bytes()))
}

/// The process that creates the file `name`, if that is the name of a draft.
fn creator(name: &str) -> Option<ProcessId> {
    let (text, sum) = name.rsplit_once('.')?;
    let (_number, process) = text.strip_prefix(PREFIX)?.split_once('.')?;
    (sum == format!("{:016x}", checksum(text.as_bytes()))).then(|| ProcessId::parse(process))?
}

/// The stub at `path`, if there is one of this user.
pub(crate) fn stub(path: &Path) -> Option<Stub> {
    let creator = creator(path.file_name()?.to_str()?)?;
    let file = options().custom_flags(libc::O_NOFOLLOW).open(path).ok()?;
    let meta = file.metadata().ok()?;
    if !meta.is_file() || meta.uid() != process::user_id() {
        return None;
    }
    Some(Stub {
        location: path.display().to_string(),
        bytes: meta.len(),
        in_use: lock(file, FlockArg::LockSharedNonblock).is_err(),
        creator_pid: creator.pid(),
        creator: creator.liveness(),
        created_unix_seconds: u64::try_from(meta.mtime()).unwrap_or(0),
        flaw: Flaw::Unnamed,
        place: StubLocation::File(path.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::process::Command;

    use super::*;
    use crate::store::{Files, Liveness, Store};

    #[test]
    fn a_file_without_a_name_is_given_one_once() {
        let folder = tempfile::tempdir().unwrap();
        for create in [Draft::create, Draft::create_named] {
            let path = folder.path().join("whole");
            let (file, draft) = create(folder.path()).unwrap();
            assert!(!path.exists());
            draft.publish(&file, &path).unwrap();
            drop(draft);
            let (other, draft) = create(folder.path()).unwrap();
            let refused = draft.publish(&other, &path).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
            assert_eq!(fs::metadata(&path).unwrap().ino(), file.metadata().unwrap().ino());
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
            drop(draft);
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no other name is left");
            fs::remove_file(path).unwrap();
        }
    }

    /// Not a test: a child process that dies with a draft in the folder that it is given.
    #[test]
    #[ignore = "runs as a child of the test below"]
    fn child_dies() {
        let Some(folder) = std::env::var_os("DRAFT_TEST_FOLDER") else { return };
        let draft = Draft::create_named(Path::new(&folder)).unwrap();
        // SAFETY: sends a signal to this process, as when the system kills it.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        drop(draft);
    }

    #[test]
    fn draft_of_a_dead_process_is_a_stub_and_lookalikes_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let store = Files::in_folder(folder.path());
        let (_, living) = Draft::create_named(folder.path()).unwrap();
        let living = living.named.clone().map(|path| (path, living)).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["child_dies", "--ignored"]).env("DRAFT_TEST_FOLDER", folder.path());
        let status = child.output().unwrap().status;
        assert!(!status.success(), "{status}");
        let stubs = store.stubs().unwrap();
        let dead: Vec<&Stub> = stubs.iter().filter(|stub| stub.is_dead()).collect();
        assert_eq!((stubs.len(), dead.len()), (2, 1), "{stubs:?}");
        let name = Path::new(&dead[0].location).file_name().unwrap().to_str().unwrap().to_owned();
        // A different name, a link and a folder that look like it are not ours.
        let near = name.replace("skt-hpl-new.0.", "skt-hpl-new.1.");
        fs::write(folder.path().join(&near), "keep").unwrap();
        fs::write(folder.path().join("skt-hpl-new.0"), "keep").unwrap();
        assert_eq!(store.stubs().unwrap(), stubs);
        assert_eq!(store.remove_dead_stubs().unwrap().len(), 1);
        symlink(folder.path().join(&near), folder.path().join(&name)).unwrap();
        assert_eq!(store.remove_dead_stubs().unwrap(), [], "a link");
        fs::remove_file(folder.path().join(&name)).unwrap();
        fs::create_dir(folder.path().join(&name)).unwrap();
        assert_eq!(store.remove_dead_stubs().unwrap(), [], "a folder");
        let left = store.stubs().unwrap();
        assert_eq!((left.len(), left[0].creator), (1, Liveness::Alive));
        assert_eq!(left[0].location, living.0.display().to_string());
        assert_eq!(store.list().unwrap(), []);
    }
}
