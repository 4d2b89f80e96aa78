//! Images in a folder of a file system.
//!
//! ```text
//! FOLDER/skt-hpl-images.USER.RUN/t0.r0-63.a18f2c.77.e12
//!                                test, ranks, start (number and nonce), epoch
//! ```
//!
//! The slots of a file are as large as its size divided by its ranks. So each rank gives it
//! its whole size before it writes.
//!
//! The folder of a run is this user's alone (0700), is entered without following a
//! symbolic link, and is held open: what another user does to its path later changes
//! nothing. Files are made by one of their ranks (0600) and opened by the others, or are those
//! of an earlier start; they are written to only where they are this user's alone.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, fstatat, mkdirat};
use nix::sys::statvfs::fstatvfs;
use nix::unistd::{Uid, UnlinkatFlags, unlinkat};

use super::super::record::StartId;
use super::disk::Generation;
use super::disk::{Disk, FileId, ImageFile, Slot};
use super::failed::NotOwn;

mod slot;
#[cfg(test)]
mod tests;

use slot::OpenSlot;

/// What the names of the folders of runs begin with.
const PREFIX: &str = "skt-hpl-images";
/// The folder of a run.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    run: OwnedFd,
    test: usize,
}

fn no_own(path: &Path, what: &str) -> io::Error {
    let text = format!("{} {what}", path.display());
    io::Error::new(ErrorKind::PermissionDenied, NotOwn(text))
}

/// Opens a folder without following a link at its end.
fn open_folder<F: AsFd>(parent: F, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    Ok(openat(parent, name, flags, Mode::empty())?)
}

/// Says where an error was met.
fn at(path: &Path) -> impl FnOnce(io::Error) -> io::Error {
    let path = path.display().to_string();
    move |error| io::Error::new(error.kind(), format!("{path}: {error}"))
}

/// Name of the folder of a run.
fn folder_name(run: &str) -> String {
    format!("{PREFIX}.{}.{run}", Uid::effective())
}

impl Folder {
    /// Where the images of `run` in `parent` are.
    pub fn path_of(parent: &Path, run: &str) -> PathBuf {
        parent.join(folder_name(run))
    }

    /// The images of test `test` of `run` in `parent`, which must exist.
    ///
    /// # Errors
    /// As the system has it; [`NotOwn`] when the folder of the run is not this user's alone.
    pub fn open(parent: &Path, run: &str, test: usize) -> io::Result<Self> {
        let above = File::open(parent).map_err(at(parent))?;
        let name = folder_name(run);
        let path = parent.join(&name);
        match mkdirat(&above, name.as_str(), Mode::S_IRWXU) {
            // Who has made it may have died before it was synced.
            Ok(()) | Err(Errno::EEXIST) => above.sync_all()?,
            Err(error) => return Err(at(&path)(error.into())),
        }
        Self::enter(&above, path, &name, test)
    }

    /// The folder `name` of a run in `above`, which is there.
    fn enter(above: &File, path: PathBuf, name: &str, test: usize) -> io::Result<Self> {
        let run = match open_folder(above, name.as_ref()) {
            Err(error) if error.kind() == ErrorKind::NotADirectory => {
                return Err(no_own(&path, "is a link or a file, not a folder of this program"));
            }
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                let stat = fstatat(above, name, AtFlags::AT_SYMLINK_NOFOLLOW);
                return Err(match stat {
                    Ok(stat) if stat.st_uid != Uid::effective().as_raw() => {
                        no_own(&path, "is another user's")
                    }
                    _ => at(&path)(error),
                });
            }
            run => run.map_err(at(&path))?,
        };
        let meta = File::from(run.try_clone()?).metadata()?;
        if meta.uid() != Uid::effective().as_raw() {
            return Err(no_own(&path, "is another user's"));
        }
        if meta.mode() & 0o077 != 0 {
            return Err(no_own(&path, "can be used by others: its mode is not 0700"));
        }
        Ok(Self { path, run, test })
    }

    fn name(&self, file: FileId) -> String {
        let FileId { generation, ranks } = file;
        let Generation { start: StartId { number, nonce }, epoch } = generation;
        format!("t{}.r{ranks}.a{number:x}.{nonce:x}.e{epoch}", self.test)
    }

    fn file(&self, name: &str, flags: OFlag) -> io::Result<File> {
        let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        let failed = |error: Errno| match error {
            Errno::ELOOP => no_own(&self.path.join(name), "is a link"),
            _ => at(&self.path.join(name))(error.into()),
        };
        Ok(File::from(openat(&self.run, name, flags, mode).map_err(failed)?))
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        let copy = open_folder(&self.run, ".".as_ref())?;
        for entry in Dir::from_fd(copy)?.iter() {
            names.extend(entry?.file_name().to_str().ok().map(str::to_owned));
        }
        Ok(names)
    }
}

/// Test and file that a name is of; `None` where it is none.
fn parse_name(name: &str) -> Option<(usize, FileId)> {
    let mut words = name.split('.');
    let mut word = |prefix: &str| words.next()?.strip_prefix(prefix);
    let test = word("t")?.parse().ok()?;
    let ranks = word("r")?.parse().ok()?;
    let number = u64::from_str_radix(word("a")?, 16).ok()?;
    let nonce = u64::from_str_radix(word("")?, 16).ok()?;
    let epoch = word("e")?.parse().ok()?;
    let generation = Generation { start: StartId { number, nonce }, epoch };
    words.next().is_none().then_some((test, FileId { generation, ranks }))
}

/// The images of one epoch of a run in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredImages {
    /// The run.
    pub run: String,
    /// Test of the run.
    pub test: usize,
    /// The start that wrote them, and the epoch that they are of.
    pub generation: Generation,
    /// Ranks that have a slot here, with an image that is whole or not.
    pub ranks: usize,
    /// Their bytes.
    pub bytes: u64,
    /// When the last of them was written to, in Unix time.
    pub changed_unix_seconds: u64,
}

/// The runs of this user that have a folder in `parent`, in order of their names.
fn runs_in(parent: &Path) -> io::Result<Vec<String>> {
    let prefix = folder_name("");
    let mut runs = Vec::new();
    for entry in std::fs::read_dir(parent).map_err(at(parent))? {
        let name = entry.map_err(at(parent))?.file_name();
        runs.extend(name.to_str().and_then(|name| name.strip_prefix(&prefix)).map(str::to_owned));
    }
    runs.sort();
    Ok(runs)
}

/// All images of this user in `parent`, by run, test, start and epoch.
///
/// # Errors
/// As the system has it; when the folder of a run is not this user's alone.
pub fn stored_images(parent: &Path) -> io::Result<Vec<StoredImages>> {
    let above = File::open(parent).map_err(at(parent))?;
    let mut all: BTreeMap<(String, usize, Generation), StoredImages> = BTreeMap::new();
    for run in runs_in(parent)? {
        let folder = Folder::enter(&above, Folder::path_of(parent, &run), &folder_name(&run), 0)?;
        for name in folder.names().map_err(at(&folder.path))? {
            let Some((test, FileId { generation, ranks })) = parse_name(&name) else { continue };
            let meta = match folder.file(&name, OFlag::O_RDONLY) {
                // A run may have removed it meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                file => file?.metadata().map_err(at(&folder.path))?,
            };
            let key = (run.clone(), test, generation);
            let images = all.entry(key).or_insert_with(|| StoredImages {
                run: run.clone(),
                test,
                generation,
                ranks: 0,
                bytes: 0,
                changed_unix_seconds: 0,
            });
            images.ranks += ranks.count();
            images.bytes += meta.len();
            let changed_unix_seconds = u64::try_from(meta.mtime()).unwrap_or(0);
            images.changed_unix_seconds = images.changed_unix_seconds.max(changed_unix_seconds);
        }
    }
    Ok(all.into_values().collect())
}

/// The tests of a run of this user that have images in `parent`.
///
/// # Errors
/// As [`stored_images`]. None where the run has no folder.
pub fn tests_with_images(parent: &Path, run: &str) -> io::Result<BTreeSet<usize>> {
    let above = File::open(parent).map_err(at(parent))?;
    let Some(folder) = folder_of(&above, parent, run)? else { return Ok(BTreeSet::new()) };
    let names = folder.names().map_err(at(&folder.path))?;
    Ok(names.iter().filter_map(|name| Some(parse_name(name)?.0)).collect())
}

/// The folder of a run in `parent`, which is open as `above`; `None` where it has none.
fn folder_of(above: &File, parent: &Path, run: &str) -> io::Result<Option<Folder>> {
    match Folder::enter(above, Folder::path_of(parent, run), &folder_name(run), 0) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        folder => folder.map(Some),
    }
}

/// Removes all images of a run of this user in `parent`, of tests that `is_meant`, and its folder,
/// if nothing else is in it. Returns how many there were, and their bytes.
///
/// # Errors
/// As [`stored_images`]; the first, when all that can be removed is. None where the run has no
/// folder.
pub fn remove_images_of(
    parent: &Path,
    run: &str,
    is_meant: impl Fn(usize) -> bool,
) -> io::Result<(usize, u64)> {
    let above = File::open(parent).map_err(at(parent))?;
    let Some(folder) = folder_of(&above, parent, run)? else { return Ok((0, 0)) };
    let path = folder.path.clone();
    let (mut images, mut bytes, mut failed) = (0, 0, Ok(()));
    for name in folder.names().map_err(at(&path))? {
        let of_test = parse_name(&name).filter(|(test, _)| is_meant(*test));
        let Some((_, FileId { ranks, .. })) = of_test else { continue };
        let stat = fstatat(&folder.run, name.as_str(), AtFlags::AT_SYMLINK_NOFOLLOW);
        match unlinkat(&folder.run, name.as_str(), UnlinkatFlags::NoRemoveDir) {
            Ok(()) => {
                images += ranks.count();
                bytes += stat.map_or(0, |stat| stat.st_size as u64);
            }
            // Another process removes them, too.
            Err(Errno::ENOENT) => {}
            Err(error) => failed = failed.and(Err(at(&path.join(&name))(error.into()))),
        }
    }
    failed?;
    match std::fs::remove_dir(&path) {
        Err(error)
            if matches!(error.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::NotFound) => {}
        removed => removed.map_err(at(&path))?,
    }
    above.sync_all().map_err(at(parent))?;
    Ok((images, bytes))
}

impl Disk for Folder {
    fn list(&self) -> io::Result<Vec<FileId>> {
        let names = self.names().map_err(at(&self.path))?;
        let files = names.iter().filter_map(|name| parse_name(name));
        Ok(files.filter(|(test, _)| *test == self.test).map(|(_, file)| file).collect())
    }

    fn create(&self, generation: Generation, slot: &Slot) -> io::Result<Box<dyn ImageFile>> {
        let &Slot { rank, ranks, bytes } = slot;
        let name = self.name(FileId { generation, ranks });
        let file = self.file(&name, OFlag::O_RDWR | OFlag::O_CREAT)?;
        let (path, all_bytes) = (self.path.join(name), ranks.count() as u64 * bytes);
        check_shared(&file, all_bytes).map_err(at(&path))?;
        let mut slot = OpenSlot::new(file, path, ranks, rank, bytes);
        if let Err(error) = slot.reserve(all_bytes) {
            // Where its room cannot be given back, it is when the file goes.
            let _ = slot.discard();
            return Err(error);
        }
        Ok(Box::new(slot))
    }

    fn open(&self, id: FileId, rank: usize) -> io::Result<Box<dyn ImageFile>> {
        let name = self.name(id);
        let (file, path) = (self.file(&name, OFlag::O_RDONLY)?, self.path.join(name));
        let meta = file.metadata().map_err(at(&path))?;
        if !is_own(&meta) {
            return Err(no_own(&path, "is no file of this user"));
        }
        let slot_bytes = meta.len() / id.ranks.count() as u64;
        Ok(Box::new(OpenSlot::new(file, path, id.ranks, rank, slot_bytes)))
    }

    fn remove(&self, file: FileId) -> io::Result<()> {
        let name = self.name(file);
        match unlinkat(&self.run, name.as_str(), UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(error) => Err(at(&self.path.join(name))(error.into())),
        }
    }

    fn sync_names(&self) -> io::Result<()> {
        File::from(self.run.try_clone()?).sync_all().map_err(at(&self.path))
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let stat = fstatvfs(&self.run).map_err(|error| at(&self.path)(error.into()))?;
        Ok(stat.blocks_available() as u64 * stat.fragment_size() as u64)
    }
}

fn is_own(meta: &Metadata) -> bool {
    meta.is_file() && meta.uid() == Uid::effective().as_raw()
}

/// A file that is there is written to only as another of its ranks has made it: it is this
/// user's alone, and has no bytes yet or `all_bytes`.
fn check_shared(file: &File, all_bytes: u64) -> io::Result<()> {
    let meta = file.metadata()?;
    let is_alone = is_own(&meta) && meta.mode() & 0o077 == 0 && meta.nlink() == 1;
    let why = match meta.len() {
        _ if !is_alone => "it is not of this user alone".to_owned(),
        bytes if bytes == 0 || bytes == all_bytes => return Ok(()),
        bytes => format!("it has {bytes} bytes, and its ranks need {all_bytes}"),
    };
    Err(io::Error::new(ErrorKind::PermissionDenied, format!("{why}; remove it")))
}
