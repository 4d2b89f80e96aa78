//! Disks that lose what was not synced when the power fails, and tear what was being
//! written.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::io;
use std::sync::{Arc, Mutex};

use skt_checkpoint::checkpoint::level::{Disk, Generation, ImageFile, ImageId};
use skt_checkpoint::comm::sim::Point;

/// A file: what is in the cache, and what is safe.
#[derive(Clone, Default, Hash)]
struct Stored {
    now: Vec<u8>,
    safe: Vec<u8>,
    /// Writes since the last sync.
    unsafe_writes: Vec<(usize, Vec<u8>)>,
}

/// A disk between two starts, or in one.
#[derive(Clone, Default)]
pub struct Platter {
    /// All files that have a name, in the cache or safe.
    files: BTreeMap<ImageId, Stored>,
    names: BTreeSet<ImageId>,
    safe_names: BTreeSet<ImageId>,
    /// Operations that fail from this one on, as on a full disk.
    pub fails_after: Option<u64>,
    operations: u64,
}

/// What a power cut does to what is not safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// All of it has reached the disk in time.
    Nothing,
    /// All of it is lost.
    All,
    /// Of each name and write by chance: lost, kept, or torn.
    Chance(u64),
}

fn chance(seed: &mut u64, of: u64) -> u64 {
    *seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
    (*seed >> 33) % of
}

impl Platter {
    /// The power fails, and comes back.
    pub fn cut(&mut self, mut how: Cut) {
        let mut lost_names = Vec::new();
        for (&id, stored) in &mut self.files {
            let is_safe = self.safe_names.contains(&id);
            let is_there = match &mut how {
                Cut::Nothing => self.names.contains(&id),
                Cut::All => is_safe,
                Cut::Chance(seed) if is_safe != self.names.contains(&id) => chance(seed, 2) == 0,
                Cut::Chance(_) => is_safe,
            };
            if !is_there {
                lost_names.push(id);
                continue;
            }
            let len = stored.now.len();
            match &mut how {
                Cut::Nothing => stored.safe.clone_from(&stored.now),
                Cut::All => {}
                Cut::Chance(seed) => {
                    if stored.safe.len() < len && chance(seed, 2) == 0 {
                        stored.safe.resize(len, 0);
                    }
                    for (at, bytes) in &stored.unsafe_writes {
                        let kept = match chance(seed, 3) {
                            0 => 0,
                            1 => bytes.len(),
                            _ => chance(seed, bytes.len() as u64 + 1) as usize,
                        };
                        let end = stored.safe.len().max(at + kept);
                        stored.safe.resize(end, 0);
                        stored.safe[*at..at + kept].copy_from_slice(&bytes[..kept]);
                    }
                }
            }
            stored.now.clone_from(&stored.safe);
            stored.unsafe_writes.clear();
        }
        for id in lost_names {
            self.files.remove(&id);
        }
        self.names = self.files.keys().copied().collect();
        self.safe_names = self.names.clone();
    }

    /// What the next start can see, and the next power cut leave.
    pub fn hash_into(&self, hasher: &mut impl Hasher) {
        (&self.files, &self.names, &self.safe_names).hash(hasher);
    }

    /// Names of all images.
    pub fn images(&self) -> Vec<ImageId> {
        self.names.iter().copied().collect()
    }

    /// The bytes of an image, to be spoiled.
    pub fn bytes_mut(&mut self, id: ImageId) -> &mut Vec<u8> {
        &mut self.files.get_mut(&id).expect("it is there").now
    }
}

/// The checker's own book: who has sealed what.
#[derive(Clone, Default, Debug)]
pub struct Sealed(pub BTreeMap<Generation, BTreeSet<usize>>);

/// A disk in use by a process.
#[derive(Clone)]
pub struct SimDisk {
    pub platter: Arc<Mutex<Platter>>,
    pub point: Point,
    pub sealed: Arc<Mutex<Sealed>>,
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a simulated disk")
    }
}

impl SimDisk {
    fn step(&self, what: &'static str) -> io::Result<()> {
        self.point.step(&what).map_err(io::Error::other)?;
        let mut platter = self.platter.lock().unwrap();
        platter.operations += 1;
        match platter.fails_after {
            Some(last) if platter.operations > last => Err(io::Error::other("the disk is full")),
            _ => Ok(()),
        }
    }
}

struct SimFile {
    disk: SimDisk,
    id: ImageId,
}

impl Disk for SimDisk {
    fn list(&self) -> io::Result<Vec<ImageId>> {
        Ok(self.platter.lock().unwrap().images())
    }

    fn create(&self, id: ImageId, bytes: u64) -> io::Result<Box<dyn ImageFile>> {
        self.step("image create")?;
        let mut platter = self.platter.lock().unwrap();
        assert!(platter.names.insert(id), "{id:?} is there already");
        let new = Stored { now: vec![0; bytes as usize], ..Stored::default() };
        platter.files.insert(id, new);
        Ok(Box::new(SimFile { disk: self.clone(), id }))
    }

    fn open(&self, id: ImageId) -> io::Result<Box<dyn ImageFile>> {
        match self.platter.lock().unwrap().names.contains(&id) {
            true => Ok(Box::new(SimFile { disk: self.clone(), id })),
            false => Err(io::Error::from(io::ErrorKind::NotFound)),
        }
    }

    fn remove(&self, id: ImageId) -> io::Result<()> {
        self.step("image remove")?;
        self.platter.lock().unwrap().names.remove(&id);
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        self.step("image names")?;
        let mut platter = self.platter.lock().unwrap();
        let names = platter.names.clone();
        platter.files.retain(|id, _| names.contains(id));
        platter.safe_names = names;
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        Ok(1 << 40)
    }
}

impl ImageFile for SimFile {
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let stepped = self.disk.step("image write");
        let mut platter = self.disk.platter.lock().unwrap();
        // Who dies in a write has written a part of it.
        let bytes = if stepped.is_ok() { bytes } else { &bytes[..bytes.len() / 2] };
        if let Some(stored) = platter.files.get_mut(&self.id) {
            let at = at as usize;
            stored.now[at..at + bytes.len()].copy_from_slice(bytes);
            stored.unsafe_writes.push((at, bytes.to_vec()));
        }
        stepped
    }

    fn read_at(&mut self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let platter = self.disk.platter.lock().unwrap();
        let stored = platter.files.get(&self.id).ok_or(io::ErrorKind::NotFound)?;
        let bytes = stored.now.get(at as usize..at as usize + into.len());
        into.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.disk.step("image sync")?;
        let mut platter = self.disk.platter.lock().unwrap();
        let is_named = platter.safe_names.contains(&self.id);
        let stored = platter.files.get_mut(&self.id).ok_or(io::ErrorKind::NotFound)?;
        stored.safe.clone_from(&stored.now);
        stored.unsafe_writes.clear();
        if stored.safe.starts_with(b"SKTIMAG") && is_named {
            let mut sealed = self.disk.sealed.lock().unwrap();
            sealed.0.entry(self.id.generation).or_default().insert(self.id.rank);
        }
        Ok(())
    }

    fn bytes(&self) -> io::Result<u64> {
        let platter = self.disk.platter.lock().unwrap();
        let stored = platter.files.get(&self.id).ok_or(io::ErrorKind::NotFound)?;
        Ok(stored.now.len() as u64)
    }
}
