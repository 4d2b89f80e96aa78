//! The id of a folder that machines may share: a small file with a random number, created once and
//! kept, which distinguishes the folder from others.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use super::super::{Result, StoreError};
use super::draft::Draft;
use super::{random, refused};
use skt_host::process;

/// The number of names to try, since files of other users may have some.
const NAMES: usize = 16;

/// The id of `folder`, created if there is none; the same for every process of this user.
///
/// # Errors
/// When the folder cannot be written, or other users have taken all names.
pub(crate) fn get_or_create(folder: &Path) -> Result<String> {
    let mut last = (String::new(), String::new());
    for number in 0..NAMES {
        let name = format!("skt-hpl.store.{}.{number}", process::user_id());
        let path = folder.join(&name);
        // The file is whole from the start: it gets its name after it has been written.
        match make(folder, &path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(refused("writing", &path, error));
            }
            _ => {}
        }
        match read(&path) {
            Ok(id) => return Ok(id),
            Err(why) => last = (name, why.to_string()),
        }
    }
    let (last, why) = last;
    Err(StoreError::NoFolderId { folder: folder.to_owned(), last, why })
}

fn make(folder: &Path, path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path).is_ok() {
        return Err(ErrorKind::AlreadyExists.into());
    }
    let (mut file, draft): (File, _) = Draft::create(folder)?;
    file.write_all(random().map_err(io::Error::other)?.as_bytes())?;
    draft.publish(&file, path)
}

fn read(path: &Path) -> io::Result<String> {
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    let (meta, user) = (file.metadata()?, process::user_id());
    let mut text = String::new();
    file.take(64).read_to_string(&mut text)?;
    if !meta.is_file() || meta.uid() != user || meta.mode() & 0o7777 != 0o600 {
        let why = format!("owner {}, mode {:03o}", meta.uid(), meta.mode() & 0o7777);
        return Err(io::Error::other(why));
    }
    match text.len() {
        36 => Ok(text),
        _ => Err(io::Error::other("it is damaged")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_get_the_same_id_and_another_folder_another() {
        let folder = tempfile::tempdir().unwrap();
        let ids: Vec<String> = std::thread::scope(|scope| {
            let ask = || get_or_create(folder.path()).unwrap();
            let all = [(); 8].map(|()| scope.spawn(ask));
            all.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(ids.iter().all(|id| *id == ids[0] && id.len() == 36), "{ids:?}");
        let other = tempfile::tempdir().unwrap();
        assert_ne!(get_or_create(other.path()).unwrap(), ids[0]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn invalid_ids_are_skipped_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let name = |number| format!("skt-hpl.store.{}.{number}", process::user_id());
        fs::write(folder.path().join(name(0)), "short").unwrap();
        std::os::unix::fs::symlink("/etc/hostname", folder.path().join(name(1))).unwrap();
        let id = get_or_create(folder.path()).unwrap();
        assert_eq!(get_or_create(folder.path()).unwrap(), id);
        assert_eq!(fs::read_to_string(folder.path().join(name(2))).unwrap(), id);
        assert_eq!(fs::read(folder.path().join(name(0))).unwrap(), b"short");
    }
}
