//! Regions whose contents are in memory that only a mover can copy.

use super::{CheckpointError, Result, Saved};
use crate::comm::Comm;
use crate::comm::collect::{all_reduce, broadcast_bytes};
use crate::mover::{self, CopyProgress, MoveError, Mover};

/// No rank has failed.
const NONE: u64 = u64::MAX;

impl<C: Comm> Saved<'_, C> {
    /// Copies memory of movers into their regions, which the next checkpoint then saves. Each mover
    /// comes with the number of its region, all of which it fills. Collective; a rank may have no
    /// movers.
    ///
    /// # Errors
    /// [`CheckpointError::NotMoved`] on all ranks if a copy failed on any: the last checkpoint is
    /// as it was, and the run can continue. [`CheckpointError::Comm`] when a rank died.
    ///
    /// # Panics
    /// A checkpoint has begun and is not complete; there is no such region.
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
        self.note_copied(&progress);
        Ok(())
    }

    /// Copies regions to the memory of their movers: what the checkpoint has that this start
    /// continues from. Collective; a rank may have no movers.
    ///
    /// # Errors
    /// [`CheckpointError::NotMoved`] on all ranks if a copy failed on any: the regions are as they
    /// were, and it can be tried again. [`CheckpointError::Comm`] when a rank died.
    ///
    /// # Panics
    /// There is no such region.
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

    /// Counts copies that the next checkpoint needed among its time, from which [`Saved::due`]
    /// follows.
    pub fn note_copied(&mut self, progress: &CopyProgress) {
        self.copy_seconds = progress.seconds();
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
        let mut told = failed.map_or_else(Vec::new, |(region, error)| {
            [&(region as u64).to_le_bytes()[..], error.to_string().as_bytes()].concat()
        });
        broadcast_bytes(comm, &mut told, rank)?;
        let (region, text) = told.split_at(size_of::<u64>());
        let region = u64::from_le_bytes(region.try_into().expect("eight bytes")) as usize;
        let text = String::from_utf8_lossy(text).into_owned();
        Err(CheckpointError::NotMoved { rank, region, text })
    }
}
