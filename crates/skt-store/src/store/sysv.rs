//! A store of System V segments.
//!
//! A key has 32 bits, so each name is hashed to one. Owner, creator, mode and first page decide what
//! is there; nothing of another owner or mode is ever attached.

use std::io;
use std::ptr::{self, NonNull};

use super::header::{Header, Identity, PAGE_BYTES};
use super::host::{Host, StoreHazard};
use super::segment::{Hold, Mapping, NewSegment, Segment, Touch, remove_id};
use super::{
    ATTACH_PAUSE, ATTACH_TRIES, Result, SegmentInfo, SegmentName, Stage, Store, StoreError,
    StoreId, check_bytes, make_way,
};
use skt_comm::pages::{self, pool_page_bytes, system_page_bytes};
use skt_host::process;

/// The mode of every segment.
const MODE: u32 = 0o600;
/// The kernel's table of segments.
const TABLE: &str = "/proc/sysvipc/shm";

/// A store of System V segments.
#[derive(Debug, Clone, Copy)]
pub struct SysV {
    huge_pages: bool,
}

/// A segment that a search has found.
struct Found {
    row: Row,
    identity: Identity,
}

impl SysV {
    /// The store. With `huge_pages`, new segments ask for pages of 2 MiB and fall back to ordinary
    /// ones, which [`Segment::note`] then reports.
    pub fn new(huge_pages: bool) -> Self {
        Self { huge_pages }
    }

    /// The segment of that name, complete or not.
    ///
    /// # Errors
    /// [`StoreError::Foreign`] for one of another user or mode, before a byte of it is read, and for
    /// one of another program or name.
    fn find(name: &SegmentName) -> Result<Option<Found>> {
        let key = key_of(name);
        let Some(row) = table()?.into_iter().find(|row| row.key == key) else { return Ok(None) };
        let foreign = |why| {
            let location = format!("{name} at {}", row.location());
            Err(StoreError::Foreign { location, why })
        };
        if let Some(why) = row.flaw() {
            return foreign(why);
        }
        let Some(header) = row.header()? else { return Ok(None) };
        let identity = match header.identity(row.bytes) {
            Some(identity) if identity.name == *name => identity,
            Some(other) => return foreign(format!("it is {}", other.name)),
            None if header.may_be_begun() => Identity::incomplete(name, row.bytes, 0),
            None => return foreign("another program has made it".to_owned()),
        };
        Ok(Some(Found { row, identity }))
    }

    fn find_ready(name: &SegmentName) -> Result<Option<Found>> {
        Ok(Self::find(name)?.filter(|found| found.identity.is_ready))
    }

    /// Attaches the segment of that name, if no other process is attached in one of `tries` tries and
    /// it is complete, or incomplete, as wanted.
    fn hold(name: &SegmentName, is_ready: bool, tries: u32) -> Result<Option<Segment>> {
        let mut location = String::new();
        for _ in 0..tries {
            let found = Self::find(name)?.filter(|found| found.identity.is_ready == is_ready);
            let Some(Found { row, .. }) = found else { return Ok(None) };
            location = row.location();
            let Some(mapping) = still_there(map_on_huge_page(row.shmid, row.bytes, 0))? else {
                // It was removed since it was found: the name may lead elsewhere.
                continue;
            };
            // Counted now that this process is attached, and the first page is read after that: its
            // creator may have completed it since it was found. Of two processes that attach, at
            // most one sees that it is alone.
            let is_alone = attached(row.shmid)? == Some(1);
            let identity = first_page(&mapping).identity(row.bytes);
            if is_alone && identity.as_ref().is_some_and(|it| it.is_ready) == is_ready {
                let data_bytes = identity.map_or(0, |identity| identity.data_bytes);
                let (name, page_bytes) = (name.clone(), system_page_bytes());
                let hold = Hold::SysV { shmid: row.shmid };
                return Ok(Some(Segment {
                    name,
                    mapping,
                    data_bytes,
                    page_bytes,
                    note: None,
                    hold,
                }));
            }
            drop(mapping);
            std::thread::sleep(ATTACH_PAUSE);
        }
        Err(StoreError::InUse { name: name.clone(), location })
    }

    fn remove_incomplete(name: &SegmentName, tries: u32) -> Result<bool> {
        match Self::hold(name, false, tries) {
            Ok(held) => held.map_or(Ok(false), |held| held.remove()),
            Err(StoreError::InUse { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Creates a segment at the name's key and returns its id.
    fn fresh(name: &SegmentName, bytes: usize, flags: i32) -> Result<i32> {
        let flags = libc::IPC_CREAT | libc::IPC_EXCL | MODE as i32 | flags;
        // SAFETY: a system call without memory of ours.
        match unsafe { libc::shmget(key_of(name), bytes, flags) } {
            -1 => Err(explain(name, bytes, io::Error::last_os_error())),
            shmid => Ok(shmid),
        }
    }

    /// Creates a segment as [`SysV::fresh`] does, on huge pages if they were asked for and are
    /// granted. Returns its id, the size of its pages and a note for the user.
    fn fresh_on_pages(
        &self,
        name: &SegmentName,
        bytes: usize,
    ) -> Result<(i32, usize, Option<String>)> {
        let mut note = None;
        if self.huge_pages {
            match Self::fresh(name, bytes, libc::SHM_HUGETLB) {
                Ok(shmid) => return Ok((shmid, pool_page_bytes(), None)),
                Err(error @ StoreError::Exists { .. }) => return Err(error),
                Err(error) => {
                    note = Some(format!(
                        "no huge pages, ordinary ones instead ({error}); it needs sysctl -w \
                         vm.nr_hugepages={} for each rank of the node, and the group in \
                         vm.hugetlb_shm_group",
                        bytes.div_ceil(pool_page_bytes())
                    ));
                }
            }
        }
        Host::this().check_memory(name, bytes as u64, bytes as u64)?;
        Ok((Self::fresh(name, bytes, 0)?, system_page_bytes(), note))
    }

    /// A new segment, attached to this process alone. Until its first page is written, another
    /// process may take it for the remains of a creator that has died, and remove it.
    fn attached_fresh(
        &self,
        name: &SegmentName,
        bytes: usize,
        at: &dyn Fn(Stage),
    ) -> Result<(i32, Mapping, usize, Option<String>)> {
        loop {
            let find = || {
                let found = Self::find(name)?;
                Ok(found.map(|found| (found.identity.is_ready, found.row.location())))
            };
            make_way(name, find, || Self::remove_incomplete(name, 1))?;
            let (shmid, page_bytes, note) = self.fresh_on_pages(name, bytes)?;
            at(Stage::Made);
            let mapping = match still_there(map_on_huge_page(shmid, bytes, 0)) {
                Ok(Some(mapping)) => mapping,
                Ok(None) => continue,
                Err(error) => {
                    remove_id(shmid)?;
                    return Err(error);
                }
            };
            // Others that probe it give way to a process that stays attached.
            for _ in 0..ATTACH_TRIES {
                match attached(shmid)? {
                    Some(1) => return Ok((shmid, mapping, page_bytes, note)),
                    Some(_) => std::thread::sleep(ATTACH_PAUSE),
                    None => break,
                }
            }
        }
    }
}

impl Store for SysV {
    fn id(&self) -> Result<StoreId> {
        let kernel = process::kernel();
        Ok(StoreId { memory: format!("sysv {} {kernel}", process::namespace("ipc")), kernel })
    }

    fn begin_at(&self, name: &SegmentName, bytes: usize, at: &dyn Fn(Stage)) -> Result<NewSegment> {
        check_bytes(name, bytes)?;
        let header = Header::new(name, bytes);
        let (shmid, mut mapping, page_bytes, note) =
            self.attached_fresh(name, PAGE_BYTES + bytes, at)?;
        // Whole pages are mapped.
        mapping.bytes = mapping.bytes.next_multiple_of(page_bytes);
        // The creation itself has reserved huge pages.
        let touch =
            if page_bytes == system_page_bytes() { Touch::TakesMemory } else { Touch::Maps };
        let hold = Hold::SysV { shmid };
        let segment =
            Segment { name: name.clone(), mapping, data_bytes: bytes, page_bytes, note, hold };
        let new = NewSegment::new(segment, header, touch);
        at(Stage::Named);
        // A removed segment has lost its name, and others do not see it.
        if attached(shmid)?.is_none() {
            return Err(StoreError::robbed(name, format_args!("shmid {shmid}")));
        }
        new.advise_huge_pages();
        at(Stage::Reserved);
        Ok(new)
    }

    fn attach(&self, name: &SegmentName) -> Result<Option<Segment>> {
        Self::hold(name, true, ATTACH_TRIES)
    }

    fn peek(&self, name: &SegmentName, into: &mut [u8]) -> Result<Option<usize>> {
        let Some(Found { row, identity }) = Self::find_ready(name)? else { return Ok(None) };
        let mapping = still_there(map(row.shmid, row.bytes, libc::SHM_RDONLY))?;
        let Some(mapping) = mapping else { return Ok(None) };
        let bytes = identity.data_bytes;
        // SAFETY: `find_ready` has checked the header, by which this many bytes of data follow it.
        // Raw copies: others may be writing.
        unsafe {
            let data = mapping.base.as_ptr().add(PAGE_BYTES);
            ptr::copy_nonoverlapping(data, into.as_mut_ptr(), bytes.min(into.len()));
        }
        Ok(Some(bytes))
    }

    fn remove(&self, name: &SegmentName) -> Result<bool> {
        Self::find(name)?.map_or(Ok(false), |found| remove_id(found.row.shmid))
    }

    fn remove_unused(&self, name: &SegmentName) -> Result<bool> {
        match self.attach(name) {
            // Held until it is removed: a process that waits for it looks up its name again.
            Ok(Some(held)) => held.remove(),
            Ok(None) => self.remove_dead(name),
            Err(StoreError::InUse { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn remove_dead(&self, name: &SegmentName) -> Result<bool> {
        Self::remove_incomplete(name, ATTACH_TRIES)
    }

    fn list_once(&self) -> Result<Vec<SegmentInfo>> {
        let mut list = Vec::new();
        for row in table()?.into_iter().filter(|row| row.flaw().is_none()) {
            let identity = row.header()?.and_then(|header| header.identity(row.bytes));
            let Some(identity) = identity.filter(|it| key_of(&it.name) == row.key) else {
                continue;
            };
            list.push(identity.info(row.location(), row.attached > 0, Some(row.attached)));
        }
        list.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(list)
    }

    fn hazards(&self) -> Vec<StoreHazard> {
        Host::this().sysv_hazards()
    }
}

/// A line of the kernel's table of segments.
struct Row {
    key: i32,
    shmid: i32,
    mode: u32,
    bytes: usize,
    /// Processes that are attached to it.
    attached: u64,
    owner: u32,
    creator: u32,
}

impl Row {
    fn location(&self) -> String {
        format!("shmid {}, key {:#010x}", self.shmid, self.key)
    }

    /// Why the segment is never read, if it is not one that this user has made and no one else may
    /// attach. A creator of another user would keep its access for good.
    fn flaw(&self) -> Option<String> {
        let user = process::user_id();
        let other = [self.owner, self.creator].into_iter().find(|id| *id != user);
        let mode = self.mode & 0o777;
        match other {
            Some(other) => Some(format!("it belongs to user {other}")),
            None if mode != MODE => Some(format!("its mode is {mode:03o}, not 600")),
            None if self.bytes < PAGE_BYTES => Some("it is shorter than a page".to_owned()),
            None => None,
        }
    }

    /// The first page, attached read-only for an instant; `None` if the segment is gone.
    ///
    /// # Errors
    /// When the system refuses for a reason that is not the segment's: it may be one of ours, and
    /// to ignore it would give its name to two segments.
    fn header(&self) -> Result<Option<Header>> {
        let mapping = still_there(map(self.shmid, self.bytes, libc::SHM_RDONLY))?;
        Ok(mapping.as_ref().map(first_page))
    }
}

fn first_page(mapping: &Mapping) -> Header {
    // SAFETY: at least a page is mapped; its content may be anything.
    unsafe { mapping.base.cast::<Header>().read_volatile() }
}

/// The table of all segments of the machine that have a key. A line that cannot be read is not
/// skipped, since a process may hold its segment.
fn table() -> Result<Vec<Row>> {
    let reading = |error| StoreError::system(format!("reading {TABLE}"), error);
    let table = std::fs::read_to_string(TABLE).map_err(reading)?;
    let row = |line: &str| {
        // key shmid perms size cpid lpid nattch uid gid cuid ...
        let fields: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        let id = |at: usize| fields.get(at)?.parse::<u32>().ok();
        Some(Row {
            key: fields.first()?.parse().ok()?,
            shmid: fields.get(1)?.parse().ok()?,
            mode: u32::from_str_radix(fields.get(2)?, 8).ok()?,
            bytes: number(3)? as usize,
            attached: number(6)?,
            owner: id(7)?,
            creator: id(9)?,
        })
    };
    let unknown = |line| io::Error::other(format!("`{line}` is no line that this program knows"));
    let rows = table.lines().skip(1).map(|line| row(line).ok_or_else(|| reading(unknown(line))));
    let has_key = |row: &Result<Row>| row.as_ref().map_or(true, |it| it.key != libc::IPC_PRIVATE);
    rows.filter(has_key).collect()
}

/// The key of a name; different for different users. Never IPC_PRIVATE.
fn key_of(name: &SegmentName) -> i32 {
    let text = format!("{name} of {}", process::user_id());
    match crate::codec::checksum(text.as_bytes()) as i32 {
        libc::IPC_PRIVATE => 1,
        key => key,
    }
}

/// The number of processes that are attached to a segment; `None` if it was removed, which takes
/// its key. The kernel prints a line under the segment's lock.
fn attached(shmid: i32) -> Result<Option<u64>> {
    Ok(table()?.into_iter().find(|row| row.shmid == shmid).map(|row| row.attached))
}

/// Maps a segment of `bytes`.
fn map(shmid: i32, bytes: usize, flags: i32) -> Result<Mapping> {
    // SAFETY: the system chooses a free address.
    mapped(shmid, bytes, unsafe { libc::shmat(shmid, ptr::null(), flags) })
}

/// What `shmat` has just returned for this segment.
fn mapped(shmid: i32, bytes: usize, base: *mut libc::c_void) -> Result<Mapping> {
    if base as isize == -1 {
        let source = io::Error::last_os_error();
        return Err(StoreError::unmapped(format!("shmat(shmid {shmid})"), source));
    }
    let base = NonNull::new(base.cast()).expect("never mapped at 0");
    Ok(Mapping { base, bytes: bytes.next_multiple_of(PAGE_BYTES), is_sysv: true })
}

/// Maps a segment at the beginning of a huge page: only then does this process see the huge pages
/// that the segment has in memory.
fn map_on_huge_page(shmid: i32, bytes: usize, flags: i32) -> Result<Mapping> {
    let Ok(place) = pages::Reservation::for_any_pages(bytes) else {
        return map(shmid, bytes, flags);
    };
    // SAFETY: replaces only the mapping of our own place, which is long enough for ordinary pages
    // and for those of the pool: which of them the segment has is not known here.
    let base = unsafe { libc::shmat(shmid, place.base().as_ptr(), flags | libc::SHM_REMAP) };
    let mapping = mapped(shmid, bytes, base)?;
    place.taken(bytes);
    Ok(mapping)
}

/// Turns the error of a segment that is gone, or not ours to read, into `None`.
fn still_there<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Err(StoreError::System { source, .. })
            if matches!(source.raw_os_error(), Some(libc::EINVAL | libc::EIDRM | libc::EACCES)) =>
        {
            Ok(None)
        }
        found => found.map(Some),
    }
}

/// The error for a refused `shmget`, with the name of the limit that prevents it.
fn explain(name: &SegmentName, bytes: usize, error: io::Error) -> StoreError {
    let (limits, bytes) = (Host::this().sysv_limits(), bytes as u64);
    let pages = bytes.div_ceil(limits.page_bytes.get());
    match (error.raw_os_error(), limits.too_low(1, pages, bytes)) {
        (Some(libc::EEXIST), _) => StoreError::exists(name, format!("key {:#010x}", key_of(name))),
        (Some(libc::EINVAL | libc::ENOSPC), Some((limit, value, enough))) => {
            StoreError::Limit { name: name.clone(), limit, value, enough }
        }
        _ => StoreError::system(format!("{name}: shmget of {bytes} bytes"), error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Segments that are removed when this value is dropped, even when a test panics.
    struct Ids(Vec<i32>);

    impl Drop for Ids {
        fn drop(&mut self) {
            for &shmid in &self.0 {
                remove_id(shmid).unwrap();
            }
        }
    }

    /// A name that only this test process has.
    fn own_name(rank: u32) -> SegmentName {
        SegmentName::new(&format!("unit-{}", std::process::id()), "state", rank).unwrap()
    }

    /// Another program has the key: its segment is refused, and left alone.
    #[test]
    fn a_key_taken_by_another_program_is_refused() {
        let (store, name) = (SysV::new(false), own_name(1));
        let flags = libc::IPC_CREAT | libc::IPC_EXCL | 0o600;
        // SAFETY: a system call that touches no memory of this process.
        let other = Ids(vec![unsafe { libc::shmget(key_of(&name), 2 * PAGE_BYTES, flags) }]);
        let mapping = map(other.0[0], 2 * PAGE_BYTES, 0).unwrap();
        // SAFETY: the first page of our own mapping, which no one else uses.
        unsafe { mapping.base.as_ptr().write_bytes(7, PAGE_BYTES) };
        let refused = [
            store.attach(&name).map(|_| ()),
            store.create(&name, 64).map(|_| ()),
            store.remove(&name).map(|_| ()),
            store.remove_unused(&name).map(|_| ()),
        ];
        for refused in refused {
            let text = refused.unwrap_err().to_string();
            let want = format!("{name} at shmid {}, key", other.0[0]);
            assert!(text.starts_with(&want) && text.contains("another program"), "{text}");
        }
        drop((mapping, other));
        assert!(store.create(&name, 64).unwrap().remove().unwrap());
    }

    /// Probes the segment briefly: attaches it now, and detaches it after a while.
    fn probe(shmid: i32) -> std::thread::JoinHandle<()> {
        let base = map(shmid, PAGE_BYTES, libc::SHM_RDONLY).unwrap();
        std::thread::spawn(move || {
            std::thread::sleep(ATTACH_PAUSE * 2);
            drop(base);
        })
    }

    #[test]
    fn brief_probe_is_not_counted_as_use() {
        let (store, name) = (SysV::new(false), own_name(4));
        let mut segment = store.create(&name, 64).unwrap();
        let shmid = SysV::find_ready(&name).unwrap().unwrap().row.shmid;
        let _ours = Ids(vec![shmid]);
        segment.as_mut_slice().fill(9);
        drop(segment);
        // A probe that a busy machine prolongs is taken for a use.
        let passes_by = |is_unused: &dyn Fn() -> bool| {
            (0..100).any(|_| {
                let probe = probe(shmid);
                let is_unused = is_unused();
                probe.join().unwrap();
                is_unused
            })
        };
        assert!(passes_by(&|| {
            let listed = store.list().unwrap();
            let ours = listed.iter().find(|info| info.name == name).unwrap();
            (ours.in_use, ours.attached) == (false, Some(0))
        }));
        // The remains of a creator that has died.
        let mapping = map(shmid, PAGE_BYTES, 0).unwrap();
        // SAFETY: the first page of our own mapping, which no one else uses.
        unsafe {
            mapping.base.as_ptr().write_bytes(0, PAGE_BYTES);
            mapping.base.cast::<Header>().write(Header::new(&name, 64));
        }
        drop(mapping);
        assert!(!SysV::find(&name).unwrap().unwrap().identity.is_ready);
        assert!(passes_by(&|| store.remove_unused(&name).unwrap()));
    }

    /// Before its first page, which a reader takes for that of a dead creator, and after it.
    #[test]
    fn a_creator_at_work_keeps_its_segment_or_starts_over() {
        let (store, name) = (SysV::new(false), own_name(5));
        let removed = std::cell::Cell::new(0);
        let at = |stage| match stage {
            Stage::Made if removed.get() < 2 => {
                assert!(store.remove_dead(&name).unwrap());
                removed.set(removed.get() + 1);
            }
            Stage::Named => assert!(!store.remove_dead(&name).unwrap()),
            _ => {}
        };
        let new = store.begin_at(&name, 64, &at).unwrap();
        assert!(!store.remove_dead(&name).unwrap());
        assert!(new.finish().unwrap().remove().unwrap());
        assert_eq!(removed.get(), 2);
    }

    /// Here no limit is the reason, so none must be named.
    #[test]
    fn a_refusal_for_another_reason_names_no_limit() {
        for errno in [libc::EINVAL, libc::ENOSPC] {
            let plain = explain(&own_name(3), 8192, io::Error::from_raw_os_error(errno));
            assert!(matches!(plain, StoreError::System { .. }), "{plain}");
        }
    }
}
