//! Images in a folder of a file system.
//!
//! ```text
//! FOLDER/skt-hpl-images.USER.RUN/t0.r0-63.a18f2c.77.e12
//!                                test, ranks, start (number and nonce), epoch
//! FOLDER/skt-hpl-images.USER.RUN/owner.00c0ffee00c0ffee
//!                                the job that has the folder (`owner`)
//! ```
//!
//! A run whose folder's name another user has taken is refused there. Files and folders of others
//! are ignored.
//!
//! The size of each slot is the size of its file divided by the number of its ranks. So each rank
//! sets the file to its full size before it writes.
//!
//! The folder of a run belongs to this user alone (0700). It is opened without following a symbolic
//! link and stays open, so that nothing another user does to its path later matters. A file is
//! created by one of its ranks (0600) and opened by the others, or was left by an earlier start; it
//! is written to only if it belongs to this user alone.

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
use nix::sys::stat::{FileStat, Mode, SFlag, fstatat, mkdirat};
use nix::sys::statvfs::fstatvfs;
use nix::unistd::{Uid, UnlinkatFlags, unlinkat};

use super::super::header::HeaderLayout;
use super::super::record::StartId;
use super::disk::{Disk, FileId, Generation, ImageFile, ImageId, Slot};
use super::format::{SealState, read_seal};

mod owner;
mod slot;
#[cfg(test)]
mod tests;

pub use owner::{FolderOwner, ImageJob, job_at_work};
use slot::OpenSlot;

const PREFIX: &str = "skt-hpl-images";
/// The folder of a run, as a level's disk.
#[derive(Debug)]
pub struct ImageFolder {
    path: PathBuf,
    run: OwnedFd,
    test: usize,
    /// The job that must own the folder whenever files are created or removed; `None` if the caller
    /// knows that no other job uses it.
    job: Option<u64>,
}

/// Who removes the images of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remover<'a> {
    /// The job with this number, see [`ImageFolder::open`].
    Job(Option<u64>),
    /// The supervisor of the run of this name, whose jobs have ended.
    Supervisor(&'a str),
    /// A user who knows that no job is at work.
    User,
}

fn refused(path: &Path, what: &str) -> io::Error {
    io::Error::new(ErrorKind::PermissionDenied, format!("{} {what}", path.display()))
}

fn open_folder<F: AsFd>(parent: F, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    Ok(openat(parent, name, flags, Mode::empty())?)
}

fn file_type(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> io::Error {
    let path = path.display().to_string();
    move |error| io::Error::new(error.kind(), format!("{path}: {error}"))
}

/// A person creates the level's folder, so the error names what to do if it does not exist.
fn at_parent(path: &Path) -> impl FnOnce(io::Error) -> io::Error {
    let shown = path.display().to_string();
    move |error| match error.kind() {
        ErrorKind::NotFound => {
            let text = format!("{shown} is not there: create it on each node that is to see it");
            io::Error::new(ErrorKind::NotFound, text)
        }
        kind => io::Error::new(kind, format!("{shown}: {error}")),
    }
}

fn folder_name(run: &str) -> String {
    format!("{PREFIX}.{}.{run}", Uid::effective())
}

impl ImageFolder {
    /// The path of the folder for the images of `run` in `parent`.
    pub fn path_of(parent: &Path, run: &str) -> PathBuf {
        parent.join(folder_name(run))
    }

    /// Opens the folder for the images of test `test` of `run` in `parent`, which must exist, or
    /// creates it. A folder that is another user's, can be used by others, or is a link is refused.
    ///
    /// `job` is a number that the ranks of a job share and no one else can guess. Files are created
    /// and removed only while that job owns the folder ([`FolderOwner`]); with `None` the caller
    /// knows that no other job uses it.
    pub fn open(parent: &Path, run: &str, test: usize, job: Option<u64>) -> io::Result<Self> {
        let above = File::open(parent).map_err(at_parent(parent))?;
        let name = folder_name(run);
        let path = parent.join(&name);
        match mkdirat(&above, name.as_str(), Mode::S_IRWXU) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(error) => return Err(at(&path)(error.into())),
        }
        let folder = folder_of(&above, parent, run, test)?;
        let folder = folder.ok_or_else(|| refused(&path, "is another user's"))?;
        // Its creator may have died before it was synced.
        above.sync_all()?;
        Ok(Self { job, ..folder })
    }

    /// `None` if this user has no such folder; an error when others can use it or it is a link.
    fn enter(above: &File, path: PathBuf, name: &str, test: usize) -> io::Result<Option<Self>> {
        let own = Uid::effective().as_raw();
        let run = match open_folder(above, name.as_ref()) {
            Ok(run) => run,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                let stat = fstatat(above, name, AtFlags::AT_SYMLINK_NOFOLLOW);
                return match stat.map(|stat| (stat.st_uid == own, file_type(&stat))) {
                    // Another user can give a file of this user a second name.
                    Ok((false, _) | (true, SFlag::S_IFREG)) | Err(Errno::ENOENT) => Ok(None),
                    Ok((true, SFlag::S_IFLNK)) => Err(refused(&path, "is a link, not a folder")),
                    _ => Err(at(&path)(error)),
                };
            }
        };
        let meta = File::from(run.try_clone()?).metadata()?;
        match meta.mode() & 0o077 {
            _ if meta.uid() != own => Ok(None),
            0 => Ok(Some(Self { path, run, test, job: None })),
            _ => Err(refused(&path, "can be used by others: its mode is not 0700")),
        }
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
            Errno::ELOOP => refused(&self.path.join(name), "is a link"),
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

/// The test and the file that a name denotes; `None` if it denotes none.
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
    /// The test of the run.
    pub test: usize,
    /// The start that wrote them, and their epoch.
    pub generation: Generation,
    /// Ranks that have a slot here, whether their image is whole or not.
    pub ranks: usize,
    /// Bytes of their files.
    pub bytes: u64,
    /// When the newest of them was last written to, in seconds since 1970.
    pub changed_unix_seconds: u64,
    /// The state of the application in one of them that is whole, if any is.
    pub state: Option<Vec<u8>>,
}

/// The names in `parent` of what look like folders of this user's runs, each with its run, sorted.
fn runs_in(parent: &Path) -> io::Result<Vec<(String, String)>> {
    let prefix = folder_name("");
    let mut runs = Vec::new();
    for entry in std::fs::read_dir(parent).map_err(at(parent))? {
        let name = entry.map_err(at(parent))?.file_name();
        let Some(name) = name.to_str() else { continue };
        let Some(run) = name.strip_prefix(&prefix) else { continue };
        runs.push((name.to_owned(), run.to_owned()));
    }
    runs.sort();
    Ok(runs)
}

/// All images of this user in `parent`, by run, test, start and epoch.
pub fn stored_images(parent: &Path) -> io::Result<Vec<StoredImages>> {
    let above = File::open(parent).map_err(at(parent))?;
    let mut all: BTreeMap<(String, usize, Generation), StoredImages> = BTreeMap::new();
    for (name, run) in runs_in(parent)? {
        let Some(mut folder) = ImageFolder::enter(&above, parent.join(&name), &name, 0)? else {
            continue;
        };
        let header = HeaderLayout::new(&run, 1, 0);
        for name in folder.names().map_err(at(&folder.path))? {
            let Some((test, file)) = parse_name(&name) else { continue };
            let FileId { generation, ranks } = file;
            folder.test = test;
            let state = match folder.seal_in(file, &header) {
                Some(SealState::Sealed(seal)) => Some(seal.record.state().to_vec()),
                Some(SealState::Choice(_)) => continue,
                _ => None,
            };
            let meta = match folder.file(&name, OFlag::O_RDONLY) {
                // The run may have removed it in the meantime.
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
                state: None,
            });
            images.state = images.state.take().or(state);
            images.ranks += ranks.count();
            images.bytes += meta.len();
            let changed_unix_seconds = u64::try_from(meta.mtime()).unwrap_or(0);
            images.changed_unix_seconds = images.changed_unix_seconds.max(changed_unix_seconds);
        }
    }
    Ok(all.into_values().collect())
}

/// The tests of a run of this user that have images in `parent`; none if the run has no folder.
pub fn tests_with_images(parent: &Path, run: &str) -> io::Result<BTreeSet<usize>> {
    let above = File::open(parent).map_err(at_parent(parent))?;
    let Some(folder) = folder_of(&above, parent, run, 0)? else { return Ok(BTreeSet::new()) };
    let names = folder.names().map_err(at(&folder.path))?;
    Ok(names.iter().filter_map(|name| Some(parse_name(name)?.0)).collect())
}

/// The state in complete images.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageState {
    /// The test of the run, and the start and the epoch of the images: later ones are greater.
    pub at: (usize, Generation),
    /// The state of the application.
    pub state: Vec<u8>,
}

/// The state in the newest complete images that a run of this user has in `parent`, of its latest
/// test; none if there are no such images.
pub fn newest_state(parent: &Path, run: &str) -> io::Result<Option<ImageState>> {
    let above = File::open(parent).map_err(at_parent(parent))?;
    let Some(mut folder) = folder_of(&above, parent, run, 0)? else { return Ok(None) };
    let names = folder.names().map_err(at(&folder.path))?;
    let mut all: Vec<_> = names.iter().filter_map(|name| parse_name(name)).collect();
    all.sort_unstable_by_key(|(test, file)| std::cmp::Reverse((*test, file.generation)));
    let header = HeaderLayout::new(run, 1, 0);
    for (test, file) in all {
        folder.test = test;
        if let Some(SealState::Sealed(seal)) = folder.seal_in(file, &header) {
            let at = (test, file.generation);
            return Ok(Some(ImageState { at, state: seal.record.state().to_vec() }));
        }
    }
    Ok(None)
}

/// The folder of a run in `parent`, which is open as `above`.
fn folder_of(
    above: &File,
    parent: &Path,
    run: &str,
    test: usize,
) -> io::Result<Option<ImageFolder>> {
    let name = folder_name(run);
    ImageFolder::enter(above, parent.join(&name), &name, test)
}

/// Removes all images of a run of this user in `parent`, of tests for which `is_meant` holds, and
/// the run's folder if nothing else is in it. Returns the number of images and their bytes (zeros
/// if the run has no folder), or the first error after all that can be removed is. Refuses the
/// folder of a job that `remover` does not name.
pub fn remove_images_of(
    parent: &Path,
    run: &str,
    remover: Remover,
    is_meant: impl Fn(usize) -> bool,
) -> io::Result<(usize, u64)> {
    let above = File::open(parent).map_err(at(parent))?;
    let Some(folder) = folder_of(&above, parent, run, 0)? else { return Ok((0, 0)) };
    folder.release_for(remover)?;
    let removed = folder.remove_images(&is_meant)?;
    remove_empty(&folder.path)?;
    above.sync_all().map_err(at(parent))?;
    Ok(removed)
}

/// The run's folder in `parent`, which is empty.
pub(crate) fn close_folder(parent: &Path, run: &str) -> io::Result<()> {
    let above = File::open(parent).map_err(at(parent))?;
    folder_of(&above, parent, run, 0)?.map_or(Ok(()), |folder| remove_empty(&folder.path))
}

/// Removes a folder if it is empty; another rank may be faster.
fn remove_empty(path: &Path) -> io::Result<()> {
    match std::fs::remove_dir(path) {
        Err(error)
            if matches!(error.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::NotFound) =>
        {
            Ok(())
        }
        removed => removed.map_err(at(path)),
    }
}

impl ImageFolder {
    fn seal_in(&self, file: FileId, header: &HeaderLayout) -> Option<SealState> {
        let read = |id: ImageId| read_seal(header, &mut *self.open(file, id.rank).ok()?).ok();
        let is_whole =
            |seal: &SealState| matches!(seal, SealState::Sealed(_) | SealState::Choice(_));
        file.images().filter_map(read).find(is_whole)
    }

    /// Of tests for which `is_meant` holds. Returns the number of images and their bytes.
    fn remove_images(&self, is_meant: &impl Fn(usize) -> bool) -> io::Result<(usize, u64)> {
        let (mut images, mut bytes, mut failed) = (0, 0, Ok(()));
        for name in self.names().map_err(at(&self.path))? {
            let of_test = parse_name(&name).filter(|(test, _)| is_meant(*test));
            let Some((_, FileId { ranks, .. })) = of_test else { continue };
            let stat = fstatat(&self.run, name.as_str(), AtFlags::AT_SYMLINK_NOFOLLOW);
            match unlinkat(&self.run, name.as_str(), UnlinkatFlags::NoRemoveDir) {
                Ok(()) => {
                    images += ranks.count();
                    bytes += stat.map_or(0, |stat| stat.st_size as u64);
                }
                // Another process removes them, too.
                Err(Errno::ENOENT) => {}
                Err(error) => failed = failed.and(Err(at(&self.path.join(&name))(error.into()))),
            }
        }
        failed.map(|()| (images, bytes))
    }
}

impl Disk for ImageFolder {
    fn list(&self) -> io::Result<Vec<FileId>> {
        let names = self.names().map_err(at(&self.path))?;
        let files = names.iter().filter_map(|name| parse_name(name));
        Ok(files.filter(|(test, _)| *test == self.test).map(|(_, file)| file).collect())
    }

    fn create(&self, generation: Generation, slot: &Slot) -> io::Result<Box<dyn ImageFile>> {
        self.guard()?;
        let &Slot { rank, ranks, bytes } = slot;
        let name = self.name(FileId { generation, ranks });
        let file = self.file(&name, OFlag::O_RDWR | OFlag::O_CREAT)?;
        let (path, all_bytes) = (self.path.join(name), ranks.count() as u64 * bytes);
        check_shared(&file, all_bytes).map_err(at(&path))?;
        let mut slot = OpenSlot::new(file, path, ranks, rank, bytes);
        if let Err(error) = slot.reserve(all_bytes) {
            // If the file system cannot free the slot's space now, removing the file will.
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
            return Err(refused(&path, "is no file of this user"));
        }
        let slot_bytes = meta.len() / id.ranks.count() as u64;
        Ok(Box::new(OpenSlot::new(file, path, id.ranks, rank, slot_bytes)))
    }

    fn remove(&self, file: FileId) -> io::Result<()> {
        self.guard()?;
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

/// Refuses an existing file unless it is as one of its ranks has created it: this user's alone,
/// with no bytes yet or `all_bytes`.
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
