//! The segments of a run on this node, in a store: the protocol's [`Memory`] in production.
//!
//! | module | what |
//! |---|---|
//! | [`lock`] | the hold of a process on its run, and the wait for a process of an earlier start |
//! | [`role`] | which segment of a run is for what |
//! | `mpi_files` | files that a killed MPI job leaves |

pub mod lock;
pub(crate) mod mpi_files;
pub mod node_store;
mod process;
pub mod role;

use std::io;
use std::sync::Arc;
use std::time::Instant;

use lock::{Patience, RunLock, remove_mpi_files};
pub use process::{Plain, Process};
use role::{is_mark, parse_role, part_role};

use super::memory::{Hold, Memory, OpenSegment, SegmentId};
use super::store::{SegmentInfo, SegmentName, Stage, Store, StoreError};
use skt_host::messages;

/// The segments of one part of a run on this node. A run has several parts if it has several
/// computations, one after the other, each with separate checkpoints.
pub struct RunSegments<'a, P> {
    store: &'a (dyn Store + Send + Sync),
    run: String,
    part: usize,
    process: P,
    lock: Option<Arc<RunLock>>,
}

impl<'a, P: Process + Copy> RunSegments<'a, P> {
    /// The segments of part number `part` of `run`.
    pub fn new(store: &'a (dyn Store + Send + Sync), run: &str, part: usize, process: P) -> Self {
        Self { store, run: run.to_owned(), part, process, lock: None }
    }

    /// Uses a hold that this process already has on the run.
    pub fn under(self, lock: Option<Arc<RunLock>>) -> Self {
        Self { lock, ..self }
    }

    /// What this process contributes.
    pub fn process(&self) -> P {
        self.process
    }

    /// The number of the part.
    pub fn part(&self) -> usize {
        self.part
    }

    /// Identifies the node: equal for all processes that see these segments.
    pub fn node(&self) -> io::Result<String> {
        Ok(format!("{} {}", self.store.id().map_err(other)?.memory, self.run))
    }

    fn name(&self, id: SegmentId) -> io::Result<SegmentName> {
        let role = part_role(self.part, id.start);
        SegmentName::new(&self.run, &role, id.rank as u32).map_err(other)
    }
}

/// All segments of `run` on this node.
pub fn run_segments(store: &dyn Store, run: &str) -> Result<Vec<SegmentInfo>, StoreError> {
    let mut all = store.list_once()?;
    all.retain(|info| info.name.run() == run);
    Ok(all)
}

/// Bytes of all segments of `run` on this node, whose memory a restart reuses.
pub fn run_bytes(store: &dyn Store, run: &str) -> Result<u64, StoreError> {
    Ok(sum_bytes(&run_segments(store, run)?))
}

fn sum_bytes(segments: &[SegmentInfo]) -> u64 {
    segments.iter().map(|info| info.bytes as u64).sum()
}

/// Removes the segments of `run` on this node that belong to `part`, to earlier parts, or to none.
pub fn sweep(store: &dyn Store, run: &str, part: usize) -> Result<(), StoreError> {
    for info in store.list()?.into_iter().filter(|info| info.name.run() == run) {
        // Holds are removed by their holders, unless these were lost; marks of ended runs stay.
        if info.name.role() == "lock" {
            // Removing a hold in use would wait a while to see whether it stays in use: with many
            // ranks on a node the end of the run would take seconds.
            if !info.in_use {
                remove_mpi_files(store, &info.name);
                store.remove_unused(&info.name)?;
            }
            continue;
        }
        if !is_mark(&info) && parse_role(info.name.role()).is_none_or(|(of, _)| of <= part) {
            store.remove(&info.name)?;
        }
    }
    Ok(())
}

fn other(error: StoreError) -> io::Error {
    io::Error::other(error)
}

fn not_found() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "the segment is gone")
}

impl<P: Process + Copy> Memory for RunSegments<'_, P> {
    fn lock(&mut self, index: usize) -> io::Result<Hold> {
        if let Some(lock) = &self.lock {
            return Ok(lock.clone());
        }
        let host = nix::unistd::gethostname()?;
        let host = host.to_string_lossy();
        let taken = RunLock::take(self.store, &self.run, &host, index, &self.process);
        taken.map_err(other)?.map(|lock| Arc::new(lock) as Hold).map_err(|in_use| {
            let passes = in_use.passes();
            let kind = if passes { io::ErrorKind::WouldBlock } else { io::ErrorKind::Other };
            io::Error::new(kind, in_use)
        })
    }

    fn list(&mut self) -> io::Result<Vec<SegmentId>> {
        let mut ids = Vec::new();
        for info in self.store.list_once().map_err(other)? {
            let Some((part, start)) = parse_role(info.name.role()) else { continue };
            if info.name.run() != self.run || part != self.part {
                continue;
            }
            if info.is_ready {
                ids.push(SegmentId { rank: info.name.rank() as usize, start });
            } else {
                // Its creator was killed. No later start creates a segment of that name, which
                // would replace it, and the memory that it has may be needed.
                self.store.remove_dead(&info.name).map_err(other)?;
            }
        }
        Ok(ids)
    }

    fn read_header(&mut self, id: SegmentId, into: &mut [u8]) -> io::Result<usize> {
        self.store.peek(&self.name(id)?, into).map_err(other)?.ok_or_else(not_found)
    }

    fn create(&mut self, id: SegmentId, bytes: usize) -> io::Result<OpenSegment> {
        let bytes = bytes.next_multiple_of(8);
        let begun = Instant::now();
        let at = |stage| {
            if let Stage::Reserving(done_bytes) = stage {
                self.process.reserves(begun.elapsed().as_secs_f64(), done_bytes, bytes);
            }
        };
        let new = self.store.begin_at(&self.name(id)?, bytes, &at).map_err(other)?;
        self.process.touch(&new, bytes).map_err(other)?;
        let segment = new.finish().map_err(other)?;
        // Only rank 0 warns: what its node lacks, others will lack as well.
        if let Some(note) = segment.note().filter(|_| id.rank == 0) {
            messages::print(format_args!("warning: rank 0: {note}"));
        }
        Ok(Box::new(segment))
    }

    fn attach(&mut self, id: SegmentId) -> io::Result<OpenSegment> {
        let bytes_of_run = || run_bytes(self.store, &self.run).unwrap_or(0);
        let (name, mut patience) = (self.name(id)?, Patience::new(&bytes_of_run, &self.process));
        loop {
            match self.store.attach(&name) {
                // The process that held the run has released it, so it is ending.
                Err(StoreError::InUse { .. }) if !patience.is_over(true) => {}
                found => {
                    let segment = found.map_err(other)?.ok_or_else(not_found)?;
                    let begun = Instant::now();
                    segment.map_pages(|pieces| {
                        self.process.passes(begun.elapsed().as_secs_f64(), pieces);
                    });
                    return Ok(Box::new(segment));
                }
            }
        }
    }

    fn remove(&mut self, id: SegmentId) -> io::Result<()> {
        self.store.remove(&self.name(id)?).map(|_| ()).map_err(other)
    }
}
