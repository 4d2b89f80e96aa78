//! Images in a folder of a file system.
//!
//! ```text
//! FOLDER/skt-hpl-images.USER.RUN/t0.r3.a18f2c.77.e12
//!                                test, rank, start (number and nonce), epoch
//! ```
//!
//! The folder of a run is this user's alone (0700), is entered without following a
//! symbolic link, and is held open: what another user does to its path later changes
//! nothing. Files are made new (`O_EXCL`, 0600), or are those of this user.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, PosixFadviseAdvice, openat, posix_fadvise, posix_fallocate};
use nix::sys::stat::{Mode, mkdirat};
use nix::sys::statvfs::fstatvfs;
use nix::unistd::{Uid, UnlinkatFlags, unlinkat};

use super::super::record::StartId;
use super::choose::Generation;
use super::disk::{Disk, ImageFile, ImageId};

/// What the names of the folders of runs begin with.
const PREFIX: &str = "skt-hpl-images";
/// Bytes that are written to a file before they are sent to the disk and leave the page
/// cache: an image is as large as the matrix, and memory is full of that.
const FLUSH_BYTES: u64 = 256 << 20;

/// The folder of a run.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    run: OwnedFd,
    test: usize,
}

fn no_own(path: &Path, what: &str) -> io::Error {
    let text = format!("{} {what}", path.display());
    io::Error::new(ErrorKind::PermissionDenied, text)
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
    /// As the system has it; when the folder of the run is not this user's alone.
    pub fn open(parent: &Path, run: &str, test: usize) -> io::Result<Self> {
        let above = File::open(parent).map_err(at(parent))?;
        let name = folder_name(run);
        let path = parent.join(&name);
        match mkdirat(&above, name.as_str(), Mode::S_IRWXU) {
            Ok(()) => above.sync_all()?,
            Err(Errno::EEXIST) => {}
            Err(error) => return Err(at(&path)(error.into())),
        }
        Self::enter(&above, path, &name, test)
    }

    /// The folder `name` of a run in `above`, which is there.
    fn enter(above: &File, path: PathBuf, name: &str, test: usize) -> io::Result<Self> {
        let run = open_folder(above, name.as_ref()).map_err(at(&path))?;
        let meta = File::from(run.try_clone()?).metadata()?;
        if meta.uid() != Uid::effective().as_raw() {
            return Err(no_own(&path, "is another user's"));
        }
        if meta.mode() & 0o077 != 0 {
            return Err(no_own(&path, "can be used by others: its mode is not 0700"));
        }
        Ok(Self { path, run, test })
    }

    fn name(&self, id: ImageId) -> String {
        let Generation { start: StartId { number, nonce }, epoch } = id.generation;
        format!("t{}.r{}.a{number:x}.{nonce:x}.e{epoch}", self.test, id.rank)
    }

    fn file(&self, name: &str, flags: OFlag) -> io::Result<File> {
        let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        let failed = |error: Errno| at(&self.path.join(name))(error.into());
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

/// Test and image that a name is of; `None` where it is none.
fn parse_name(name: &str) -> Option<(usize, ImageId)> {
    let mut words = name.split('.');
    let mut word = |prefix: &str| words.next()?.strip_prefix(prefix);
    let test = word("t")?.parse().ok()?;
    let rank = word("r")?.parse().ok()?;
    let number = u64::from_str_radix(word("a")?, 16).ok()?;
    let nonce = u64::from_str_radix(word("")?, 16).ok()?;
    let epoch = word("e")?.parse().ok()?;
    let generation = Generation { start: StartId { number, nonce }, epoch };
    words.next().is_none().then_some((test, ImageId { generation, rank }))
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
    /// Ranks that have one here, whole or not.
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
            let Some((test, ImageId { generation, .. })) = parse_name(&name) else { continue };
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
            images.ranks += 1;
            images.bytes += meta.len();
            let changed_unix_seconds = u64::try_from(meta.mtime()).unwrap_or(0);
            images.changed_unix_seconds = images.changed_unix_seconds.max(changed_unix_seconds);
        }
    }
    Ok(all.into_values().collect())
}

/// Removes all images of a run of this user in `parent`, and its folder, if nothing else is in
/// it. Returns how many there were, and their bytes.
///
/// # Errors
/// As [`stored_images`]. None where the run has no folder.
pub fn remove_images_of(parent: &Path, run: &str) -> io::Result<(usize, u64)> {
    let above = File::open(parent).map_err(at(parent))?;
    let path = Folder::path_of(parent, run);
    let folder = match Folder::enter(&above, path.clone(), &folder_name(run), 0) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok((0, 0)),
        folder => folder?,
    };
    let (mut images, mut bytes) = (0, 0);
    for name in folder.names().map_err(at(&path))? {
        if parse_name(&name).is_none() {
            continue;
        }
        let file = match folder.file(&name, OFlag::O_RDONLY) {
            // Another process removes them, too.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            file => file?,
        };
        match unlinkat(&folder.run, name.as_str(), UnlinkatFlags::NoRemoveDir) {
            Err(Errno::ENOENT) => continue,
            removed => removed.map_err(|error| at(&path.join(&name))(error.into()))?,
        }
        images += 1;
        bytes += file.metadata().map_err(at(&path))?.len();
    }
    match std::fs::remove_dir(&path) {
        Err(error)
            if matches!(error.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::NotFound) => {}
        removed => removed.map_err(at(&path))?,
    }
    above.sync_all().map_err(at(parent))?;
    Ok((images, bytes))
}

impl Disk for Folder {
    fn list(&self) -> io::Result<Vec<ImageId>> {
        let names = self.names().map_err(at(&self.path))?;
        let images = names.iter().filter_map(|name| parse_name(name));
        Ok(images.filter(|(test, _)| *test == self.test).map(|(_, id)| id).collect())
    }

    fn create(&self, id: ImageId, bytes: u64) -> io::Result<Box<dyn ImageFile>> {
        let name = self.name(id);
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL;
        let file = self.file(&name, flags)?;
        if let Err(error) = reserve(&file, bytes) {
            self.remove(id)?;
            return Err(at(&self.path.join(name))(error));
        }
        Ok(Box::new(OpenImage { file, path: self.path.join(name), flushed: 0..0 }))
    }

    fn open(&self, id: ImageId) -> io::Result<Box<dyn ImageFile>> {
        let name = self.name(id);
        let file = self.file(&name, OFlag::O_RDONLY)?;
        let meta = file.metadata()?;
        if !meta.is_file() || meta.uid() != Uid::effective().as_raw() {
            return Err(no_own(&self.path.join(name), "is no file of this user"));
        }
        Ok(Box::new(OpenImage { file, path: self.path.join(name), flushed: 0..0 }))
    }

    fn remove(&self, id: ImageId) -> io::Result<()> {
        let name = self.name(id);
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

/// Makes a file that long, its room reserved where the file system can.
fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    let len = i64::try_from(bytes).map_err(io::Error::other)?;
    match posix_fallocate(file, 0, len) {
        Ok(()) => Ok(()),
        // What a write does not get is an error then.
        Err(Errno::EOPNOTSUPP | Errno::EINVAL) => file.set_len(bytes),
        Err(error) => Err(error.into()),
    }
}

/// An open image.
struct OpenImage {
    file: File,
    path: PathBuf,
    /// Written, and not sent to the disk yet.
    flushed: std::ops::Range<u64>,
}

impl ImageFile for OpenImage {
    fn write_at(&mut self, place: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, place).map_err(at(&self.path))?;
        let end = place + bytes.len() as u64;
        if self.flushed.end != place {
            self.flushed = place..place;
        }
        self.flushed.end = end;
        if self.flushed.end - self.flushed.start >= FLUSH_BYTES {
            self.sync()?;
            let (start, len) = (self.flushed.start as i64, FLUSH_BYTES as i64);
            // Advice: what is not taken costs memory, no more.
            let _ = posix_fadvise(&self.file, start, len, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
            self.flushed = end..end;
        }
        Ok(())
    }

    fn read_at(&mut self, place: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, place).map_err(at(&self.path))
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data().map_err(at(&self.path))
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
}
