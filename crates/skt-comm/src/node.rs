//! Shared memory of the ranks of a group on one node.
//!
//! Each rank has a part that it alone writes, except for ranges that others write by agreement, and
//! maps the parts of all others. A part is a memory file without a name (memfd): the others open it
//! through `/proc`, and it disappears with the last process that has it, however that process dies.
//!
//! A part begins with *flags*, numbers that only rise. A rank that has written data raises one of
//! its flags; a rank that waits for that flag sees everything written before. That is the whole
//! protocol: the callers decide what a part contains, and when it may be written again. A caller
//! owns some of the doubles and flags, as its [`NodeMemory`].

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use nix::fcntl::posix_fallocate;
use nix::sys::memfd::{MFdFlags, memfd_create};

use super::collect::{all_gather, all_reduce};
use super::{Comm, Result, Tag};
use crate::pages;
use crate::tuning::TUNING;

/// Bytes before the data: the nonce, and the flags, one per cache line of 64 bytes. With longer
/// lines two flags share one; both have the same writer, as all flags of a part do.
const HEAD_BYTES: usize = 4096;
const LINE_BYTES: usize = 64;
/// The number of flags of a part.
pub const FLAGS: usize = HEAD_BYTES / LINE_BYTES - 1;

/// Never sent: a rank that waits long probes for it, so that it learns of an aborted job.
const TAG_NEVER: Tag = 0x140;

/// The memory of one group, as one rank sees it.
#[derive(Debug)]
struct Group {
    parts: Vec<Part>,
    me: usize,
    /// How often the next wait tests a flag before it yields, see
    /// [`flag_spins_least`](crate::tuning::Tuning::flag_spins_least).
    spins: AtomicU32,
}

/// The part of a group's memory that one owner on this rank has: a range of the doubles of each
/// part, and flags. No two owners share a double or a flag.
#[derive(Debug)]
pub struct NodeMemory {
    group: Arc<Group>,
    doubles: Range<usize>,
    flags: Range<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct PartInfo {
    process: u64,
    descriptor: u64,
    bytes: u64,
    /// The number at the beginning of the part: a file with the same numbers in another container
    /// has another nonce.
    nonce: u64,
}

/// The memory of one group, kept from one use to the next if it is small.
#[derive(Debug, Default)]
pub struct KeptMemory(RefCell<Option<Arc<Group>>>);

impl KeptMemory {
    /// Memory as of [`NodeMemory::new`], but with unspecified contents: only its flags are 0.
    /// Collective over `comm`, which must always be the same group, whose ranks have all dropped
    /// the memory that they took before, if any.
    pub fn take(&self, comm: &Comm, doubles: usize) -> Result<Option<NodeMemory>> {
        let mut kept = self.0.borrow_mut();
        // All ranks have kept memory or none: it depends on the sizes of all parts.
        if let Some(group) = kept.take_if(|group| Arc::strong_count(group) == 1) {
            let mut is_enough = [u8::from(group.parts[group.me].data_doubles() >= doubles)];
            all_reduce(comm, &mut is_enough, u8::min)?;
            if is_enough == [1] {
                // All ranks are in this call, so none waits for a flag any more.
                group.lower_flags();
                comm.barrier()?;
                return Ok(Some(NodeMemory::all(kept.insert(group).clone())));
            }
        }
        let made = NodeMemory::new(comm, doubles)?;
        let group = made.as_ref().map(|node| node.group.clone());
        *kept =
            group.filter(|group| group.parts.iter().all(|part| part.bytes <= TUNING.kept_bytes));
        Ok(made)
    }
}

impl Group {
    fn lower_flags(&self) {
        for flag in 0..FLAGS {
            self.parts[self.me].flag(flag).store(0, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
    }
}

impl NodeMemory {
    /// Creates memory of at least `doubles` zeros for each rank of `comm`; ranks may ask for
    /// different numbers. Returns `None`, on all ranks alike, if they do not all see each other's
    /// memory: on several nodes, or in containers. Collective.
    pub fn new(comm: &Comm, doubles: usize) -> Result<Option<Self>> {
        let own = Own::new(HEAD_BYTES + doubles * size_of::<f64>()).ok();
        let nothing = PartInfo { process: 0, descriptor: 0, bytes: 0, nonce: 0 };
        let info = own.as_ref().map_or(nothing, |own| own.info);
        let infos = all_gather(comm, &info)?;
        let me = comm.rank();
        let parts = own.and_then(|own| {
            let Own { part, file, .. } = own;
            let mut mine = Some(part);
            let parts = infos
                .iter()
                .enumerate()
                .map(|(rank, info)| if rank == me { mine.take() } else { Part::map_other(info) });
            Some((parts.collect::<Option<Vec<_>>>()?, file))
        });
        // Each rank closes its file only after all have opened it.
        let all_see = all_gather(comm, &u8::from(parts.is_some()))?.iter().all(|&sees| sees == 1);
        let spins = AtomicU32::new(TUNING.flag_spins_most);
        let group = parts.filter(|_| all_see).map(|(parts, _)| Group { parts, me, spins });
        Ok(group.map(|group| Self::all(Arc::new(group))))
    }

    /// All of the memory of a group, for the first owner on this rank.
    fn all(group: Arc<Group>) -> Self {
        let most = group.parts.iter().map(Part::data_doubles).max();
        Self { doubles: 0..most.expect("a rank"), flags: 0..FLAGS, group }
    }

    /// Splits off the first `doubles` of each part and the first `flags` of this memory, which must
    /// be left.
    pub fn split_front(&mut self, doubles: usize, flags: usize) -> Self {
        let front = |range: &mut Range<usize>, count: usize| {
            assert!(count <= range.len(), "{count} of {range:?} of a node's memory");
            let front = range.start..range.start + count;
            range.start = front.end;
            front
        };
        let (doubles, flags) = (front(&mut self.doubles, doubles), front(&mut self.flags, flags));
        Self { group: self.group.clone(), doubles, flags }
    }

    /// This rank's number in the group.
    pub fn rank(&self) -> usize {
        self.group.me
    }

    /// The number of ranks of the group.
    pub fn size(&self) -> usize {
        self.group.parts.len()
    }

    fn flag(&self, rank: usize, flag: usize) -> &AtomicU64 {
        assert!(flag < self.flags.len(), "flag {flag} of {}", self.flags.len());
        self.group.parts[rank].flag(self.flags.start + flag)
    }

    /// Doubles `range` of this memory in this rank's part, for writing.
    ///
    /// # Safety
    /// No other slice of these doubles is in use on this rank, and the other ranks do not read them
    /// until a flag is raised.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn mine(&self, range: Range<usize>) -> &mut [f64] {
        let start = self.address(self.rank(), &range);
        // SAFETY: within the part; no other reference to it is in use, by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(start, range.len()) }
    }

    /// Doubles `range` of this memory in the part of `rank`.
    ///
    /// # Safety
    /// No process writes to them while the slice is in use.
    pub unsafe fn part(&self, rank: usize, range: Range<usize>) -> &[f64] {
        let start = self.address(rank, &range);
        // SAFETY: within the part; unchanged by the caller's promise.
        unsafe { std::slice::from_raw_parts(start, range.len()) }
    }

    /// The address of doubles `range` of this memory in the part of `rank`.
    pub fn address(&self, rank: usize, range: &Range<usize>) -> *mut f64 {
        let Range { start, end } = self.doubles;
        assert!(range.end <= end - start, "{range:?} of {} doubles", end - start);
        self.group.parts[rank].doubles(&(start + range.start..start + range.end))
    }

    /// Raises a flag of this rank to `value`: a rank that sees the flag at `value` sees everything
    /// that was written before.
    pub fn raise(&self, flag: usize, value: u64) {
        // A fence, not only a release store, because rows are written past the caches.
        fence(Ordering::SeqCst);
        self.flag(self.rank(), flag).store(value, Ordering::Release);
    }

    /// Whether `rank` has raised its flag to `value` or more.
    pub fn is_raised(&self, rank: usize, flag: usize, value: u64) -> bool {
        self.flag(rank, flag).load(Ordering::Acquire) >= value
    }

    /// [`Self::is_raised`], for a caller that polls: also progresses messages, and fails if the job
    /// has been aborted.
    pub fn poll(&self, comm: &Comm, rank: usize, flag: usize, value: u64) -> Result<bool> {
        let is_raised = self.is_raised(rank, flag, value);
        if !is_raised {
            comm.probe(rank, TAG_NEVER)?;
        }
        Ok(is_raised)
    }

    /// Waits until `rank` has raised its flag to `value` or more; fails if the job is aborted.
    pub fn wait(&self, comm: &Comm, rank: usize, flag: usize, value: u64) -> Result<()> {
        let spins = self.group.spins.load(Ordering::Relaxed);
        let mut looks = 0u32;
        while !self.is_raised(rank, flag, value) {
            looks = looks.wrapping_add(1);
            if looks < spins {
                std::hint::spin_loop();
                continue;
            }
            if looks.is_multiple_of(TUNING.looks_a_probe) {
                comm.probe(rank, TAG_NEVER)?;
            }
            std::thread::yield_now();
        }
        let next = if looks < spins { spins + 2 } else { spins / 2 };
        let next = next.clamp(TUNING.flag_spins_least, TUNING.flag_spins_most);
        self.group.spins.store(next, Ordering::Relaxed);
        Ok(())
    }

    /// Waits until all other ranks have raised their flag to `value` or more.
    pub fn wait_for_others(&self, comm: &Comm, flag: usize, value: u64) -> Result<()> {
        let others = (0..self.size()).filter(|&rank| rank != self.rank());
        others.into_iter().try_for_each(|rank| self.wait(comm, rank, flag, value))
    }
}

/// The mapped part of one rank.
#[derive(Debug)]
struct Part {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: an address range; the flags determine which rank may read and write it.
unsafe impl Send for Part {}
// SAFETY: as above.
unsafe impl Sync for Part {}

impl Part {
    /// Maps a file of `bytes`, on a range for huge pages if one fits.
    fn map(file: &File, bytes: usize) -> io::Result<Self> {
        let has_huge_pages = bytes >= pages::HUGE_PAGE_BYTES;
        let place = has_huge_pages.then(|| pages::Reservation::new(bytes)).transpose()?;
        let at = place.as_ref().map_or(ptr::null_mut(), |place| place.base().as_ptr());
        let fixed = if has_huge_pages { libc::MAP_FIXED } else { 0 };
        let (access, how) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | fixed);
        // SAFETY: replaces only the mapping of our own place, which is as long, or maps at an
        // address that the system chooses.
        let base = unsafe { libc::mmap(at, bytes, access, how, file.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        if let Some(place) = place {
            place.taken(bytes);
        }
        Ok(Self { base: NonNull::new(base.cast()).expect("never mapped at 0"), bytes })
    }

    /// The part that another rank describes, if this process can see it.
    fn map_other(info: &PartInfo) -> Option<Self> {
        let bytes = usize::try_from(info.bytes).ok().filter(|&bytes| bytes >= HEAD_BYTES)?;
        let path = format!("/proc/{}/fd/{}", info.process, info.descriptor);
        let file = OpenOptions::new().read(true).write(true).open(path).ok()?;
        if file.metadata().ok()?.size() != info.bytes {
            return None;
        }
        let part = Self::map(&file, bytes).ok()?;
        if part.nonce().load(Ordering::Acquire) != info.nonce {
            return None;
        }
        // SAFETY: our own mapping; populating changes no byte, and if the system cannot do it,
        // pages are mapped as they are read.
        unsafe { libc::madvise(part.base.as_ptr().cast(), bytes, libc::MADV_POPULATE_READ) };
        Some(part)
    }

    fn data_doubles(&self) -> usize {
        (self.bytes - HEAD_BYTES) / size_of::<f64>()
    }

    fn nonce(&self) -> &AtomicU64 {
        // SAFETY: the first word of the head, aligned; only used as an atomic.
        unsafe { self.base.cast().as_ref() }
    }

    fn flag(&self, flag: usize) -> &AtomicU64 {
        assert!(flag < FLAGS, "flag {flag}");
        // SAFETY: within the head, aligned; only used as an atomic.
        unsafe { self.base.add((1 + flag) * LINE_BYTES).cast().as_ref() }
    }

    fn doubles(&self, range: &Range<usize>) -> *mut f64 {
        let end = HEAD_BYTES + range.end * size_of::<f64>();
        assert!(range.start <= range.end && end <= self.bytes, "{range:?} of a part");
        // SAFETY: within the mapping.
        unsafe { self.base.as_ptr().add(HEAD_BYTES).cast::<f64>().add(range.start) }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, unmapped once.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// This rank's part, and its description for the others.
struct Own {
    part: Part,
    file: File,
    info: PartInfo,
}

impl Own {
    fn new(bytes: usize) -> io::Result<Self> {
        let file = File::from(memfd_create("skt-hpl", MFdFlags::MFD_CLOEXEC)?);
        file.set_len(bytes as u64)?;
        let part = Part::map(&file, bytes)?;
        // Lack of memory must show now, not as a signal when a page is touched.
        posix_fallocate(file.as_fd(), 0, bytes as i64)?;
        // SAFETY: zeros that nothing else has seen yet.
        unsafe { pages::collapse(part.base, bytes) };
        // Random keys: processes on any node have different ones.
        let nonce = RandomState::new().hash_one(part.base.as_ptr() as u64) | 1;
        part.nonce().store(nonce, Ordering::Release);
        let descriptor = file.as_raw_fd() as u64;
        let process = u64::from(std::process::id());
        Ok(Self { part, file, info: PartInfo { process, descriptor, bytes: bytes as u64, nonce } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CommError;
    use crate::threads::run;

    #[test]
    fn small_memory_is_kept_and_its_flags_are_reset() {
        run(3, |comm| {
            let (kept, mut first) = (KeptMemory::default(), Vec::new());
            let large = TUNING.kept_bytes / size_of::<f64>();
            // Ranks ask for different amounts; in one round the last rank asks for too much.
            for (round, doubles) in [100, 90, 100, 5000, 4000, large, 10].iter().enumerate() {
                let node = kept.take(&comm, doubles + comm.rank())?.expect("one process");
                assert!((0..3).all(|rank| !node.is_raised(rank, 0, 1)), "round {round}");
                comm.barrier()?;
                node.raise(0, 7);
                (0..3).try_for_each(|rank| node.wait(&comm, rank, 0, 7))?;
                first.push(node.group.parts[0].nonce().load(Ordering::Relaxed));
            }
            let is_kept: Vec<bool> = first.windows(2).map(|pair| pair[0] == pair[1]).collect();
            assert_eq!(is_kept, [true, true, false, true, false, false]);
            Ok::<_, CommError>(())
        })
        .into_iter()
        .for_each(|rank| rank.unwrap());
    }

    #[test]
    fn no_two_memories_have_a_double_or_a_flag_in_common() {
        run(2, |comm| {
            let mut rest = NodeMemory::new(&comm, 10)?.expect("one process");
            let front = rest.split_front(4, 2);
            assert_eq!((front.doubles.clone(), front.flags.clone()), (0..4, 0..2));
            assert_eq!((rest.doubles.clone(), rest.flags.clone()), (4..10, 2..FLAGS));
            front.raise(1, 7);
            comm.barrier()?;
            assert!((0..2).all(|rank| front.is_raised(rank, 1, 7) && !rest.is_raised(rank, 1, 1)));
            let beyond = |ask: &dyn Fn()| {
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(ask)).is_err()
            };
            assert!(beyond(&|| assert!(!front.address(0, &(0..5)).is_null())));
            assert!(beyond(&|| front.raise(2, 1)));
            Ok::<_, CommError>(())
        })
        .into_iter()
        .for_each(|rank| rank.unwrap());
    }

    #[test]
    fn each_sees_what_the_others_wrote_before_a_flag() {
        let doubles = 300_000;
        run(4, |comm| {
            let node = NodeMemory::new(&comm, doubles + comm.rank())?.expect("one process");
            for round in 1..20u64 {
                // SAFETY: the others have read the values of the last round.
                let mine = unsafe { node.mine(0..doubles) };
                mine.fill((round * 10 + comm.rank() as u64) as f64);
                node.raise(0, round);
                for rank in 0..4 {
                    node.wait(&comm, rank, 0, round)?;
                    // SAFETY: not written before all have raised flag 1.
                    let part = unsafe { node.part(rank, 0..doubles) };
                    let want = (round * 10 + rank as u64) as f64;
                    assert!(part.iter().all(|&x| x == want), "round {round} of {rank}");
                }
                node.raise(1, round);
                node.wait_for_others(&comm, 1, round)?;
            }
            Ok::<_, CommError>(())
        })
        .into_iter()
        .for_each(|rank| rank.unwrap());
    }

    #[test]
    fn waiting_rank_is_notified_of_abort() {
        let ranks = run(3, |comm| {
            let node = NodeMemory::new(&comm, 10)?.expect("one process");
            match comm.rank() {
                0 => Err(comm.abort("over", 1)),
                1 => node.wait(&comm, 0, 3, 1),
                // A rank that polls instead of waiting.
                _ => loop {
                    if node.poll(&comm, 0, 3, 1)? {
                        return Ok(());
                    }
                },
            }
        });
        assert!(ranks.into_iter().all(|rank| rank.is_err()));
    }

    #[test]
    fn a_part_that_cannot_be_seen_is_not_taken() {
        let own = Own::new(HEAD_BYTES + 80).expect("memory");
        assert!(Part::map_other(&own.info).is_some());
        assert!(Part::map_other(&PartInfo { nonce: own.info.nonce ^ 2, ..own.info }).is_none());
        assert!(Part::map_other(&PartInfo { bytes: own.info.bytes + 1, ..own.info }).is_none());
        assert!(Part::map_other(&PartInfo { bytes: 0, ..own.info }).is_none());
        assert!(Part::map_other(&PartInfo { descriptor: 1 << 40, ..own.info }).is_none());
    }

    #[test]
    #[should_panic(expected = "of a part")]
    fn range_beyond_a_part_panics() {
        let own = Own::new(HEAD_BYTES + 80).expect("memory");
        own.part.doubles(&(5..11));
    }
}
