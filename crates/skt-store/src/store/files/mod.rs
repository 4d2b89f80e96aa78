//! A store of mapped files: POSIX shared memory (files in /dev/shm), tmpfs, hugetlbfs, or a
//! node-local disk.

mod draft;
mod folder_id;
mod own;

use std::ffi::{OsStr, c_void};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, posix_fallocate};
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap, munmap};
use nix::sys::statfs::{
    BTRFS_SUPER_MAGIC, EXT4_SUPER_MAGIC, FsType, HUGETLBFS_MAGIC, TMPFS_MAGIC, XFS_SUPER_MAGIC,
    fstatfs, statfs,
};
use nix::unistd::ftruncate;

use super::header::{Header, Identity, PAGE_BYTES};
use super::hold::{Hold, is_at, unlink, unlink_locked};
use super::host::{Host, StoreHazard};
use super::segment::{NewSegment, RESERVE_BYTES, Segment, Touch, View};
use super::stub::Stub;
use super::{
    ATTACH_PAUSE, ATTACH_TRIES, Result, SegmentInfo, SegmentName, Stage, Store, StoreError,
    StoreId, check_bytes,
};
use draft::Draft;
use own::Own;
use skt_comm::pages;
use skt_host::process;

/// Separates the name of a segment from a number, if a file of another user has the name.
const ELSEWHERE: &str = "~";

/// A store of mapped files in one folder.
#[derive(Debug, Clone)]
pub struct Files {
    folder: PathBuf,
}

impl Files {
    /// POSIX shared memory. A segment `NAME` here is `/NAME` for `shm_open`.
    pub fn posix() -> Self {
        Self::in_folder(Path::new("/dev/shm"))
    }

    /// The store of files in `folder`, which must exist.
    pub fn in_folder(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    fn path(&self, name: &SegmentName) -> PathBuf {
        self.folder.join(name.to_string())
    }

    /// The paths at which a segment of that name may be: its own path, or one with a number after
    /// it if another user had a file at its own.
    fn paths(&self, name: &SegmentName) -> Result<Vec<PathBuf>> {
        let prefix = format!("{name}{ELSEWHERE}");
        let is_elsewhere = |path: &PathBuf| {
            let name = path.file_name().and_then(OsStr::to_str);
            name.is_some_and(|name| name.starts_with(&prefix))
        };
        let mut paths = vec![self.path(name)];
        for path in self.entries()? {
            paths.extend(Some(path?).filter(is_elsewhere));
        }
        Ok(paths)
    }

    /// The segments of that name. There is one, except for the instant in which two creations find
    /// each other.
    fn find_all(&self, name: &SegmentName) -> Result<Vec<(File, Identity, PathBuf)>> {
        let mut all = Vec::new();
        for path in self.paths(name)? {
            let Some(own) = Own::at(&path)? else { continue };
            all.extend(own.segment(&path)?.map(|(file, identity)| (file, identity, path)));
        }
        Ok(all)
    }

    /// The segment of that name, complete or not; a complete one if there is any.
    fn find(&self, name: &SegmentName) -> Result<Option<(File, Identity, PathBuf)>> {
        let all = self.find_all(name)?;
        Ok(all.into_iter().min_by_key(|(_, identity, _)| !identity.is_ready))
    }

    fn find_ready(&self, name: &SegmentName) -> Result<Option<(File, Identity, PathBuf)>> {
        Ok(self.find(name)?.filter(|(_, identity, _)| identity.is_ready))
    }

    /// Removes an incomplete or damaged segment of that name, unless a process is working on it.
    fn make_way(&self, name: &SegmentName) -> Result<()> {
        let exists = |path: &Path| {
            let location = path.display().to_string();
            Err(StoreError::Exists { name: name.clone(), location })
        };
        for tries_left in (0..ATTACH_TRIES).rev() {
            let mut busy = None;
            for path in self.paths(name)? {
                let Some(own) = Own::at(&path)? else { continue };
                if own.segment(&path)?.is_some_and(|(_, identity)| identity.is_ready) {
                    return exists(&path);
                }
                if !own.remove_unused(&path, |identity| identity.is_ready)? {
                    busy = Some(path);
                }
            }
            match busy {
                None => return Ok(()),
                Some(path) if tries_left == 0 => return exists(&path),
                Some(_) => std::thread::sleep(ATTACH_PAUSE),
            }
        }
        Ok(())
    }

    /// Gives a new file the segment's name or, if another user has a file of that name, an
    /// unpredictable one. Returns the file's path.
    fn publish(&self, name: &SegmentName, draft: &Draft, file: &File) -> Result<PathBuf> {
        let mut path = self.path(name);
        loop {
            match draft.publish(file, &path) {
                Ok(()) => return Ok(path),
                Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                    return Err(refused("linking", &path, error));
                }
                Err(_) if Own::at(&path)?.is_some() => {
                    let location = path.display().to_string();
                    return Err(StoreError::Exists { name: name.clone(), location });
                }
                Err(_) => path = self.folder.join(format!("{name}{ELSEWHERE}{}", random()?)),
            }
        }
    }

    fn entries(&self) -> Result<impl Iterator<Item = Result<PathBuf>>> {
        let listing = |error| refused("listing", &self.folder, error);
        let entries = fs::read_dir(&self.folder).map_err(|source| match source.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => {
                StoreError::NoFolder { folder: self.folder.clone(), source }
            }
            _ => listing(source),
        })?;
        Ok(entries.map(move |entry| Ok(entry.map_err(listing)?.path())))
    }

    /// Creates the file, locked and of full size. It gets the segment's name once its header
    /// identifies the segment.
    fn fresh(
        &self,
        name: &SegmentName,
        bytes: usize,
        header: &Header,
        at: &dyn Fn(Stage),
    ) -> Result<(Flock<File>, PathBuf, Space)> {
        let path = self.path(name);
        let (file, draft) =
            Draft::create(&self.folder).map_err(|error| refused("creating", &path, error))?;
        at(Stage::Made);
        let file = lock(file, FlockArg::LockExclusiveNonblock)
            .map_err(|error| refused("locking", &path, error))?;
        let space = Space::measure(&file, bytes).map_err(|e| refused("looking at", &path, e))?;
        self.check_space(name, &file, &space)?;
        // A process that is killed while the rest is reserved, which may take seconds, leaves a
        // segment that the next creation replaces.
        match write_header(&file, &space, header) {
            Ok(()) => {}
            Err(Errno::ENOSPC) => return Err(self.no_space(name, &file, &space)?),
            Err(error) => return Err(refused("writing", &path, error)),
        }
        let path = self.publish(name, &draft, &file)?;
        Ok((file, path, space))
    }

    /// Refuses if a creation elsewhere, begun before this file was visible, has the same name. Each
    /// creator that sees the other gives way, so possibly both do. Finally this file must still be
    /// at its path: without its name others do not see it.
    fn check_alone(&self, name: &SegmentName, file: &Flock<File>, path: &Path) -> Result<()> {
        let others = self.find_all(name)?;
        if let Some((_, _, other)) = others.into_iter().find(|(_, _, other)| other != path) {
            let location = other.display().to_string();
            return Err(StoreError::Exists { name: name.clone(), location });
        }
        if is_at(file, path) { Ok(()) } else { Err(StoreError::robbed(name, path.display())) }
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

    /// Refuses at once if there is not enough space or memory.
    fn check_space(&self, name: &SegmentName, file: &File, space: &Space) -> Result<()> {
        match self.available_bytes(name, file)? {
            Some(bytes) if bytes < space.file_bytes as u64 => {
                Err(self.no_space(name, file, space)?)
            }
            _ => space.check_memory(name, space.file_bytes, space.file_bytes),
        }
    }

    /// Reserves the file's space, or fails now rather than with a SIGBUS at a later access.
    fn reserve(
        &self,
        name: &SegmentName,
        file: &File,
        space: &Space,
        at: &dyn Fn(Stage),
    ) -> Result<()> {
        for start in (0..space.file_bytes).step_by(RESERVE_BYTES) {
            let left = space.file_bytes - start;
            let bytes = left.min(RESERVE_BYTES);
            space.check_memory(name, bytes, left)?;
            match posix_fallocate(file.as_fd(), start as i64, bytes as i64) {
                Ok(()) => at(Stage::Reserving(start + bytes)),
                Err(Errno::ENOSPC) => return Err(self.no_space(name, file, space)?),
                Err(error) => return Err(refused("reserving", &self.path(name), error)),
            }
        }
        Ok(())
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
            format!("folder {}", folder_id::get_or_create(&self.folder)?)
        };
        Ok(StoreId { memory, kernel })
    }

    fn begin_at(&self, name: &SegmentName, bytes: usize, at: &dyn Fn(Stage)) -> Result<NewSegment> {
        check_bytes(name, bytes)?;
        self.make_way(name)?;
        let header = Header::new(name, bytes);
        let (file, path, space) = self.fresh(name, PAGE_BYTES + bytes, &header, at)?;
        at(Stage::Named);
        let mapping = self
            .check_alone(name, &file, &path)
            .and_then(|()| self.reserve(name, &file, &space, at))
            .inspect(|()| at(Stage::Reserved))
            .and_then(|()| Mapping::map_file(&file, &path))
            .inspect_err(|_| {
                // Best effort: the first error is the one to report.
                let _ = unlink_locked(&file, &path);
            })?;
        Ok(NewSegment::new(mapping.segment(name, bytes, file, path), header, space.touch()))
    }

    fn attach(&self, name: &SegmentName) -> Result<Option<Segment>> {
        for _ in 0..ATTACH_TRIES {
            let Some((file, identity, path)) = self.find_ready(name)? else { return Ok(None) };
            match lock(file, FlockArg::LockExclusiveNonblock) {
                // It was removed before it was locked, so it has lost its name: the next process
                // creates another one.
                Ok(file) if !is_at(&file, &path) => {}
                Ok(file) => {
                    let mapping = Mapping::map_file(&file, &path)?;
                    return Ok(Some(mapping.segment(name, identity.data_bytes, file, path)));
                }
                Err(Errno::EWOULDBLOCK) => std::thread::sleep(ATTACH_PAUSE),
                Err(error) => return Err(refused("locking", &path, error)),
            }
        }
        let location = self.path(name).display().to_string();
        Err(StoreError::InUse { name: name.clone(), location })
    }

    fn peek(&self, name: &SegmentName, into: &mut [u8]) -> Result<Option<usize>> {
        let Some((file, identity, path)) = self.find_ready(name)? else { return Ok(None) };
        let bytes = identity.data_bytes;
        let fits = bytes.min(into.len());
        file.read_exact_at(&mut into[..fits], PAGE_BYTES as u64)
            .map_err(|error| refused("reading", &path, error))?;
        Ok(Some(bytes))
    }

    fn view(&self, name: &SegmentName) -> Result<Option<View>> {
        let Some((file, identity, path)) = self.find_ready(name)? else { return Ok(None) };
        let looking = |error: io::Error| refused("looking at", &path, error);
        let stat = fstatfs(&file).map_err(|error| looking(error.into()))?;
        if !is_of_one_kernel(stat.filesystem_type()) {
            // Its owner may be on another machine, where it writes to other memory than this.
            return Ok(None);
        }
        let mapped_bytes = file.metadata().map_err(looking)?.len() as usize;
        let size = NonZeroUsize::new(mapped_bytes).expect("a header at least");
        let base = map_on_huge_page(&file, size, ProtFlags::PROT_READ)
            .map_err(|error| refused("mapping", &path, error))?;
        // SAFETY: mapped just now, all of the file; the data fits, according to its header.
        let view =
            unsafe { View::from_mapped(base.cast(), mapped_bytes, identity.data_bytes, false) };
        Ok(Some(view))
    }

    fn remove(&self, name: &SegmentName) -> Result<bool> {
        match self.find(name)? {
            None => Ok(false),
            Some((_, _, path)) => unlink(&path),
        }
    }

    fn remove_unused(&self, name: &SegmentName) -> Result<bool> {
        let Some((_, _, path)) = self.find(name)? else { return Ok(false) };
        Own::at(&path)?.map_or(Ok(false), |own| own.remove_unused(&path, |_| false))
    }

    fn remove_dead(&self, name: &SegmentName) -> Result<bool> {
        let Some((_, _, path)) = self.find(name)? else { return Ok(false) };
        let stays = |identity: &Identity| identity.is_ready;
        Own::at(&path)?.map_or(Ok(false), |own| own.remove_unused(&path, stays))
    }

    fn list_once(&self) -> Result<Vec<SegmentInfo>> {
        let mut list = Vec::new();
        for path in self.entries()? {
            let path = path?;
            let Some(own) = Own::at(&path)? else { continue };
            let Some((file, identity)) = own.segment(&path)? else { continue };
            list.push(SegmentInfo {
                location: path.display().to_string(),
                bytes: identity.data_bytes,
                is_ready: identity.is_ready,
                in_use: lock(file, FlockArg::LockSharedNonblock).is_err(),
                attached: None,
                creator_pid: identity.process.pid(),
                creator: identity.process.liveness(),
                created_unix_seconds: identity.created_unix_seconds,
                name: identity.name,
            });
        }
        list.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(list)
    }

    fn stubs(&self) -> Result<Vec<Stub>> {
        let mut stubs = Vec::new();
        for path in self.entries()? {
            let path = path?;
            stubs.extend(draft::stub(&path).or_else(|| own::damaged(&path)));
        }
        stubs.sort_by(|a: &Stub, b| a.location.cmp(&b.location));
        Ok(stubs)
    }

    fn remove_stub(&self, stub: &Stub) -> Result<bool> {
        own::remove_stub(stub)
    }

    fn hazards(&self, bytes_on_host: u64, _bytes_largest: u64) -> Vec<StoreHazard> {
        let host = Host::this();
        let mut hazards = host.common_hazards(bytes_on_host);
        hazards.extend(host.folder_hazards(&self.folder, bytes_on_host));
        hazards
    }
}

/// Maps all of a file at the beginning of a huge page: only then does this process see the huge
/// pages that the file has in memory.
fn map_on_huge_page(
    file: &File,
    size: NonZeroUsize,
    access: ProtFlags,
) -> nix::Result<NonNull<c_void>> {
    if let Ok(place) = pages::Reservation::new(size.get()) {
        let at = NonZeroUsize::new(place.base().as_ptr() as usize);
        let how = MapFlags::MAP_SHARED | MapFlags::MAP_FIXED;
        // SAFETY: replaces only the mapping of our own place, which is as long.
        if let Ok(base) = unsafe { mmap(at, size, access, how, file.as_fd(), 0) } {
            place.taken(size.get());
            return Ok(base);
        }
    }
    // A file on larger pages must begin at a boundary of such a page.
    // SAFETY: a new mapping at an address that the system chooses.
    unsafe { mmap(None, size, access, MapFlags::MAP_SHARED, file.as_fd(), 0) }
}

/// All of a locked file, mapped.
struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    page_bytes: usize,
}

impl Mapping {
    fn map_file(file: &Flock<File>, path: &Path) -> Result<Self> {
        let space = Space::measure(file, 0).map_err(|error| refused("looking at", path, error))?;
        let length = file.metadata().map_err(|error| refused("looking at", path, error))?.len();
        let bytes = length as usize;
        let size = NonZeroUsize::new(bytes).expect("a header at least");
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let base = map_on_huge_page(file, size, access)
            .map_err(|error| StoreError::unmapped(format!("mapping {}", path.display()), error))?;
        // SAFETY: our mapping; refused advice only costs speed.
        let _ = unsafe { madvise(base, bytes, MmapAdvise::MADV_HUGEPAGE) };
        Ok(Self { base: base.cast(), bytes, page_bytes: space.page_bytes })
    }

    fn segment(
        self,
        name: &SegmentName,
        data_bytes: usize,
        file: Flock<File>,
        path: PathBuf,
    ) -> Segment {
        let Self { base, bytes: mapped_bytes, page_bytes } = self;
        let (name, hold) = (name.clone(), Hold::File { path, file });
        // All of the file is mapped; the lock keeps other processes of this program away.
        Segment { name, base, mapped_bytes, data_bytes, page_bytes, note: None, hold }
    }
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
