//! What checkpoints and recoveries take on clocked ranks: more of them than there are cores.
//!
//! The protocol of `skt-checkpoint` runs as on a machine, with each rank on its own node: codec,
//! segments and messages are the real ones. Only the clock is simulated, and a node's memory is a
//! map.

use std::collections::BTreeMap;
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

use skt_checkpoint::checkpoint::hook::NoHook;
use skt_checkpoint::checkpoint::protocol::{
    CheckpointError, Checkpointer, Config, Hold, Memory, OpenSegment, Opened,
};
use skt_comm::Comm;
use skt_store::codec::CodecKind;
use skt_store::layout::{Active, CELL_BYTES, RegionShape};
use skt_store::memory::SegmentId;

use crate::clocked::{self, Meter, Network};

/// Rows of a rank's region, if they have whole cells.
const ROWS: usize = 1024;

/// One group of ranks, each with a region that a checkpoint saves whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    pub ranks: usize,
    /// Bytes of a rank's region, rounded up to whole rows.
    pub bytes: usize,
    pub code: CodecKind,
    /// Parities of a stripe: as many ranks lose their memory before the recovery.
    pub parities: usize,
    pub message_bytes: usize,
}

/// Seconds of the slowest rank, all of which begin at once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Times {
    /// A checkpoint, from its start to the stamp.
    pub checkpoint_seconds: f64,
    /// A recovery, from the agreement on the lost ranks to the restored workspace.
    pub recovery_seconds: f64,
}

impl Case {
    /// Takes two checkpoints, of which the second counts; removes the memory of as many ranks as
    /// there are parities, recovers it in another start, and asserts that no region differs.
    pub fn times(&self, network: &Network, meter: Meter) -> Result<Times, CheckpointError> {
        let nodes: Vec<Node> = (0..self.ranks).map(|_| Node::default()).collect();
        let start = |number: u64, body: &dyn Fn(Comm, Box<Saved>) -> Seconds| -> Seconds {
            let ranks = clocked::run(self.ranks, network, meter, |comm| {
                let memory = NodeMemory(nodes[comm.rank()].clone());
                let config = self.config(comm.rank(), number);
                let hook = Arc::new(NoHook);
                match Checkpointer::open(&comm, memory, config, &[self.shape()], hook)? {
                    Opened::Ready(saved) => body(comm, saved),
                    Opened::Finished(_) => unreachable!("no start finishes the run"),
                }
            });
            ranks.into_iter().try_fold(0.0, |max: f64, seconds| Ok(max.max(seconds?)))
        };
        let checkpoint_seconds = start(1, &|comm, saved| {
            let (mut saved, _) = saved.recover()?;
            let rank = saved.rank();
            saved.region(0).iter_mut().enumerate().for_each(|(at, byte)| *byte = value(rank, at));
            // The first checkpoint touches the memory.
            saved.checkpoint(&[Active::ALL], &[])?;
            seconds(&comm, || saved.checkpoint(&[Active::ALL], &[]).map(drop))
        })?;
        for node in &nodes[..self.parities] {
            locked(node).clear();
        }
        let recovery_seconds = start(2, &|comm, saved| {
            let mut recovered = None;
            let seconds = seconds(&comm, || saved.recover().map(|(it, _)| recovered = Some(it)))?;
            let mut saved = recovered.expect("it has been recovered");
            let rank = saved.rank();
            let is_same = |(at, &byte): (usize, &u8)| byte == value(rank, at);
            assert!(saved.region(0).iter().enumerate().all(is_same), "rank {rank} has other data");
            Ok(seconds)
        })?;
        Ok(Times { checkpoint_seconds, recovery_seconds })
    }

    fn shape(&self) -> RegionShape {
        let pitch_bytes = (self.bytes / ROWS).max(1).next_multiple_of(CELL_BYTES);
        RegionShape { rows: self.bytes.div_ceil(pitch_bytes), pitch_bytes }
    }

    fn config(&self, rank: usize, start: u64) -> Config {
        let name = format!("simulated{rank}");
        Config {
            members: self.ranks,
            parities: self.parities,
            message_bytes: self.message_bytes,
            host: name.clone(),
            domain: name.clone(),
            node: name,
            clock: start,
            nonce: start,
            check_frozen: false,
            ..Config::new("simulated", self.code)
        }
    }
}

type Saved = Checkpointer<'static>;

type Seconds = Result<f64, CheckpointError>;

/// The seconds of this rank's clock that `body` takes, which all ranks begin at once.
fn seconds(comm: &Comm, body: impl FnOnce() -> Result<(), CheckpointError>) -> Seconds {
    comm.barrier()?;
    let start = comm.now();
    body()?;
    Ok((comm.now() - start).as_secs_f64())
}

fn value(rank: usize, at: usize) -> u8 {
    ((at ^ (rank << 20)).wrapping_mul(0x9e37_79b9) >> 13) as u8
}

type Node = Arc<Mutex<BTreeMap<SegmentId, Vec<u64>>>>;

fn locked(node: &Node) -> impl DerefMut<Target = BTreeMap<SegmentId, Vec<u64>>> {
    node.lock().unwrap_or_else(PoisonError::into_inner)
}

struct NodeMemory(Node);

impl NodeMemory {
    fn held(&self, id: SegmentId, words: Vec<u64>) -> Segment {
        Segment { id, words, node: self.0.clone() }
    }
}

/// A segment in use, which returns to its node when the rank ends.
struct Segment {
    id: SegmentId,
    words: Vec<u64>,
    node: Node,
}

impl Deref for Segment {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.words)
    }
}

impl DerefMut for Segment {
    fn deref_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.words)
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        locked(&self.node).insert(self.id, std::mem::take(&mut self.words));
    }
}

impl Memory for NodeMemory {
    fn lock(&mut self, _: usize) -> io::Result<Hold> {
        Ok(Arc::new(()))
    }

    fn list(&mut self) -> io::Result<Vec<SegmentId>> {
        Ok(locked(&self.0).keys().copied().collect())
    }

    fn read_header(&mut self, id: SegmentId, into: &mut [u8]) -> io::Result<usize> {
        let node = locked(&self.0);
        let words = node.get(&id).ok_or(io::ErrorKind::NotFound)?;
        let bytes: &[u8] = bytemuck::cast_slice(words);
        let len = bytes.len().min(into.len());
        into[..len].copy_from_slice(&bytes[..len]);
        Ok(bytes.len())
    }

    fn create(&mut self, id: SegmentId, bytes: usize) -> io::Result<OpenSegment> {
        assert!(bytes.is_multiple_of(size_of::<u64>()), "areas are of whole words");
        Ok(Box::new(self.held(id, vec![0; bytes / size_of::<u64>()])))
    }

    fn attach(&mut self, id: SegmentId) -> io::Result<OpenSegment> {
        let words = locked(&self.0).remove(&id).ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(self.held(id, words)))
    }

    fn remove(&mut self, id: SegmentId) -> io::Result<()> {
        locked(&self.0).remove(&id);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NETWORK: Network =
        Network { message_seconds: 1.5e-6, byte_seconds: 1e-9 / 1.44, call_seconds: 1e-7 };

    fn times(case: &Case) -> Times {
        case.times(&NETWORK, clocked::no_work).unwrap()
    }

    fn four_losses(ranks: usize) -> Case {
        let code = CodecKind::ReedSolomon;
        Case { ranks, bytes: 1 << 20, code, parities: 4, message_bytes: 16 << 10 }
    }

    /// Chen and Dongarra, figure 8: a checkpoint that survives k losses takes about k beta m, and a
    /// recovery some times that, whatever the number of ranks.
    #[test]
    fn four_losses_take_the_same_time_on_more_ranks() {
        let [few, many] = [15, 60].map(|ranks| times(&four_losses(ranks)));
        assert_eq!(few, times(&four_losses(15)), "the same time twice");
        let seconds = 4.0 * (1 << 20) as f64 * NETWORK.byte_seconds;
        for Times { checkpoint_seconds, recovery_seconds } in [few, many] {
            assert!((1.0..1.5).contains(&(checkpoint_seconds / seconds)), "{few:?} {many:?}");
            assert!((1.0..4.5).contains(&(recovery_seconds / seconds)), "{few:?} {many:?}");
        }
    }
}
