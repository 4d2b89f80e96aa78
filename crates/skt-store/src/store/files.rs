//! A store of mapped files: POSIX shared memory (files in /dev/shm), tmpfs, hugetlbfs, or a
//! node-local disk. A segment is at the path of its name. A file there without a whole first page
//! is an incomplete segment.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use bytemuck::Zeroable;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, posix_fallocate};
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap, munmap};
use nix::sys::statfs::{
    BTRFS_SUPER_MAGIC, EXT4_SUPER_MAGIC, FsType, HUGETLBFS_MAGIC, TMPFS_MAGIC, XFS_SUPER_MAGIC,
    fstatfs, statfs,
};
use nix::unistd::ftruncate;

use super::header::{Header, Identity, PAGE_BYTES};
use super::host::{Host, StoreHazard};
use super::segment::{
    Hold, Mapping, NewSegment, RESERVE_BYTES, Segment, Touch, is_at, unlink, unlink_locked,
};
use super::{
    ATTACH_PAUSE, ATTACH_TRIES, Result, SegmentInfo, SegmentName, Stage, Store, StoreError,
    StoreId, check_bytes, make_way,
};
use skt_comm::pages;
use skt_host::process;

/// The folder of POSIX shared memory.
pub(super) const POSIX: &str = "/dev/shm";

/// A store of mapped files in one folder.
#[derive(Debug, Clone)]
pub struct Files {
    folder: PathBuf,
}

/// A segment that a search has found.
struct Found {
    file: File,
    path: PathBuf,
    identity: Identity,
}

impl Files {
    /// POSIX shared memory. A segment `NAME` here is `/NAME` for `shm_open`.
    pub fn posix() -> Self {
        Self::in_folder(Path::new(POSIX))
    }

    /// The store of files in `folder`, which must exist.
    pub fn in_folder(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    fn path(&self, name: &SegmentName) -> PathBuf {
        self.folder.join(name.to_string())
    }

    /// The segment of that name, complete or not.
    fn find(&self, name: &SegmentName) -> Result<Option<Found>> {
        let path = self.path(name);
        let Some(file) = open(&path)? else {
            // Without the folder it is unknown whether there is one.
            fs::metadata(&self.folder).map_err(|error| self.no_folder(error))?;
            return Ok(None);
        };
        let identity = identify(&file, name).map_err(|e| refused("reading", &path, e))?;
        Ok(Some(Found { file, path, identity }))
    }

    fn no_folder(&self, source: io::Error) -> StoreError {
        match source.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => {
                StoreError::NoFolder { folder: self.folder.clone(), source }
            }
            _ => refused("listing", &self.folder, source),
        }
    }

    fn find_ready(&self, name: &SegmentName) -> Result<Option<Found>> {
        Ok(self.find(name)?.filter(|found| found.identity.is_ready))
    }

    /// Removes the segment of that name, unless a process holds it, or `stays` holds for it: this
    /// is checked under the lock, because its creator may have been working on it until then.
    fn remove_unless(&self, name: &SegmentName, stays: fn(&Identity) -> bool) -> Result<bool> {
        let Some(Found { file, path, .. }) = self.find(name)? else { return Ok(false) };
        let Ok(file) = lock(file, FlockArg::LockExclusiveNonblock) else { return Ok(false) };
        let identity = identify(&file, name).map_err(|e| refused("reading", &path, e))?;
        // Held until it is removed: a process that waits for it looks up its name again.
        if stays(&identity) { Ok(false) } else { unlink_locked(&file, &path) }
    }

    /// Creates an empty file at the segment's path, locked. Until its header is written, another
    /// creator may take it for the remains of a dead one.
    fn fresh(&self, name: &SegmentName, at: &dyn Fn(Stage)) -> Result<Flock<File>> {
        let path = self.path(name);
        loop {
            let find = || {
                let location = |found: Found| found.path.display().to_string();
                Ok(self.find(name)?.map(|found| (found.identity.is_ready, location(found))))
            };
            make_way(name, find, || self.remove_dead(name))?;
            let file = match private().create_new(true).open(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    return Err(StoreError::exists(name, path.display().to_string()));
                }
                made => made.map_err(|error| refused("creating", &path, error))?,
            };
            at(Stage::Made);
            let file = lock(file, FlockArg::LockExclusive)
                .map_err(|error| refused("locking", &path, error))?;
            if is_at(&file, &path) {
                return Ok(file);
            }
        }
    }

    /// Writes the header into a fresh file, reserves its space and maps it.
    fn reserve(
        &self,
        name: &SegmentName,
        header: &Header,
        file: &File,
        space: &Space,
        at: &dyn Fn(Stage),
    ) -> Result<Mapping> {
        let path = self.path(name);
        match self.available_bytes(name, file)? {
            Some(bytes) if bytes < space.file_bytes as u64 => {
                return Err(self.no_space(name, file, space)?);
            }
            _ => space.check_memory(name, space.file_bytes, space.file_bytes)?,
        }
        // A process that is killed while the rest is reserved, which may take seconds, leaves a
        // segment that the next creation replaces.
        match write_header(file, space, header) {
            Ok(()) => {}
            Err(Errno::ENOSPC) => return Err(self.no_space(name, file, space)?),
            Err(error) => return Err(refused("writing", &path, error)),
        }
        at(Stage::Named);
        // Without its name others do not see it.
        if !is_at(file, &path) {
            return Err(StoreError::robbed(name, path.display()));
        }
        for start in (0..space.file_bytes).step_by(RESERVE_BYTES) {
            let left = space.file_bytes - start;
            let bytes = left.min(RESERVE_BYTES);
            space.check_memory(name, bytes, left)?;
            match posix_fallocate(file.as_fd(), start as i64, bytes as i64) {
                Ok(()) => at(Stage::Reserving(start + bytes)),
                Err(Errno::ENOSPC) => return Err(self.no_space(name, file, space)?),
                Err(error) => return Err(refused("reserving", &path, error)),
            }
        }
        at(Stage::Reserved);
        map_for_writing(file, &path)
    }

    fn no_space(&self, name: &SegmentName, file: &File, space: &Space) -> Result<StoreError> {
        let available_bytes = self.available_bytes(name, file)?.unwrap_or(0);
        let (name, folder) = (name.clone(), self.folder.clone());
        let wanted_bytes = space.file_bytes as u64;
        Ok(StoreError::NoSpace { name, folder, wanted_bytes, available_bytes })
    }

    /// Free bytes, or `None` if the file system has no bound: hugetlbfs mounted without a size.
    fn available_bytes(&self, name: &SegmentName, file: &File) -> Result<Option<u64>> {
        let stat = fstatfs(file).map_err(|e| refused("looking at", &self.path(name), e))?;
        let bytes = stat.blocks_available() as u64 * stat.block_size() as u64;
        Ok((stat.blocks() > 0).then_some(bytes))
    }

    /// The id of a folder that machines may share: a small file with a random number, created once
    /// and kept, which distinguishes the folder from others.
    fn folder_id(&self) -> Result<String> {
        let path = self.folder.join(format!("skt-hpl.store.{}.0", process::user_id()));
        if let Some(file) = open(&path)? {
            let mut id = [0; 36];
            file.read_exact_at(&mut id, 0).map_err(|error| refused("reading", &path, error))?;
            return Ok(String::from_utf8_lossy(&id).into_owned());
        }
        // The file is whole from the start: it gets its name after it has been written.
        let id = random()?;
        let draft = path.with_extension(&id);
        let made = private().create_new(true).open(&draft);
        let made = made.and_then(|mut file| file.write_all(id.as_bytes()));
        let linked = made.and_then(|()| fs::hard_link(&draft, &path));
        // A draft that stays is of no harm.
        let _ = fs::remove_file(&draft);
        match linked {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                Err(refused("writing", &path, error))
            }
            _ => self.folder_id(),
        }
    }
}

impl Store for Files {
    fn id(&self) -> Result<StoreId> {
        let kernel = process::kernel();
        let looking = |error: io::Error| refused("looking at", &self.folder, error);
        let stat = statfs(&self.folder).map_err(|error| looking(error.into()))?;
        let memory = if is_of_one_kernel(stat.filesystem_type()) {
            // The same folder has these numbers through every mount.
            let meta = fs::metadata(&self.folder).map_err(looking)?;
            format!("folder {} {} {kernel}", meta.dev(), meta.ino())
        } else {
            format!("folder {}", self.folder_id()?)
        };
        Ok(StoreId { memory, kernel })
    }

    fn begin_at(&self, name: &SegmentName, bytes: usize, at: &dyn Fn(Stage)) -> Result<NewSegment> {
        check_bytes(name, bytes)?;
        let (header, path) = (Header::new(name, bytes), self.path(name));
        let file = self.fresh(name, at)?;
        let reserved = Space::measure(&file, PAGE_BYTES + bytes)
            .map_err(|error| refused("looking at", &path, error))
            .and_then(|space| Ok((self.reserve(name, &header, &file, &space, at)?, space)));
        match reserved {
            Ok((mapping, space)) => {
                let segment = segment(name, mapping, bytes, space.page_bytes, file, path);
                Ok(NewSegment::new(segment, header, space.touch()))
            }
            Err(error) => {
                // Best effort: the first error is the one to report.
                let _ = unlink_locked(&file, &path);
                Err(error)
            }
        }
    }

    fn attach(&self, name: &SegmentName) -> Result<Option<Segment>> {
        for _ in 0..ATTACH_TRIES {
            let Some(found) = self.find_ready(name)? else { return Ok(None) };
            let Found { file, path, identity } = found;
            match lock(file, FlockArg::LockExclusiveNonblock) {
                // It was removed before it was locked, so it has lost its name: the next process
                // creates another one.
                Ok(file) if !is_at(&file, &path) => {}
                Ok(file) => {
                    let space = Space::measure(&file, 0)
                        .map_err(|error| refused("looking at", &path, error))?;
                    let mapping = map_for_writing(&file, &path)?;
                    let bytes = identity.data_bytes;
                    return Ok(Some(segment(name, mapping, bytes, space.page_bytes, file, path)));
                }
                Err(Errno::EWOULDBLOCK) => std::thread::sleep(ATTACH_PAUSE),
                Err(error) => return Err(refused("locking", &path, error)),
            }
        }
        let location = self.path(name).display().to_string();
        Err(StoreError::InUse { name: name.clone(), location })
    }

    fn peek(&self, name: &SegmentName, into: &mut [u8]) -> Result<Option<usize>> {
        let Some(Found { file, path, identity }) = self.find_ready(name)? else { return Ok(None) };
        let bytes = identity.data_bytes;
        let fits = bytes.min(into.len());
        file.read_exact_at(&mut into[..fits], PAGE_BYTES as u64)
            .map_err(|error| refused("reading", &path, error))?;
        Ok(Some(bytes))
    }

    fn remove(&self, name: &SegmentName) -> Result<bool> {
        self.find(name)?.map_or(Ok(false), |found| unlink(&found.path))
    }

    fn remove_unused(&self, name: &SegmentName) -> Result<bool> {
        self.remove_unless(name, |_| false)
    }

    fn remove_dead(&self, name: &SegmentName) -> Result<bool> {
        self.remove_unless(name, |identity| identity.is_ready)
    }

    fn list_once(&self) -> Result<Vec<SegmentInfo>> {
        let mut list = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(|error| self.no_folder(error))? {
            let name = entry.map_err(|error| self.no_folder(error))?.file_name();
            let Some(name) = name.to_str().and_then(SegmentName::parse) else { continue };
            let Found { file, path, identity } = match self.find(&name) {
                Ok(Some(found)) => found,
                // Another user's, or one that no run uses.
                Ok(None) | Err(StoreError::Foreign { .. }) => continue,
                Err(error) => return Err(error),
            };
            let in_use = lock(file, FlockArg::LockSharedNonblock).is_err();
            list.push(identity.info(path.display().to_string(), in_use, None));
        }
        list.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(list)
    }

    fn hazards(&self) -> Vec<StoreHazard> {
        Host::this().folder_hazards(&self.folder)
    }
}

/// Options to open a file, or to create one for this user alone. They follow no link and wait for
/// no process.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    options
}

/// Opens the file at `path`; `None` if there is none.
///
/// # Errors
/// [`StoreError::Foreign`] for anything but a regular file of this user with mode 0600, before a
/// byte of it is read.
fn open(path: &Path) -> Result<Option<File>> {
    let opened = private().open(path);
    let meta = match &opened {
        Ok(file) => file.metadata(),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(_) => fs::symlink_metadata(path),
    };
    let meta = match meta {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        meta => meta.map_err(|error| refused("looking at", path, error))?,
    };
    let (user, mode) = (meta.uid(), meta.mode() & 0o7777);
    let why = if user != process::user_id() {
        format!("it belongs to user {user}")
    } else if !meta.is_file() {
        "it is no regular file".to_owned()
    } else if mode != 0o600 {
        format!("its mode is {mode:03o}, not 600")
    } else {
        return opened.map(Some).map_err(|error| refused("opening", path, error));
    };
    Err(StoreError::Foreign { location: path.display().to_string(), why })
}

/// What the file of segment `name` contains. Without a whole header it is what a creator has left
/// that died, or a crash of the machine: incomplete, and of no process that lives.
fn identify(file: &File, name: &SegmentName) -> io::Result<Identity> {
    let meta = file.metadata()?;
    let mut header = Header::zeroed();
    let whole = match file.read_exact_at(bytemuck::bytes_of_mut(&mut header), 0) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => None,
        read => read.map(|()| header.identity(meta.len() as usize))?,
    };
    Ok(whole.filter(|identity| identity.name == *name).unwrap_or_else(|| {
        let modified = u64::try_from(meta.mtime()).unwrap_or(0);
        Identity::incomplete(name, meta.len() as usize, modified)
    }))
}

/// Maps all of a file at the beginning of a huge page: only then does this process see the huge
/// pages that the file has in memory.
fn map_on_huge_page(file: &File, access: ProtFlags) -> io::Result<Mapping> {
    let bytes = file.metadata()?.len() as usize;
    let size = NonZeroUsize::new(bytes).expect("a header at least");
    if let Ok(place) = pages::Reservation::new(bytes) {
        let at = NonZeroUsize::new(place.base().as_ptr() as usize);
        let how = MapFlags::MAP_SHARED | MapFlags::MAP_FIXED;
        // SAFETY: replaces only the mapping of our own place, which is as long.
        if let Ok(base) = unsafe { mmap(at, size, access, how, file.as_fd(), 0) } {
            place.taken(bytes);
            return Ok(Mapping { base: base.cast(), bytes, is_sysv: false });
        }
    }
    // A file on larger pages must begin at a boundary of such a page.
    // SAFETY: a new mapping at an address that the system chooses.
    let base = unsafe { mmap(None, size, access, MapFlags::MAP_SHARED, file.as_fd(), 0)? };
    Ok(Mapping { base: base.cast(), bytes, is_sysv: false })
}

/// Maps all of a locked file.
fn map_for_writing(file: &File, path: &Path) -> Result<Mapping> {
    let mapping = map_on_huge_page(file, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE)
        .map_err(|error| StoreError::unmapped(format!("mapping {}", path.display()), error))?;
    // SAFETY: our mapping; refused advice only costs speed.
    let _ = unsafe { madvise(mapping.base.cast(), mapping.bytes, MmapAdvise::MADV_HUGEPAGE) };
    Ok(mapping)
}

/// The segment in a locked file, all of which is mapped: the lock keeps other processes of this
/// program away.
fn segment(
    name: &SegmentName,
    mapping: Mapping,
    data_bytes: usize,
    page_bytes: usize,
    file: Flock<File>,
    path: PathBuf,
) -> Segment {
    let (name, hold) = (name.clone(), Hold::File { path, file });
    Segment { name, mapping, data_bytes, page_bytes, note: None, hold }
}

/// The properties of a file on its file system.
struct Space {
    fs: FsType,
    page_bytes: usize,
    file_bytes: usize,
}

impl Space {
    fn measure(file: &File, bytes: usize) -> nix::Result<Self> {
        let stat = fstatfs(file)?;
        let fs = stat.filesystem_type();
        let page_bytes = if fs == HUGETLBFS_MAGIC {
            stat.block_size() as usize
        } else {
            pages::system_page_bytes()
        };
        Ok(Self { fs, page_bytes, file_bytes: bytes.next_multiple_of(page_bytes) })
    }

    /// Refuses unless the next `next` of the `left` bytes can be taken, if the file system is
    /// memory.
    fn check_memory(&self, name: &SegmentName, next: usize, left: usize) -> Result<()> {
        if self.fs == TMPFS_MAGIC {
            Host::this().check_memory(name, next as u64, left as u64)
        } else {
            Ok(())
        }
    }

    fn touch(&self) -> Touch {
        let in_memory = self.fs == TMPFS_MAGIC || self.fs == HUGETLBFS_MAGIC;
        if in_memory { Touch::Maps } else { Touch::Nothing }
    }
}

/// Reserves the first page, gives the file its length, and writes the header through a mapping,
/// because hugetlbfs has no other way to write.
fn write_header(file: &File, space: &Space, header: &Header) -> nix::Result<()> {
    posix_fallocate(file.as_fd(), 0, space.page_bytes as i64)?;
    ftruncate(file, space.file_bytes as i64)?;
    let size = NonZeroUsize::new(space.page_bytes).expect("a page");
    let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: a new mapping at an address that the system chooses, gone at once; its page is
    // reserved, aligned, and nothing else refers to it.
    unsafe {
        let page = mmap(None, size, access, MapFlags::MAP_SHARED, file.as_fd(), 0)?;
        page.cast::<Header>().write_volatile(*header);
        munmap(page, space.page_bytes)
    }
}

/// Whether only one kernel sees files of that file system; machines may share a folder on others.
fn is_of_one_kernel(fs: FsType) -> bool {
    [TMPFS_MAGIC, HUGETLBFS_MAGIC, EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC]
        .contains(&fs)
}

/// A random number, which no earlier file has.
fn random() -> Result<String> {
    let source = "/proc/sys/kernel/random/uuid";
    let text = fs::read_to_string(source).map_err(|e| refused("reading", Path::new(source), e))?;
    Ok(text.trim().to_owned())
}

fn lock(file: File, how: FlockArg) -> nix::Result<Flock<File>> {
    Flock::lock(file, how).map_err(|(_, error)| error)
}

fn refused(doing: &str, path: &Path, error: impl Into<io::Error>) -> StoreError {
    StoreError::system(format!("{doing} {}", path.display()), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segment_completed_since_the_check_stays() {
        let folder = tempfile::tempdir().unwrap();
        let store = Files::in_folder(folder.path());
        let name = SegmentName::new("run", "state", 0).unwrap();
        let new = store.begin(&name, 8).unwrap();
        assert!(!store.find(&name).unwrap().unwrap().identity.is_ready);
        assert!(!store.remove_unused(&name).unwrap(), "its creator has it");
        drop(new.finish().unwrap());
        assert!(!store.remove_dead(&name).unwrap());
        assert!(store.attach(&name).unwrap().is_some());
        assert!(store.remove_unused(&name).unwrap());
    }

    #[test]
    fn all_get_the_same_folder_id_and_another_folder_another() {
        let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let [one, other] = folders.each_ref().map(|folder| Files::in_folder(folder.path()));
        let ids: Vec<String> = std::thread::scope(|scope| {
            let all = [(); 8].map(|()| scope.spawn(|| one.folder_id().unwrap()));
            all.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(ids.iter().all(|id| *id == ids[0] && id.len() == 36), "{ids:?}");
        assert_ne!(other.folder_id().unwrap(), ids[0]);
        assert_eq!(fs::read_dir(folders[0].path()).unwrap().count(), 1);
        fs::write(one.folder.join(format!("skt-hpl.store.{}.0", process::user_id())), "short")
            .unwrap();
        assert!(one.folder_id().is_err());
    }
}
