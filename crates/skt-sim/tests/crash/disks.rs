//! Disks that lose what was not synced when the power fails, and tear what was being written.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use skt_checkpoint::checkpoint::level::{
    Disk, FileId, Generation, IMAGE_PAGE_BYTES, ImageFile, ImageId, Slot,
};
use skt_sim::fibers::Point;

/// A file, with or without a name: its contents in the cache, and those that are safe.
#[derive(Clone, Default, Hash)]
struct Stored {
    now: Vec<u8>,
    safe: Vec<u8>,
    /// Writes since the last sync of the slot that they went to.
    unsafe_writes: Vec<(usize, Vec<u8>)>,
    writers: BTreeSet<usize>,
}

/// A disk, between two starts or during one.
#[derive(Clone, Default)]
pub struct Platter {
    /// All files that have a name (in the cache or safe), or are in use.
    files: BTreeMap<usize, Stored>,
    names: BTreeMap<FileId, usize>,
    safe_names: BTreeMap<FileId, usize>,
    files_made: usize,
    /// The number of operations after which all fail, as on a full disk.
    pub fails_after: Option<u64>,
    operations: u64,
    /// The number of reads that have failed while images were loaded.
    pub failed_loads: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// All of it has reached the disk in time.
    Nothing,
    /// All of it is lost.
    All,
    /// Each name and each write is lost, kept or torn by chance.
    Chance(u64),
}

fn chance(seed: &mut u64, of: u64) -> u64 {
    *seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
    (*seed >> 33) % of
}

impl Stored {
    fn cut(&mut self, how: &mut Cut) {
        let len = self.now.len();
        match how {
            Cut::Nothing => self.safe.clone_from(&self.now),
            Cut::All => {}
            Cut::Chance(seed) => {
                if self.safe.len() < len && chance(seed, 2) == 0 {
                    self.safe.resize(len, 0);
                }
                for (at, bytes) in &self.unsafe_writes {
                    let kept = match chance(seed, 3) {
                        0 => 0,
                        1 => bytes.len(),
                        _ => chance(seed, bytes.len() as u64 + 1) as usize,
                    };
                    let end = self.safe.len().max(at + kept);
                    self.safe.resize(end, 0);
                    self.safe[*at..at + kept].copy_from_slice(&bytes[..kept]);
                }
            }
        }
        self.now.clone_from(&self.safe);
        self.unsafe_writes.clear();
    }

    fn slot(&self, file: FileId, rank: usize) -> Range<usize> {
        let bytes = self.now.len() / file.ranks.count();
        let place = file.ranks.place_of(rank).expect("a rank of the file");
        place * bytes..(place + 1) * bytes
    }
}

impl Platter {
    pub fn cut(&mut self, mut how: Cut) {
        let files: BTreeSet<FileId> =
            self.names.keys().chain(self.safe_names.keys()).copied().collect();
        let mut names = BTreeMap::new();
        for file in files {
            let (now, safe) = (self.names.get(&file), self.safe_names.get(&file));
            let left = match &mut how {
                Cut::Nothing => now,
                Cut::Chance(seed) if now != safe => [now, safe][chance(seed, 2) as usize],
                Cut::All | Cut::Chance(_) => safe,
            };
            names.extend(left.map(|&stored| (file, stored)));
        }
        (self.names, self.safe_names) = (names.clone(), names);
        self.close_all();
        self.files.values_mut().for_each(|stored| stored.cut(&mut how));
    }

    /// No process uses files any more: those without a name disappear.
    pub fn close_all(&mut self) {
        let named = self.names.values().chain(self.safe_names.values());
        let named: BTreeSet<usize> = named.copied().collect();
        self.files.retain(|stored, _| named.contains(stored));
        assert!(self.files.values().all(|stored| stored.writers.is_empty()), "all have ended");
    }

    /// Hashes everything that the next start can see, and that the next power cut can leave.
    pub fn hash_into(&self, hasher: &mut impl Hasher) {
        for names in [&self.names, &self.safe_names] {
            names.iter().for_each(|(file, stored)| (file, &self.files[stored]).hash(hasher));
            names.len().hash(hasher);
        }
    }

    pub fn files(&self) -> Vec<FileId> {
        self.names.keys().copied().collect()
    }

    pub fn images(&self) -> Vec<ImageId> {
        self.names.keys().flat_map(|file| file.images()).collect()
    }

    /// The bytes of an image, for a test to spoil.
    pub fn bytes_mut(&mut self, id: ImageId) -> &mut [u8] {
        let named = self.names.iter().find(|(file, _)| file.has(id));
        let (&file, stored) = named.expect("it is there");
        let stored = self.files.get_mut(stored).expect("a name is of a file");
        let slot = stored.slot(file, id.rank);
        &mut stored.now[slot]
    }
}

/// The checker's own book of sealed images: the ranks that have sealed one, by generation.
#[derive(Clone, Default, Debug)]
pub struct Sealed(pub BTreeMap<Generation, BTreeSet<usize>>);

/// How a disk fails to a process during a whole start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Every operation fails.
    Dead,
    /// Names can be listed; the contents of files cannot be read.
    Unreadable,
    /// Nothing can be changed.
    ReadOnly,
    /// Others have taken all space.
    Full,
    /// The images of [`SimDisk::spoiled`] are whole when a start lists them; when it loads them,
    /// their files are gone.
    GoneAtLoad,
    /// The images of [`SimDisk::spoiled`] are whole when a start lists them; when it loads them,
    /// their bodies cannot be read to the end.
    TornAtLoad,
    /// The images of [`SimDisk::spoiled`] are whole when a start lists them; when it loads them,
    /// their bodies have other bytes.
    OtherAtLoad,
}

#[derive(Clone)]
pub struct SimDisk {
    pub platter: Arc<Mutex<Platter>>,
    pub fault: Option<Fault>,
    pub point: Point,
    pub sealed: Arc<Mutex<Sealed>>,
    pub is_loading: Arc<AtomicBool>,
    /// The generation that a fault at loading affects.
    pub spoiled: Option<Generation>,
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a simulated disk")
    }
}

impl SimDisk {
    fn step(&self, what: &'static str) -> io::Result<()> {
        self.point.step(&what).map_err(io::Error::other)?;
        self.refuse(&[Fault::Dead, Fault::ReadOnly])?;
        let mut platter = self.platter.lock().unwrap();
        platter.operations += 1;
        match platter.fails_after {
            Some(last) if platter.operations > last => Err(io::Error::other("the disk is full")),
            _ => Ok(()),
        }
    }

    /// Whether this fault affects a file from which an image is being loaded.
    fn spoils(&self, file: FileId, fault: Fault) -> bool {
        self.fault == Some(fault)
            && self.is_loading.load(Ordering::Relaxed)
            && self.spoiled == Some(file.generation)
    }

    fn refuse(&self, faults: &[Fault]) -> io::Result<()> {
        match self.fault {
            Some(fault) if faults.contains(&fault) => Err(io::Error::other(format!("{fault:?}"))),
            _ => Ok(()),
        }
    }
}

/// An open slot of a file, which survives the removal of the file's name.
struct SimSlot {
    disk: SimDisk,
    file: FileId,
    rank: usize,
    stored: usize,
    bytes: Range<usize>,
    is_written: bool,
}

impl Drop for SimSlot {
    fn drop(&mut self) {
        if self.is_written {
            let mut platter = self.disk.platter.lock().unwrap();
            let stored = platter.files.get_mut(&self.stored).expect("it is in use");
            stored.writers.remove(&self.rank);
        }
    }
}

impl SimSlot {
    fn new(disk: &SimDisk, file: FileId, rank: usize, stored: usize, is_written: bool) -> Self {
        let bytes = disk.platter.lock().unwrap().files[&stored].slot(file, rank);
        Self { disk: disk.clone(), file, rank, stored, bytes, is_written }
    }

    fn place(&self, at: u64, len: usize) -> Range<usize> {
        let start = self.bytes.start + at as usize;
        assert!(start + len <= self.bytes.end, "within the slot");
        start..start + len
    }

    fn write(&self, place: usize, bytes: &[u8]) {
        let mut guard = self.disk.platter.lock().unwrap();
        let platter = &mut *guard;
        let stored = platter.files.get_mut(&self.stored).expect("it is in use");
        if bytes.starts_with(b"SKTIMAG") {
            assert_eq!(
                platter.safe_names.get(&self.file),
                Some(&self.stored),
                "safe before the seal"
            );
            let is_safe = stored.unsafe_writes.iter().all(|(at, _)| !self.bytes.contains(at));
            assert!(is_safe, "the body is safe before the seal is written");
        }
        stored.now[place..place + bytes.len()].copy_from_slice(bytes);
        stored.unsafe_writes.push((place, bytes.to_vec()));
    }
}

impl Disk for SimDisk {
    fn list(&self) -> io::Result<Vec<FileId>> {
        self.refuse(&[Fault::Dead])?;
        Ok(self.platter.lock().unwrap().files())
    }

    fn create(&self, generation: Generation, slot: &Slot) -> io::Result<Box<dyn ImageFile>> {
        self.step("image create")?;
        self.refuse(&[Fault::Full])?;
        let mut guard = self.platter.lock().unwrap();
        let platter = &mut *guard;
        let &Slot { rank, ranks, bytes } = slot;
        let (file, len) = (FileId { generation, ranks }, ranks.count() * bytes as usize);
        let number = *platter.names.entry(file).or_insert_with(|| {
            platter.files_made += 1;
            platter.files.insert(platter.files_made, Stored::default());
            platter.files_made
        });
        let stored = platter.files.get_mut(&number).expect("it has a name");
        assert!([0, len].contains(&stored.now.len()), "its ranks agree on its size");
        assert!(stored.writers.insert(rank), "{rank} writes to {file:?} already");
        stored.now.resize(len, 0);
        drop(guard);
        Ok(Box::new(SimSlot::new(self, file, rank, number, true)))
    }

    fn open(&self, file: FileId, rank: usize) -> io::Result<Box<dyn ImageFile>> {
        self.refuse(&[Fault::Dead])?;
        let number = self.platter.lock().unwrap().names.get(&file).copied();
        let number = number.filter(|_| !self.spoils(file, Fault::GoneAtLoad));
        let number = number.ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(SimSlot::new(self, file, rank, number, false)))
    }

    fn remove(&self, file: FileId) -> io::Result<()> {
        self.step("image remove")?;
        let mut platter = self.platter.lock().unwrap();
        let removed = platter.names.remove(&file);
        let is_written = removed.is_some_and(|number| !platter.files[&number].writers.is_empty());
        drop(platter);
        assert!(!is_written, "{file:?} is written to by some rank when it is removed");
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        self.step("image names")?;
        let mut platter = self.platter.lock().unwrap();
        platter.safe_names = platter.names.clone();
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.refuse(&[Fault::Dead])?;
        Ok(if self.fault == Some(Fault::Full) { 0 } else { 1 << 40 })
    }
}

impl ImageFile for SimSlot {
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let stepped = self.disk.step("image write");
        let place = self.place(at, bytes.len()).start;
        // A process that dies in a write has written a part of it.
        self.write(place, if stepped.is_ok() { bytes } else { &bytes[..bytes.len() / 2] });
        stepped
    }

    fn read_at(&mut self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.disk.refuse(&[Fault::Dead, Fault::Unreadable])?;
        let place = self.place(at, into.len());
        into.copy_from_slice(&self.disk.platter.lock().unwrap().files[&self.stored].now[place]);
        if at > IMAGE_PAGE_BYTES as u64 && self.disk.spoils(self.file, Fault::TornAtLoad) {
            self.disk.platter.lock().unwrap().failed_loads += 1;
            return Err(io::Error::other("not to its end"));
        }
        if at >= IMAGE_PAGE_BYTES as u64 && self.disk.spoils(self.file, Fault::OtherAtLoad) {
            into.iter_mut().for_each(|byte| *byte ^= 1);
        }
        Ok(())
    }

    /// Makes the contents of this process's slot safe, and the size of the file: no process may
    /// rely on what the kernel does with other slots.
    fn sync(&mut self) -> io::Result<()> {
        self.disk.step("image sync")?;
        let mut guard = self.disk.platter.lock().unwrap();
        let platter = &mut *guard;
        let is_named = platter.safe_names.get(&self.file) == Some(&self.stored);
        let stored = platter.files.get_mut(&self.stored).expect("it is in use");
        stored.safe.resize(stored.now.len(), 0);
        let own = self.bytes.clone();
        stored.safe[own.clone()].copy_from_slice(&stored.now[own.clone()]);
        stored.unsafe_writes.retain(|(at, _)| !own.contains(at));
        if stored.safe[own].starts_with(b"SKTIMAG") && is_named {
            let mut sealed = self.disk.sealed.lock().unwrap();
            sealed.0.entry(self.file.generation).or_default().insert(self.rank);
        }
        Ok(())
    }

    fn discard(&mut self) -> io::Result<()> {
        let stepped = self.disk.step("image discard");
        if stepped.is_ok() {
            let now = self.disk.platter.lock().unwrap().files[&self.stored].now.clone();
            let has_seal = now[self.bytes.clone()].starts_with(b"SKTIMAG");
            assert!(!has_seal, "no hole is made below a seal");
            self.write(self.bytes.start, &vec![0; self.bytes.len()]);
        }
        stepped
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.bytes.len() as u64)
    }
}
