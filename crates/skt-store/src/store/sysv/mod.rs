//! A store of System V segments.
//!
//! A key has 32 bits, so names are hashed to keys. If a key is taken by a segment of another name,
//! program or user, the next of the name's [`PROBES`] keys is tried. Only owner, creator, mode and
//! header decide what a segment is.

mod stub;

use std::io;
use std::ptr::{self, NonNull};

use super::header::{Header, Identity, PAGE_BYTES};
use super::hold::{Hold, remove_id};
use super::host::{Host, StoreHazard};
use super::segment::{NewSegment, Segment, Touch, View};
use super::stub::{Flaw, Stub, StubLocation};
use super::{
    ATTACH_PAUSE, ATTACH_TRIES, PROBE_PAUSE, PROBE_ROUNDS, Result, SegmentInfo, SegmentName, Stage,
    Store, StoreError, StoreId, check_bytes,
};
use skt_comm::pages::{self, pool_page_bytes, system_page_bytes};
use skt_host::process;
use stub::{MARK, MODE, Row, marked_bytes, max_bytes};

/// The number of keys of a name: as many as segments can exist, unless the system is configured for
/// more. A user who takes all of them has used up the segments, too.
const PROBES: u32 = 4096;
/// The mode bit of a segment that has been removed and waits for the last process to detach.
const SHM_DEST: u32 = 0o1000;

/// A store of System V segments.
#[derive(Debug, Clone, Copy)]
pub struct SysV {
    huge_pages: bool,
}

/// A segment that a search has found.
struct FoundSegment {
    shmid: i32,
    identity: Identity,
    attached: u64,
    key: i32,
}

impl FoundSegment {
    fn location(&self) -> String {
        location(self.shmid, self.key)
    }

    /// Removes the segment if its creator has died before it was complete: no process is attached
    /// to it then, and none ever will be. The attached processes were counted before the first page
    /// was read, so a segment that its creator has completed in between is seen as complete.
    fn remove_dead(&self) -> Result<bool> {
        if self.identity.is_ready || self.attached > 0 { Ok(false) } else { remove_id(self.shmid) }
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
        let found = own_rows(name)?.into_iter().filter_map(|row| inspect(row.shmid).transpose());
        let is_of_name = |found: &FoundSegment| found.identity.name == *name;
        found.filter(|found| found.as_ref().map_or(true, is_of_name)).collect()
    }

    /// The segment of that name, complete or not; a complete one if there is any.
    fn find(&self, name: &SegmentName) -> Result<Option<FoundSegment>> {
        Ok(Self::find_all(name)?.into_iter().min_by_key(|found| !found.identity.is_ready))
    }

    /// Removes incomplete segments of that name, unless a process is working on them, and dead or
    /// damaged ones at its keys. A damaged segment in use keeps the name: the process that uses it
    /// relies on it.
    fn make_way(&self, name: &SegmentName) -> Result<()> {
        let exists = |location| Err(StoreError::Exists { name: name.clone(), location });
        for tries_left in (0..ATTACH_TRIES).rev() {
            let mut busy = None;
            for stub in own_rows(name)?.iter().filter_map(Row::stub) {
                if stub.is_dead() {
                    self.remove_stub(&stub)?;
                } else if stub.in_use && matches!(stub.flaw, Flaw::Damaged(_)) {
                    busy = Some(stub.location);
                }
            }
            for found in Self::find_all(name)? {
                if found.identity.is_ready {
                    return exists(found.location());
                }
                if !found.remove_dead()? {
                    busy = Some(found.location());
                }
            }
            match busy {
                None => return Ok(()),
                Some(location) if tries_left == 0 => return exists(location),
                Some(_) => std::thread::sleep(ATTACH_PAUSE),
            }
        }
        Ok(())
    }

    /// Refuses if a creation at another key, begun before this segment was visible, has the same
    /// name. Each creator that sees the other gives way, so possibly both do. Finally this segment
    /// must still exist: a removed segment has lost its name, and others do not see it.
    fn check_alone(name: &SegmentName, shmid: i32) -> Result<()> {
        if let Some(other) = Self::find_all(name)?.iter().find(|other| other.shmid != shmid) {
            return Err(StoreError::Exists { name: name.clone(), location: other.location() });
        }
        if is_segment(&stat(shmid)?) {
            Ok(())
        } else {
            Err(StoreError::robbed(name, format_args!("shmid {shmid}")))
        }
    }

    /// Creates a segment at one of the name's keys, of at least `bytes`, with the marks of a stub.
    /// Returns its id.
    fn fresh(name: &SegmentName, bytes: usize, flags: i32) -> Result<i32> {
        for key in keys(name) {
            let flags = libc::IPC_CREAT | libc::IPC_EXCL | MARK as i32 | flags;
            // SAFETY: a system call without memory of ours.
            let shmid = unsafe { libc::shmget(key, marked_bytes(key, bytes), flags) };
            if shmid >= 0 {
                return Ok(shmid);
            }
            let error = io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::EEXIST) {
                return Err(explain(name, max_bytes(bytes), error));
            }
        }
        let first = keys(name).next();
        let holder = stub::table()?.into_iter().find(|row| Some(row.key) == first);
        let holder = holder.map_or("one that is gone".into(), |row| row.holder());
        Err(StoreError::NoKey { name: name.clone(), tried: PROBES as usize, holder })
    }

    /// Creates a segment as [`SysV::fresh`] does, on huge pages if they were asked for and are
    /// granted.
    fn fresh_on_pages(&self, name: &SegmentName, bytes: usize) -> Result<Fresh> {
        let mut note = None;
        if self.huge_pages {
            match Self::fresh(name, bytes, libc::SHM_HUGETLB) {
                Ok(shmid) => return Ok(Fresh { shmid, page_bytes: pool_page_bytes(), note }),
                Err(error @ StoreError::NoKey { .. }) => return Err(error),
                Err(error) => {
                    note = Some(format!(
                        "no huge pages, ordinary ones instead ({error}); it needs sysctl -w \
                         vm.nr_hugepages={} for each rank of the node, and the group in \
                         vm.hugetlb_shm_group",
                        max_bytes(bytes).div_ceil(pool_page_bytes())
                    ));
                }
            }
        }
        let most = max_bytes(bytes) as u64;
        Host::this().check_memory(name, most, most)?;
        Ok(Fresh { shmid: Self::fresh(name, bytes, 0)?, page_bytes: system_page_bytes(), note })
    }
}

/// A segment that was just created: its id, the size of its pages, and a note for the user.
struct Fresh {
    shmid: i32,
    page_bytes: usize,
    note: Option<String>,
}

impl Store for SysV {
    fn id(&self) -> Result<StoreId> {
        let kernel = process::kernel();
        Ok(StoreId { memory: format!("sysv {} {kernel}", process::namespace("ipc")), kernel })
    }

    fn begin_at(&self, name: &SegmentName, bytes: usize, at: &dyn Fn(Stage)) -> Result<NewSegment> {
        check_bytes(name, bytes)?;
        self.make_way(name)?;
        // Created before the segment, which is not identified until the header is written.
        let header = Header::new(name, bytes);
        let Fresh { shmid, page_bytes, note } = self.fresh_on_pages(name, PAGE_BYTES + bytes)?;
        at(Stage::Made);
        let mapped = stat(shmid).and_then(|stat| {
            let bytes = stat.shm_segsz;
            Ok((bytes, map_on_huge_page(shmid, bytes, 0)?))
        });
        let (segment_bytes, base) = match mapped {
            Ok(mapped) => mapped,
            Err(error) => {
                remove_id(shmid)?;
                return Err(error);
            }
        };
        // The bytes that are mapped: whole pages.
        let mapped_bytes = segment_bytes.next_multiple_of(page_bytes);
        // The creation itself has reserved huge pages.
        let touch =
            if page_bytes == system_page_bytes() { Touch::TakesMemory } else { Touch::Maps };
        let hold = Hold::SysV { shmid };
        let name = name.clone();
        // Mapped just now, with room for the header and the data.
        let segment =
            Segment { name, base, mapped_bytes, data_bytes: bytes, page_bytes, note, hold };
        let new = NewSegment::new(segment, header, touch);
        unmark(shmid)?;
        at(Stage::Named);
        Self::check_alone(new.name(), shmid)?;
        // SAFETY: our mapping; refused advice only costs speed.
        unsafe { libc::madvise(base.as_ptr().cast(), mapped_bytes, libc::MADV_HUGEPAGE) };
        at(Stage::Reserved);
        Ok(new)
    }

    fn attach(&self, name: &SegmentName) -> Result<Option<Segment>> {
        for _ in 0..ATTACH_TRIES {
            let Some(found) = self.find(name)?.filter(|found| found.identity.is_ready) else {
                return Ok(None);
            };
            let mapped = stat(found.shmid)
                .and_then(|before| map_on_huge_page(found.shmid, before.shm_segsz, 0));
            let base = match mapped {
                // It was removed since it was found: the name may lead elsewhere.
                Err(error) if is_out_of_reach(&error) => continue,
                mapped => mapped?,
            };
            // Read again, now that this process is attached.
            let stat = stat(found.shmid)?;
            // Mapped just now; `find` has checked the header, by which the data fits. Returned only
            // if no other process is attached.
            let segment = Segment {
                name: name.clone(),
                base,
                mapped_bytes: stat.shm_segsz.next_multiple_of(PAGE_BYTES),
                data_bytes: found.identity.data_bytes,
                page_bytes: system_page_bytes(),
                note: None,
                hold: Hold::SysV { shmid: found.shmid },
            };
            // A removed segment has lost its name: the next process creates another one.
            let is_named = is_segment(&stat) && stat.shm_perm.__key == found.key;
            if stat.shm_nattch == 1 && is_named {
                return Ok(Some(segment));
            }
            drop(segment);
            std::thread::sleep(ATTACH_PAUSE);
        }
        match self.find(name)? {
            Some(found) => {
                Err(StoreError::InUse { name: name.clone(), location: found.location() })
            }
            None => Ok(None),
        }
    }

    fn peek(&self, name: &SegmentName, into: &mut [u8]) -> Result<Option<usize>> {
        let Some(found) = self.find(name)?.filter(|found| found.identity.is_ready) else {
            return Ok(None);
        };
        let Some(base) = within_reach(map(found.shmid, libc::SHM_RDONLY))? else { return Ok(None) };
        let bytes = found.identity.data_bytes;
        // SAFETY: `find` has checked the header, by which this many bytes of data follow it. Raw
        // copies: others may be writing.
        unsafe {
            let data = base.as_ptr().add(PAGE_BYTES);
            ptr::copy_nonoverlapping(data, into.as_mut_ptr(), bytes.min(into.len()));
            libc::shmdt(base.as_ptr().cast());
        }
        Ok(Some(bytes))
    }

    fn view(&self, name: &SegmentName) -> Result<Option<View>> {
        let Some(found) = self.find(name)?.filter(|found| found.identity.is_ready) else {
            return Ok(None);
        };
        let Some(stat) = within_reach(stat(found.shmid))? else { return Ok(None) };
        let mapped_bytes = stat.shm_segsz.next_multiple_of(PAGE_BYTES);
        let base = map_on_huge_page(found.shmid, mapped_bytes, libc::SHM_RDONLY);
        let Some(base) = within_reach(base)? else { return Ok(None) };
        // SAFETY: mapped just now; `find` has checked the header, by which the data fits.
        let view =
            unsafe { View::from_mapped(base, mapped_bytes, found.identity.data_bytes, true) };
        Ok(Some(view))
    }

    fn remove(&self, name: &SegmentName) -> Result<bool> {
        match self.find(name)? {
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
        let user = process::user_id();
        let rows = stub::table()?.into_iter().filter(|row| row.is_segment_of(user));
        let found = rows.filter_map(|row| inspect(row.shmid).transpose());
        let mut list: Vec<SegmentInfo> =
            found.map(|found| found.map(info)).collect::<Result<_>>()?;
        list.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(list)
    }

    fn stubs(&self) -> Result<Vec<Stub>> {
        let now = || Ok(stub::table()?.iter().filter_map(Row::stub).collect::<Vec<_>>());
        let mut stubs = now()?;
        for _ in 0..PROBE_ROUNDS {
            if stubs.iter().all(|stub| !stub.in_use) {
                break;
            }
            std::thread::sleep(PROBE_PAUSE);
            stubs = now()?;
        }
        Ok(stubs)
    }

    fn remove_stub(&self, stub: &Stub) -> Result<bool> {
        let StubLocation::SysV(shmid) = stub.place else { return Ok(false) };
        // It may have become a segment since, or have got a process.
        let is_as_it_was = |now: &Stub| now.flaw == stub.flaw && (stub.in_use || !now.in_use);
        match stub::table()?.iter().find(|row| row.shmid == shmid).and_then(Row::stub) {
            Some(now) if is_as_it_was(&now) => remove_id(shmid),
            _ => Ok(false),
        }
    }

    fn hazards(&self, bytes_on_host: u64, bytes_largest: u64) -> Vec<StoreHazard> {
        let host = Host::this();
        let mut hazards = host.common_hazards(bytes_on_host);
        hazards.extend(host.sysv_hazards(bytes_on_host, bytes_largest));
        hazards
    }
}

fn location(shmid: i32, key: i32) -> String {
    format!("shmid {shmid}, key {key:#010x}")
}

/// This user's segments at the keys of a name, in the order of the keys.
fn own_rows(name: &SegmentName) -> Result<Vec<Row>> {
    let user = process::user_id();
    let mut rows: Vec<(u32, Row)> = stub::table()?
        .into_iter()
        .filter(|row| row.is_own(user))
        .filter_map(|row| Some((probe(name, row.key)?, row)))
        .collect();
    rows.sort_by_key(|(probe, _)| *probe);
    Ok(rows.into_iter().map(|(_, row)| row).collect())
}

/// Marks that the first page of a segment is written, by a plain mode.
fn unmark(shmid: i32) -> Result<()> {
    let mut stat = stat(shmid)?;
    stat.shm_perm.mode = MODE as _;
    // SAFETY: the system reads `stat`.
    match unsafe { libc::shmctl(shmid, libc::IPC_SET, &raw mut stat) } {
        0 => Ok(()),
        _ => Err(StoreError::last(format!("shmctl(shmid {shmid}, IPC_SET)"))),
    }
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
        .filter(|&k| k != libc::IPC_PRIVATE)
}

/// The position of a key among those of a name, if it is one of them.
fn probe(name: &SegmentName, key: i32) -> Option<u32> {
    let probe = key.wrapping_sub(first_key(name)) as u32;
    (probe < PROBES && key != libc::IPC_PRIVATE).then_some(probe)
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

fn map(shmid: i32, flags: i32) -> Result<NonNull<u8>> {
    // SAFETY: the system chooses a free address.
    mapped(shmid, unsafe { libc::shmat(shmid, ptr::null(), flags) })
}

/// What `shmat` has just returned for this segment.
fn mapped(shmid: i32, base: *mut libc::c_void) -> Result<NonNull<u8>> {
    if base as isize == -1 {
        let source = io::Error::last_os_error();
        return Err(StoreError::unmapped(format!("shmat(shmid {shmid})"), source));
    }
    Ok(NonNull::new(base.cast()).expect("never mapped at 0"))
}

/// Maps a segment at the beginning of a huge page: only then does this process see the huge pages
/// that the segment has in memory.
fn map_on_huge_page(shmid: i32, bytes: usize, flags: i32) -> Result<NonNull<u8>> {
    let Ok(place) = pages::Reservation::for_any_pages(bytes) else { return map(shmid, flags) };
    // SAFETY: replaces only the mapping of our own place, which is long enough for ordinary pages
    // and for those of the pool: which of them the segment has is not known here.
    let base = unsafe { libc::shmat(shmid, place.base().as_ptr(), flags | libc::SHM_REMAP) };
    let base = mapped(shmid, base)?;
    place.taken(bytes);
    Ok(base)
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
fn inspect(shmid: i32) -> Result<Option<FoundSegment>> {
    let Some(stat) = within_reach(stat(shmid))?.filter(is_segment) else { return Ok(None) };
    let header = within_reach(read_header(shmid))?;
    let Some(identity) = header.and_then(|header| header.identity(stat.shm_segsz)) else {
        return Ok(None);
    };
    let key = stat.shm_perm.__key;
    // The count was read before this process attached the segment.
    Ok(Some(FoundSegment { shmid, identity, attached: stat.shm_nattch, key }))
}

/// Reads the header of a segment of at least one page.
fn read_header(shmid: i32) -> Result<Header> {
    let base = map(shmid, libc::SHM_RDONLY)?;
    // SAFETY: at least a page is mapped; its content may be anything.
    let header = unsafe { base.cast::<Header>().read_volatile() };
    // SAFETY: mapped just now; no reference is left.
    unsafe { libc::shmdt(base.as_ptr().cast()) };
    Ok(header)
}

/// Turns the error of a segment that is gone, or not ours to read, into `None`.
fn within_reach<T>(look: Result<T>) -> Result<Option<T>> {
    match look {
        Err(error) if is_out_of_reach(&error) => Ok(None),
        found => found.map(Some),
    }
}

/// Whether the segment is gone, or not ours to read.
fn is_out_of_reach(error: &StoreError) -> bool {
    let StoreError::System { source, .. } = error else { return false };
    matches!(source.raw_os_error(), Some(libc::EINVAL | libc::EIDRM | libc::EACCES))
}

/// The error for a refused `shmget`, with the name of the limit that prevents it.
fn explain(name: &SegmentName, bytes: usize, error: io::Error) -> StoreError {
    let limits = Host::this().sysv_limits();
    let bytes_wanted = bytes as u64;
    let limit = |limit, value, enough, wanted| StoreError::Limit {
        name: name.clone(),
        limit,
        value,
        enough,
        wanted,
    };
    match error.raw_os_error() {
        Some(libc::EINVAL) if bytes_wanted > limits.shmmax_bytes => limit(
            "kernel.shmmax",
            limits.shmmax_bytes,
            bytes_wanted,
            format!("a segment of {bytes} bytes"),
        ),
        Some(libc::ENOSPC) if limits.segments >= limits.shmmni => limit(
            "kernel.shmmni",
            limits.shmmni,
            2 * limits.shmmni,
            format!("segment number {}", limits.segments + 1),
        ),
        Some(libc::ENOSPC) => limit(
            "kernel.shmall",
            limits.shmall_pages,
            limits.used_pages.saturating_add(bytes_wanted.div_ceil(limits.page_bytes.get())),
            format!("{bytes} bytes in addition to {} pages in use", limits.used_pages),
        ),
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
        let found = store.find(&name).unwrap().unwrap();
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
        let base = map(shmid, libc::SHM_RDONLY).unwrap().as_ptr() as usize;
        std::thread::spawn(move || {
            std::thread::sleep(ATTACH_PAUSE * 2);
            // SAFETY: mapped above; no reference is left.
            unsafe { libc::shmdt(base as *const libc::c_void) };
        })
    }

    #[test]
    fn brief_probe_is_not_counted_as_use() {
        let (store, name) = (SysV::new(false), own_name(4));
        let mut segment = store.create(&name, 64).unwrap();
        let FoundSegment { shmid, .. } = store.find(&name).unwrap().unwrap();
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
        let base = map(shmid, 0).unwrap();
        // SAFETY: the first page of our own mapping, which no one else uses.
        unsafe {
            base.as_ptr().write_bytes(0, PAGE_BYTES);
            base.cast::<Header>().write(Header::new(&name, 64));
            libc::shmdt(base.as_ptr().cast());
        }
        assert!(!store.find(&name).unwrap().unwrap().identity.is_ready);
        assert!(passes_by(&|| store.remove_unused(&name).unwrap()));
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

    #[test]
    fn a_refusal_names_the_limit() {
        let bytes = 8192;
        let einval = io::Error::from_raw_os_error(libc::EINVAL);
        // Here the limit is not the reason, so none must be named.
        let plain = explain(&own_name(3), bytes, einval);
        assert!(matches!(plain, StoreError::System { .. }), "{plain}");
        let enospc = io::Error::from_raw_os_error(libc::ENOSPC);
        let all = explain(&own_name(3), bytes, enospc).to_string();
        assert!(all.contains("kernel.shmall") && all.contains("sysctl -w"), "{all}");
    }

    #[test]
    fn keys_are_distinct_stable_and_never_private() {
        let name = |rank| SegmentName::new("run", "state", rank).unwrap();
        assert!(keys(&name(3)).eq(keys(&name(3))));
        for rank in 0..100 {
            let name = name(rank);
            let keys: Vec<i32> = keys(&name).collect();
            assert!(keys.len() as u32 >= PROBES - 1 && !keys.contains(&libc::IPC_PRIVATE));
            assert_eq!(
                keys[..3].iter().map(|&k| probe(&name, k)).collect::<Vec<_>>(),
                [Some(0), Some(1), Some(2)]
            );
            assert_eq!(probe(&name, keys[0].wrapping_sub(1)), None);
        }
    }
}
