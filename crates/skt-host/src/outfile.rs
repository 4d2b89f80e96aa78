//! Files that the program writes in folders that others may write to as well.
//!
//! A symbolic link, file, hard link or FIFO that another user has planted there must not redirect
//! our output. The rule is that of the kernel for folders like /tmp (`fs.protected_symlinks`,
//! `protected_regular` and `protected_hardlinks` in proc(5)), but it holds whatever those settings
//! are, and also without the sticky bit: in a folder that others may write to, an existing file
//! must belong to this user, to the folder's owner or to root. A user's own links are followed, and
//! so are `/dev/stdout` and the like.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, readlinkat};
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};

/// The largest number of links that are followed, as in the kernel.
const LINKS_MAX: usize = 40;
/// Mode bits for write permission of the group and of all others.
const OTHERS_WRITE: u32 = 0o022;

/// Opens `path` for writing from its beginning, and creates it if it does not exist.
pub fn create(path: &Path) -> io::Result<File> {
    let (path, there) = find(path)?;
    let Some(there) = there else { return create_new(&path) };
    let metadata = there.metadata()?;
    if metadata.is_file() && metadata.nlink() > 1 && shared_owner(&path)?.is_some() {
        let why = "it has a second name (hard link), in a folder that others may write to";
        return Err(refused(&path, why));
    }
    // Opens the very file that was checked, whatever has its name by now.
    let file =
        OpenOptions::new().write(true).open(format!("/proc/self/fd/{}", there.as_raw_fd()))?;
    if metadata.is_file() {
        file.set_len(0)?;
    }
    Ok(file)
}

/// Creates `path`, which must not exist, not even as a link.
pub fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// Opens `path` as [`create`] does, and writes all of `bytes`.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    create(path)?.write_all(bytes)
}

/// Creates `path` as [`create_new`] does, and writes all of `bytes`. What a full disk leaves of the
/// new file is removed: it would be in the way of the next try.
pub fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    create_new(path)?.write_all(bytes).inspect_err(|_| drop(fs::remove_file(path)))
}

/// The regular file that [`replace`] must replace for `path`: `path` itself, or the file that a
/// link there leads to, so that the link is not replaced.
pub fn target(path: &Path) -> io::Result<PathBuf> {
    let (path, there) = find(path)?;
    match there.map(|file| file.metadata()).transpose()? {
        Some(metadata) if !metadata.is_file() => {
            Err(io::Error::other("it is there and no regular file"))
        }
        _ => Ok(path),
    }
}

/// Writes a new file under a random name in the folder of `path`, then renames it to `path`, so
/// that a reader never sees half of it. Its permissions are `mode` less the umask. With `sync`, it
/// is on the disk before it is renamed.
pub fn replace(
    path: &Path,
    mode: u32,
    sync: bool,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let name = path.file_name().ok_or_else(|| io::Error::other("it names no file"))?;
    let mut prefix = OsStr::new(".").to_owned();
    prefix.push(name);
    let mut builder = tempfile::Builder::new();
    builder.prefix(&prefix).suffix(".tmp");
    // An error of the builder's own `tempfile_in` would contain the random name.
    let open = |path: &Path| OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let mut new = builder.make_in(parent(path), open)?;
    let mut out = BufWriter::new(new.as_file_mut());
    write(&mut out)?;
    out.flush()?;
    drop(out);
    if sync {
        new.as_file().sync_all()?;
    }
    new.persist(path)?;
    Ok(())
}

/// Follows the links at the end of `path`, as far as the rule allows. Returns the path after them,
/// and what is there, opened without access; `None` if nothing is.
fn find(path: &Path) -> io::Result<(PathBuf, Option<File>)> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let mut options = OpenOptions::new();
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let there = match options.read(true).custom_flags(flags.bits()).open(&path) {
            Ok(there) => there,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok((path, None));
            }
            Err(error) => return Err(error),
        };
        let metadata = there.metadata()?;
        let trusted = |owner| [0, owner, nix::unistd::geteuid().as_raw()];
        if shared_owner(&path)?.is_some_and(|owner| !trusted(owner).contains(&metadata.uid())) {
            let why = format!(
                "it belongs to user {}, in a folder that others may write to",
                metadata.uid()
            );
            return Err(refused(&path, &why));
        }
        if !metadata.is_symlink() {
            return Ok((path, Some(there)));
        }
        // Links of /proc, such as the target of /dev/stdout, lead to what is open and not to the
        // path that they read as.
        if fstatfs(&there)?.filesystem_type() == PROC_SUPER_MAGIC {
            let mut options = OpenOptions::new();
            let there = options.read(true).custom_flags(OFlag::O_PATH.bits()).open(&path)?;
            return Ok((path, Some(there)));
        }
        let to = readlinkat(&there, "")?;
        path = parent(&path).join(to);
    }
    Err(io::Error::from_raw_os_error(libc::ELOOP))
}

/// The owner of the folder of a file, if others may write to it.
fn shared_owner(path: &Path) -> io::Result<Option<u32>> {
    let folder = fs::metadata(parent(path))?;
    Ok((folder.mode() & OTHERS_WRITE != 0).then(|| folder.uid()))
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) => Path::new("."),
        None => Path::new("/"),
    }
}

fn refused(path: &Path, why: &str) -> io::Error {
    let text = format!("{} is not written to: {why}; remove it or name another", path.display());
    io::Error::new(io::ErrorKind::PermissionDenied, text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, lchown, symlink};

    use tempfile::TempDir;

    use super::*;

    const NOBODY: u32 = 65534;

    /// A folder that all may write to, with `mode`, and in it a folder of this user's own.
    fn shared(mode: u32) -> (TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
        let own = folder.path().join("own");
        fs::create_dir(&own).unwrap();
        fs::set_permissions(&own, fs::Permissions::from_mode(0o700)).unwrap();
        (folder, own)
    }

    /// Gives a file to another user, as if that user had planted it; returns false if this process
    /// may not.
    fn plant(path: &Path) -> bool {
        if !nix::unistd::geteuid().is_root() {
            // Past the capture of a passing test's output, as tests/skipped does it.
            let why = b"skipped: outfile: only root can make files of another user\n";
            let _ = std::io::stderr().write_all(why);
            return false;
        }
        lchown(path, Some(NOBODY), None).unwrap();
        true
    }

    fn text(path: &Path) -> String {
        fs::read_to_string(path).unwrap()
    }

    fn replace_with(path: &Path, text: &str) -> io::Result<()> {
        replace(&target(path)?, 0o666, true, |out| out.write_all(text.as_bytes()))
    }

    #[test]
    fn new_and_old_files_are_written_and_own_links_followed() {
        for mode in [0o755, 0o777, 0o1777] {
            let (folder, own) = shared(mode);
            for put in [|path: &Path, text: &str| write(path, text.as_bytes()), replace_with] {
                let (file, link) = (own.join("file"), folder.path().join("link"));
                put(&file, "longer than the next").unwrap();
                put(&file, "next").unwrap();
                assert_eq!(text(&file), "next");
                // A chain of links, relative and absolute, to a file that does not exist yet.
                symlink("own/second", &link).unwrap();
                symlink(own.join("third"), own.join("second")).unwrap();
                put(&link, "new").unwrap();
                put(&link, "by a link").unwrap();
                assert_eq!(text(&own.join("third")), "by a link");
                assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
                for path in [&link, &own.join("second"), &own.join("third"), &file] {
                    fs::remove_file(path).unwrap();
                }
                let left = fs::read_dir(&own).unwrap().count();
                assert_eq!(left, 0, "a temporary file is left");
            }
        }
    }

    #[test]
    fn files_planted_by_another_user_are_refused() {
        for mode in [0o777, 0o1777, 0o770] {
            let (folder, own) = shared(mode);
            let (victim, link) = (own.join("victim"), folder.path().join("report"));
            fs::write(&victim, "dear").unwrap();
            symlink(&victim, &link).unwrap();
            if !plant(&link) {
                return;
            }
            // A link of our own to it is refused as well.
            symlink(&link, own.join("link")).unwrap();
            for path in [&link, &own.join("link")] {
                for refused in [write(path, b"evil"), replace_with(path, "evil")] {
                    let message = refused.unwrap_err().to_string();
                    assert!(message.contains("it belongs to user 65534"), "{message}");
                }
            }
            assert_eq!(text(&victim), "dear");
            fs::remove_file(&link).unwrap();
            // A report must not go into a file that another user can read and change.
            fs::write(&link, "his").unwrap();
            plant(&link);
            assert!(write(&link, b"ours").is_err() && replace_with(&link, "ours").is_err());
            assert_eq!(text(&link), "his");
            // A FIFO of another user would block us.
            fs::remove_file(&link).unwrap();
            nix::unistd::mkfifo(&link, nix::sys::stat::Mode::from_bits_truncate(0o666)).unwrap();
            plant(&link);
            assert!(write(&link, b"ours").is_err());
        }
    }

    #[test]
    fn links_of_others_are_followed_in_their_folders() {
        let (folder, own) = shared(0o755);
        symlink("own/file", folder.path().join("link")).unwrap();
        if plant(&folder.path().join("link")) {
            write(&folder.path().join("link"), b"text").unwrap();
            assert_eq!(text(&own.join("file")), "text");
        }
        // The owner of a folder may do anything in it.
        let (folder, own) = shared(0o777);
        symlink("own/file", folder.path().join("link")).unwrap();
        if plant(&folder.path().join("link")) && plant(folder.path()) {
            write(&folder.path().join("link"), b"text").unwrap();
            assert_eq!(text(&own.join("file")), "text");
        }
    }

    #[test]
    fn hard_links_are_not_written_in_shared_folders() {
        let (folder, own) = shared(0o1777);
        let (victim, second) = (own.join("victim"), folder.path().join("report"));
        fs::write(&victim, "dear").unwrap();
        fs::hard_link(&victim, &second).unwrap();
        let message = write(&second, b"evil").unwrap_err().to_string();
        assert!(message.contains("second name"), "{message}");
        // A file that replaces the name leaves the other name alone.
        replace_with(&second, "ours").unwrap();
        assert_eq!((text(&victim), text(&second)), ("dear".into(), "ours".into()));
        fs::hard_link(&victim, own.join("third")).unwrap();
        write(&own.join("third"), b"both").unwrap();
        assert_eq!(text(&victim), "both", "no one else writes there");
    }

    #[test]
    fn devices_and_pipes_are_written_to() {
        write(Path::new("/dev/null"), b"text").unwrap();
        assert!(target(Path::new("/dev/null")).is_err());
        let (_folder, own) = shared(0o755);
        let fifo = own.join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
        let reader = {
            let fifo = fifo.clone();
            std::thread::spawn(move || fs::read_to_string(fifo).unwrap())
        };
        write(&fifo, b"text").unwrap();
        assert_eq!(reader.join().unwrap(), "text");
        // Like /dev/stdout, a link of /proc to what is open.
        let (read, write_end) = std::io::pipe().unwrap();
        let link = own.join("stdout");
        symlink(format!("/proc/self/fd/{}", write_end.as_raw_fd()), &link).unwrap();
        write(&link, b"text").unwrap();
        drop(write_end);
        assert_eq!(io::read_to_string(read).unwrap(), "text");
    }

    #[test]
    fn link_cycles_end_and_no_file_is_created_through_a_link() {
        let (_folder, own) = shared(0o755);
        symlink("b", own.join("a")).unwrap();
        symlink("a", own.join("b")).unwrap();
        assert!(write(&own.join("a"), b"text").is_err());
        symlink("nothing", own.join("c")).unwrap();
        assert!(create_new(&own.join("c")).is_err());
    }

    #[test]
    fn a_writer_that_fails_leaves_what_was_there() {
        let (_folder, own) = shared(0o755);
        let file = own.join("file");
        write(&file, b"old").unwrap();
        let failed = replace(&file, 0o666, false, |out| {
            out.write_all(b"half")?;
            Err(io::Error::other("full"))
        });
        assert_eq!((failed.unwrap_err().to_string(), text(&file)), ("full".into(), "old".into()));
        assert_eq!(fs::read_dir(&own).unwrap().count(), 1);
    }
}
