//! A store of System V segments.
//!
//! A key has 32 bits, so names are hashed to keys. If a key is taken by a segment of another name,
//! program or user, the next of the name's [`PROBES`] keys is tried. Only owner, creator, mode and
//! header decide what a segment is; nothing of another owner or mode is ever attached.

use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::{Ordering, fence};

use super::header::{Header, Identity, PAGE_BYTES};
use super::host::{Host, StoreHazard};
use super::segment::{Hold, Mapping, NewSegment, Segment, Touch, remove_id};
use super::{
    ATTACH_PAUSE, ATTACH_TRIES, Result, SegmentInfo, SegmentName, Stage, Store, StoreError,
    StoreId, check_bytes,
};
use skt_comm::pages::{self, pool_page_bytes, system_page_bytes};
use skt_host::process;

/// The number of keys of a name.
const PROBES: u32 = 256;
/// The mode of every segment.
const MODE: u32 = 0o600;
/// The mode bit of a segment that has been removed and waits for the last process to detach.
const SHM_DEST: u32 = 0o1000;
/// The kernel's table of segments.
const TABLE: &str = "/proc/sysvipc/shm";

/// A store of System V segments.
#[derive(Debug, Clone, Copy)]
pub struct SysV {
    huge_pages: bool,
}

/// A segment that a search has found.
struct FoundSegment {
    shmid: i32,
    key: i32,
    identity: Identity,
    bytes: usize,
    /// Processes that were attached before the first page was read.
    attached: u64,
}

impl FoundSegment {
    fn location(&self) -> String {
        format!("shmid {}, key {:#010x}", self.shmid, self.key)
    }

    /// Removes the segment if its creator has died before it was complete. The creator was attached
    /// when it wrote the name that was found here; so it is gone if no process is attached now,
    /// and if it has completed the segment, the first page shows that when it is read afterwards.
    fn remove_dead(&self) -> Result<bool> {
        let now = inspect(self.shmid, self.key)?;
        let is_dead = now.is_some_and(|now| !now.identity.is_ready && now.attached == 0);
        if is_dead { remove_id(self.shmid) } else { Ok(false) }
    }
}

impl SysV {
    /// The store. With `huge_pages`, new segments ask for pages of 2 MiB and fall back to ordinary
    /// ones, which [`Segment::note`] then reports.
    pub fn new(huge_pages: bool) -> Self {
        Self { huge_pages }
    }

    /// The segments of that name. There is one, except for the instant in which two creations find
    /// each other.
    fn find_all(name: &SegmentName) -> Result<Vec<FoundSegment>> {
        // Searches all keys, even past a free one: the foreign segment that was in the way when
        // ours was created may be gone by now.
        let rows = table()?.into_iter().filter(|row| is_key_of(name, row.key));
        let found = rows.filter_map(|row| inspect(row.shmid, row.key).transpose());
        let is_of_name = |found: &FoundSegment| found.identity.name == *name;
        found.filter(|found| found.as_ref().map_or(true, is_of_name)).collect()
    }

    /// The complete segment of that name.
    fn find_ready(name: &SegmentName) -> Result<Option<FoundSegment>> {
        Ok(Self::find_all(name)?.into_iter().find(|found| found.identity.is_ready))
    }

    /// Removes incomplete segments of that name, unless a process is working on them.
    fn make_way(name: &SegmentName) -> Result<()> {
        for tries_left in (0..ATTACH_TRIES).rev() {
            let mut is_busy = false;
            for found in Self::find_all(name)? {
                if found.identity.is_ready || !found.remove_dead()? {
                    if found.identity.is_ready || tries_left == 0 {
                        return Err(StoreError::exists(name, found.location()));
                    }
                    is_busy = true;
                }
            }
            if !is_busy {
                break;
            }
            std::thread::sleep(ATTACH_PAUSE);
        }
        Ok(())
    }

    /// Refuses if a creation at another key, begun before this segment was visible, has the same
    /// name. Each creator that sees the other gives way, so possibly both do. Finally this segment
    /// must still exist: a removed segment has lost its name, and others do not see it.
    fn check_alone(name: &SegmentName, shmid: i32) -> Result<()> {
        // Of two creators, the one that writes its first page later sees the other's.
        fence(Ordering::SeqCst);
        if let Some(other) = Self::find_all(name)?.iter().find(|other| other.shmid != shmid) {
            return Err(StoreError::exists(name, other.location()));
        }
        if is_segment(&stat(shmid)?) {
            Ok(())
        } else {
            Err(StoreError::robbed(name, format_args!("shmid {shmid}")))
        }
    }

    /// Creates a segment at one of the name's keys and returns its id.
    fn fresh(name: &SegmentName, bytes: usize, flags: i32) -> Result<i32> {
        for key in keys(name) {
            let flags = libc::IPC_CREAT | libc::IPC_EXCL | MODE as i32 | flags;
            // SAFETY: a system call without memory of ours.
            let shmid = unsafe { libc::shmget(key, bytes, flags) };
            if shmid >= 0 {
                return Ok(shmid);
            }
            let error = io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::EEXIST) {
                return Err(explain(name, bytes, error));
            }
        }
        let first = keys(name).next();
        let holder = table()?.into_iter().find(|row| Some(row.key) == first);
        let holder = holder.map_or("one that is gone".into(), |Row { key, shmid, user }| {
            format!("segment {shmid} (key {key:#010x}) of user {user}")
        });
        Err(StoreError::NoKey { name: name.clone(), tried: PROBES as usize, holder })
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
                Err(error @ StoreError::NoKey { .. }) => return Err(error),
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
}

impl Store for SysV {
    fn id(&self) -> Result<StoreId> {
        let kernel = process::kernel();
        Ok(StoreId { memory: format!("sysv {} {kernel}", process::namespace("ipc")), kernel })
    }

    fn begin_at(&self, name: &SegmentName, bytes: usize, at: &dyn Fn(Stage)) -> Result<NewSegment> {
        check_bytes(name, bytes)?;
        Self::make_way(name)?;
        // Created before the segment, which is not identified until the header is written. A
        // creator that dies before leaves a segment of no name, which is never attached: it has
        // no memory yet.
        let header = Header::new(name, bytes);
        let (shmid, page_bytes, note) = self.fresh_on_pages(name, PAGE_BYTES + bytes)?;
        at(Stage::Made);
        let mapped = stat(shmid).and_then(|stat| map_on_huge_page(shmid, stat.shm_segsz, 0));
        let mut mapping = match mapped {
            Ok(mapping) => mapping,
            Err(error) => {
                remove_id(shmid)?;
                return Err(error);
            }
        };
        // Whole pages are mapped.
        mapping.bytes = mapping.bytes.next_multiple_of(page_bytes);
        // The creation itself has reserved huge pages.
        let touch =
            if page_bytes == system_page_bytes() { Touch::TakesMemory } else { Touch::Maps };
        let (name, hold) = (name.clone(), Hold::SysV { shmid });
        let segment = Segment { name, mapping, data_bytes: bytes, page_bytes, note, hold };
        let new = NewSegment::new(segment, header, touch);
        at(Stage::Named);
        Self::check_alone(new.name(), shmid)?;
        new.advise_huge_pages();
        at(Stage::Reserved);
        Ok(new)
    }

    fn attach(&self, name: &SegmentName) -> Result<Option<Segment>> {
        let mut location = String::new();
        for _ in 0..ATTACH_TRIES {
            let Some(found) = Self::find_ready(name)? else { return Ok(None) };
            location = found.location();
            let Some(mapping) = within_reach(map_on_huge_page(found.shmid, found.bytes, 0))? else {
                // It was removed since it was found: the name may lead elsewhere.
                continue;
            };
            // Read again, now that this process is attached.
            let stat = stat(found.shmid)?;
            // Mapped just now; `find_ready` has checked the header, by which the data fits.
            // Returned only if no other process is attached.
            let segment = Segment {
                name: name.clone(),
                mapping,
                data_bytes: found.identity.data_bytes,
                page_bytes: system_page_bytes(),
                note: None,
                hold: Hold::SysV { shmid: found.shmid },
            };
            // A removed segment has lost its name: the next process creates another one.
            if stat.shm_nattch == 1 && is_segment(&stat) {
                return Ok(Some(segment));
            }
            drop(segment);
            std::thread::sleep(ATTACH_PAUSE);
        }
        match Self::find_ready(name)? {
            Some(_) => Err(StoreError::InUse { name: name.clone(), location }),
            None => Ok(None),
        }
    }

    fn peek(&self, name: &SegmentName, into: &mut [u8]) -> Result<Option<usize>> {
        let Some(found) = Self::find_ready(name)? else { return Ok(None) };
        let mapping = within_reach(map(found.shmid, found.bytes, libc::SHM_RDONLY))?;
        let Some(mapping) = mapping else { return Ok(None) };
        let bytes = found.identity.data_bytes;
        // SAFETY: `find_ready` has checked the header, by which this many bytes of data follow it.
        // Raw copies: others may be writing.
        unsafe {
            let data = mapping.base.as_ptr().add(PAGE_BYTES);
            ptr::copy_nonoverlapping(data, into.as_mut_ptr(), bytes.min(into.len()));
        }
        Ok(Some(bytes))
    }

    fn remove(&self, name: &SegmentName) -> Result<bool> {
        let all = Self::find_all(name)?;
        match all.iter().min_by_key(|found| !found.identity.is_ready) {
            Some(found) => remove_id(found.shmid),
            None => Ok(false),
        }
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
        for tries_left in (0..ATTACH_TRIES).rev() {
            let incomplete = Self::find_all(name)?.into_iter().find(|f| !f.identity.is_ready);
            match incomplete {
                None => return Ok(false),
                Some(found) if found.remove_dead()? => return Ok(true),
                Some(_) if tries_left > 0 => std::thread::sleep(ATTACH_PAUSE),
                Some(_) => {}
            }
        }
        Ok(false)
    }

    fn list_once(&self) -> Result<Vec<SegmentInfo>> {
        let info = |found: FoundSegment| SegmentInfo {
            location: found.location(),
            bytes: found.identity.data_bytes,
            is_ready: found.identity.is_ready,
            in_use: found.attached > 0,
            attached: Some(found.attached),
            creator_pid: found.identity.process.pid(),
            creator: found.identity.process.liveness(),
            created_unix_seconds: found.identity.created_unix_seconds,
            name: found.identity.name,
        };
        let found = table()?.into_iter().filter_map(|row| inspect(row.shmid, row.key).transpose());
        let mut list: Vec<SegmentInfo> =
            found.map(|found| found.map(info)).collect::<Result<_>>()?;
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
    user: u32,
}

/// The table of all segments of the machine. A line that cannot be read is not skipped, since a
/// process may hold its segment.
fn table() -> Result<Vec<Row>> {
    let reading = |error| StoreError::system(format!("reading {TABLE}"), error);
    let table = std::fs::read_to_string(TABLE).map_err(reading)?;
    let row = |line: &str| {
        // key shmid perms size cpid lpid nattch uid ...
        let fields: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse().ok();
        Some(Row { key: number(0)?, shmid: number(1)?, user: fields.get(7)?.parse().ok()? })
    };
    let unknown = |line| io::Error::other(format!("`{line}` is no line that this program knows"));
    table.lines().skip(1).map(|line| row(line).ok_or_else(|| reading(unknown(line)))).collect()
}

/// The first key of a name; different for different users.
fn first_key(name: &SegmentName) -> i32 {
    let text = format!("{name} of {}", process::user_id());
    crate::codec::checksum(text.as_bytes()) as i32
}

/// The keys of a name, in the order in which they are tried. Never IPC_PRIVATE.
fn keys(name: &SegmentName) -> impl Iterator<Item = i32> {
    let first = first_key(name);
    (0..PROBES)
        .map(move |probe| first.wrapping_add(probe as i32))
        .filter(|&key| key != libc::IPC_PRIVATE)
}

/// Whether a key is one of those of a name.
fn is_key_of(name: &SegmentName, key: i32) -> bool {
    (key.wrapping_sub(first_key(name)) as u32) < PROBES && key != libc::IPC_PRIVATE
}

fn stat(shmid: i32) -> Result<libc::shmid_ds> {
    // SAFETY: plain numbers, for which zero is a valid value.
    let mut stat: libc::shmid_ds = unsafe { std::mem::zeroed() };
    // SAFETY: the system fills in `stat`.
    match unsafe { libc::shmctl(shmid, libc::IPC_STAT, &raw mut stat) } {
        0 => Ok(stat),
        _ => Err(StoreError::last(format!("shmctl(shmid {shmid}, IPC_STAT)"))),
    }
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

/// Whether it is a segment that this user has made, that no one else may attach, and that has not
/// been removed. A creator of another user would keep its access for good.
fn is_segment(stat: &libc::shmid_ds) -> bool {
    let (user, perm) = (process::user_id(), &stat.shm_perm);
    (perm.uid, perm.cuid) == (user, user)
        && u32::from(perm.mode) & (SHM_DEST | 0o777) == MODE
        && stat.shm_segsz >= PAGE_BYTES
}

/// Reads the header of the segment, if it is one of this user with a header of this program.
/// Attaches it read-only, for an instant.
///
/// # Errors
/// When the system refuses for a reason that is not the segment's: it may be one of ours, and to
/// ignore it would give its name to two segments.
fn inspect(shmid: i32, key: i32) -> Result<Option<FoundSegment>> {
    if key == libc::IPC_PRIVATE {
        return Ok(None);
    }
    let Some(stat) = within_reach(stat(shmid))?.filter(is_segment) else { return Ok(None) };
    let bytes = stat.shm_segsz;
    let Some(mapping) = within_reach(map(shmid, bytes, libc::SHM_RDONLY))? else { return Ok(None) };
    // SAFETY: at least a page is mapped; its content may be anything.
    let header = unsafe { mapping.base.cast::<Header>().read_volatile() };
    let Some(identity) = header.identity(bytes) else { return Ok(None) };
    Ok(Some(FoundSegment { shmid, key, identity, bytes, attached: stat.shm_nattch }))
}

/// Turns the error of a segment that is gone, or not ours to read, into `None`.
fn within_reach<T>(look: Result<T>) -> Result<Option<T>> {
    match look {
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

    /// A segment of another program at `key`.
    fn foreign(key: i32) -> i32 {
        let flags = libc::IPC_CREAT | libc::IPC_EXCL | 0o600;
        // SAFETY: a system call that touches no memory of this process.
        let shmid = unsafe { libc::shmget(key, 2 * PAGE_BYTES, flags) };
        assert!(shmid >= 0, "{}", io::Error::last_os_error());
        shmid
    }

    /// A name that only this test process has.
    fn own_name(rank: u32) -> SegmentName {
        SegmentName::new(&format!("unit-{}", std::process::id()), "state", rank).unwrap()
    }

    #[test]
    fn a_key_taken_by_another_program_is_passed_by_and_left_alone() {
        let (store, name) = (SysV::new(false), own_name(1));
        let first: Vec<i32> = keys(&name).take(2).collect();
        let mut others = Ids(first.iter().map(|&key| foreign(key)).collect());
        let mut segment = store.create(&name, 64).unwrap();
        let found = SysV::find_ready(&name).unwrap().unwrap();
        let _ours = Ids(vec![found.shmid]);
        assert_eq!(Some(found.key), keys(&name).nth(2));
        segment.as_mut_slice().fill(9);
        drop(segment);
        assert_eq!(store.attach(&name).unwrap().unwrap().as_slice(), [9; 64]);
        // After the others have gone, our segment is found, and no new one is created.
        remove_id(others.0.remove(0)).unwrap();
        assert_eq!(store.attach(&name).unwrap().unwrap().as_slice(), [9; 64]);
        assert!(matches!(store.create(&name, 64), Err(StoreError::Exists { .. })));
    }

    /// Probes the segment briefly: attaches it now, and detaches it after a while.
    fn look_at(shmid: i32) -> std::thread::JoinHandle<()> {
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
        let FoundSegment { shmid, .. } = SysV::find_ready(&name).unwrap().unwrap();
        let _ours = Ids(vec![shmid]);
        segment.as_mut_slice().fill(9);
        drop(segment);
        // A probe that a busy machine prolongs is taken for a use.
        let passes_by = |is_unused: &dyn Fn() -> bool| {
            (0..100).any(|_| {
                let look = look_at(shmid);
                let is_unused = is_unused();
                look.join().unwrap();
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
        assert!(!SysV::find_all(&name).unwrap()[0].identity.is_ready);
        assert!(passes_by(&|| store.remove_unused(&name).unwrap()));
    }

    #[test]
    fn a_creator_that_attaches_after_the_count_is_at_work() {
        let (store, name) = (SysV::new(false), own_name(5));
        let new = store.begin_at(&name, 64, &|_| {}).unwrap();
        let found = SysV::find_all(&name).unwrap().remove(0);
        assert!(!FoundSegment { attached: 0, ..found }.remove_dead().unwrap());
        assert!(new.finish().unwrap().remove().unwrap());
    }

    /// Gives this thread an empty table of segments; false if that is not allowed here.
    fn is_alone() -> bool {
        let granted = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWIPC);
        if let Err(why) = granted {
            // Past the capture of a passing test's output, as tests/skipped does it.
            let line = format!("skipped: store::sysv: no IPC namespace here: {why}\n");
            let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
        }
        granted.is_ok()
    }

    #[test]
    fn taken_keys_are_skipped_and_a_refusal_names_the_holder() {
        if !is_alone() {
            return;
        }
        let (store, name) = (SysV::new(false), own_name(2));
        let few: Vec<i32> = keys(&name).take(100).map(foreign).collect();
        drop(store.create(&name, 64).unwrap());
        assert!(store.attach(&name).unwrap().is_some());
        assert!(store.remove(&name).unwrap());
        for key in keys(&name).skip(100) {
            foreign(key);
        }
        assert!(store.attach(&name).unwrap().is_none());
        assert!(!store.remove(&name).unwrap());
        let refused = store.create(&name, 64).unwrap_err().to_string();
        let holder = format!(
            "segment {} (key {:#010x}) of user {}",
            few[0],
            keys(&name).next().unwrap(),
            process::user_id()
        );
        assert!(refused.contains(&holder) && refused.contains("ipcrm -m"), "{refused}");
    }

    /// Here no limit is the reason, so none must be named.
    #[test]
    fn a_refusal_for_another_reason_names_no_limit() {
        for errno in [libc::EINVAL, libc::ENOSPC] {
            let plain = explain(&own_name(3), 8192, io::Error::from_raw_os_error(errno));
            assert!(matches!(plain, StoreError::System { .. }), "{plain}");
        }
    }

    #[test]
    fn keys_are_distinct_stable_and_never_private() {
        let name = |rank| SegmentName::new("run", "state", rank).unwrap();
        assert!(keys(&name(3)).eq(keys(&name(3))));
        for rank in 0..100 {
            let name = name(rank);
            let keys: Vec<i32> = keys(&name).collect();
            assert!(keys.len() as u32 >= PROBES - 1 && !keys.contains(&libc::IPC_PRIVATE));
            assert!(keys.iter().all(|&key| is_key_of(&name, key)));
            assert!(!is_key_of(&name, keys[0].wrapping_sub(1)));
        }
    }
}
