//! Regions whose contents are in memory that only a mover can copy.

use super::{CheckpointError, Result, Saved};
use crate::mover::{self, CopyProgress, MoveError, Mover};
use skt_comm::collect::{all_reduce, broadcast_bytes};

const NONE: u64 = u64::MAX;

impl Saved<'_> {
    /// Copies memory of movers into their regions, which the next checkpoint then saves. Each mover
    /// comes with the number of its region, all of which it fills. Collective, with no checkpoint
    /// begun; a rank may have no movers. After [`CheckpointError::NotMoved`], on all ranks if a
    /// copy failed on any, the last checkpoint is as it was, and the run can continue.
    pub fn copy_in(&mut self, movers: &mut [(usize, &mut dyn Mover)]) -> Result<()> {
        assert!(!self.is_under_way(), "complete the checkpoint that has begun first");
        let mut progress = self.copy_progress();
        let mut regions = self.bytes();
        let copied = movers.iter_mut().try_for_each(|(region, mover)| {
            mover::to_host(&mut **mover, regions[*region], || {
                progress.report();
                Ok(())
            })
            .map_err(|error: MoveError| (*region, error))
        });
        self.agree_on_copies(copied.err())?;
        self.note_copied(progress.seconds());
        Ok(())
    }

    /// Copies regions to the memory of their movers: what the checkpoint has that this start
    /// continues from. Collective; a rank may have no movers. After [`CheckpointError::NotMoved`],
    /// on all ranks if a copy failed on any, the regions are as they were, and it can be tried
    /// again.
    pub fn copy_out(&mut self, movers: &mut [(usize, &mut dyn Mover)]) -> Result<()> {
        let mut progress = self.copy_progress();
        let regions = self.bytes();
        let copied = movers.iter_mut().try_for_each(|(region, mover)| {
            mover::from_host(&mut **mover, regions[*region], || {
                progress.report();
                Ok(())
            })
            .map_err(|error: MoveError| (*region, error))
        });
        self.agree_on_copies(copied.err())
    }

    /// What reports between the pieces of copies that this rank is alive.
    pub fn copy_progress(&self) -> CopyProgress {
        CopyProgress::new(self.checkpointer.hook())
    }

    /// Counts the seconds of copies for the next checkpoint among its time, for [`Saved::due`].
    pub fn note_copied(&mut self, seconds: f64) {
        self.copy_seconds = seconds;
    }

    /// Returns when all ranks have copied. Collective.
    fn agree_on_copies(&self, failed: Option<(usize, MoveError)>) -> Result<()> {
        let comm = self.checkpointer.comm();
        let mut first = [failed.as_ref().map_or(NONE, |_| comm.rank() as u64)];
        all_reduce(comm, &mut first, u64::min)?;
        if first[0] == NONE {
            return Ok(());
        }
        let rank = first[0] as usize;
        let mut message = failed.map_or_else(Vec::new, |(region, error)| {
            [&(region as u64).to_le_bytes()[..], error.to_string().as_bytes()].concat()
        });
        broadcast_bytes(comm, &mut message, rank)?;
        let (region, text) = message.split_at(size_of::<u64>());
        let region = u64::from_le_bytes(region.try_into().expect("eight bytes")) as usize;
        let text = String::from_utf8_lossy(text).into_owned();
        Err(CheckpointError::NotMoved { rank, region, text })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::client::{Next, Options, Region, open};
    use crate::mover::PIECE_BYTES;
    use skt_comm::threads;
    use skt_store::store::Files;

    const RANKS: usize = 4;
    /// More than a piece, and not a multiple of it.
    const BYTES: usize = PIECE_BYTES + 1000;

    /// Memory of a device, of which the copy number `failing` fails.
    struct Device {
        bytes: Vec<u8>,
        copies: usize,
        failing: usize,
    }

    impl Device {
        fn new(seed: usize) -> Self {
            let bytes = (0..BYTES).map(|at| (at * 7 + seed) as u8).collect();
            Self { bytes, copies: 0, failing: usize::MAX }
        }

        fn count(&mut self) -> std::result::Result<(), MoveError> {
            self.copies += 1;
            let lost = MoveError { code: 9, text: "device lost".to_owned() };
            if self.copies == self.failing { Err(lost) } else { Ok(()) }
        }
    }

    impl Mover for Device {
        fn to_host(
            &mut self,
            offset: usize,
            host: &mut [u8],
        ) -> std::result::Result<(), MoveError> {
            host.copy_from_slice(&self.bytes[offset..offset + host.len()]);
            self.count()
        }

        fn from_host(&mut self, offset: usize, host: &[u8]) -> std::result::Result<(), MoveError> {
            self.bytes[offset..offset + host.len()].copy_from_slice(host);
            self.count()
        }
    }

    fn start<T: Send>(folder: &Path, act: impl Fn(Saved<'_>) -> Result<T> + Sync) -> Vec<T> {
        let started = threads::run(RANKS, |world| {
            let store = Box::new(Files::in_folder(folder));
            let options = Options { store, ..Options::new("copies", "a test") };
            let regions = [Region::of::<u8>(100), Region::of::<u8>(BYTES)];
            let Next::Compute(saved) = open(&world, &options, &regions)? else {
                panic!("the run has not ended")
            };
            act(saved)
        });
        started.into_iter().map(|rank| rank.expect("a start")).collect()
    }

    /// Rank 2 has no device. A copy that fails on rank 1 leaves the checkpoint before to the next
    /// start, in which a copy to the device fails first.
    #[test]
    fn device_memory_is_restored_or_all_ranks_get_the_reason() {
        let folder = tempfile::tempdir().expect("a folder");
        let failed = |error: CheckpointError| match error {
            CheckpointError::NotMoved { rank: 1, region: 1, text } => {
                assert_eq!(text, "device lost (code 9)");
            }
            other => panic!("{other}"),
        };
        start(folder.path(), |mut saved| {
            let rank = saved.rank();
            let mut device = Device::new(rank);
            let copy_in = |device: &mut Device, saved: &mut Saved<'_>| {
                let mut movers: Vec<(usize, &mut dyn Mover)> = vec![(1, device)];
                if rank == 2 {
                    movers.clear();
                }
                saved.copy_in(&mut movers)
            };
            copy_in(&mut device, &mut saved)?;
            saved.checkpoint(&1u64)?;
            let mut other = Device::new(rank + 100);
            other.failing = if rank == 1 { 2 } else { usize::MAX };
            failed(copy_in(&mut other, &mut saved).expect_err("it fails on rank 1"));
            Ok(())
        });
        let restored = start(folder.path(), |mut saved| {
            assert_eq!(saved.state::<u64>(), Some(1));
            let rank = saved.rank();
            let mut device = Device::new(50);
            device.failing = if rank == 1 { 1 } else { usize::MAX };
            failed(saved.copy_out(&mut [(1, &mut device)]).expect_err("it fails on rank 1"));
            saved.copy_out(&mut [(1, &mut device)])?;
            Ok(device.bytes)
        });
        for (rank, bytes) in restored.into_iter().enumerate() {
            let want = if rank == 2 { vec![0; BYTES] } else { Device::new(rank).bytes };
            assert!(bytes == want, "rank {rank}");
        }
    }
}
