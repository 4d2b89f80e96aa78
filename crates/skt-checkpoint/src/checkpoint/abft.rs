//! Method `abft`: the application's data carries checksums of its own, and nothing is
//! copied. The records keep what goes around it: who has which rank, which start came last,
//! the application's state, and the result.
//!
//! An image is written of the data itself, which the rank does not touch meanwhile. The
//! images of a group make up for each other as its ranks do.

use std::time::Instant;

use super::agree::Refusal;
use super::checkpointer::Checkpointer;
use super::code::Code;
use super::error::Result;
use super::hook::{Step, StepName};
use super::level::Generation;
use super::memory::Memory;
use super::recover::Recovered;
use super::schedule::Stats;
use crate::comm::Comm;
use crate::comm::collect::broadcast_bytes;

impl<C: Comm, M: Memory, K: Code + Clone> Checkpointer<C, M, K> {
    /// What survives is as it was left, or as it is in an image; new segments stand for what is
    /// lost, all zeros: the application rebuilds them.
    ///
    /// A loaded segment is hollow until all are loaded and enough of each group are sound.
    /// Images are not removed before the application goes on, see [`Self::checkpoint_abft`].
    pub(super) fn recover_abft(&mut self) -> Result<Recovered> {
        let (start, epoch) = (Instant::now(), self.plan.epoch);
        let loaded_bytes = self.load_image(epoch)?;
        if self.plan.load.is_some() {
            self.vault.step(Step::new(StepName::RecoverVerify, epoch))?;
            let rotten = self.agree_on_rot(self.image().is_some() && loaded_bytes == 0)?;
            self.lose_images(&rotten);
            self.stamp_rebuilt(epoch)?;
        }
        self.ready = true;
        Ok(Recovered {
            epoch,
            state: self.record.state().to_vec(),
            rebuilt: self.plan.lost.clone(),
            rebuilt_bytes: 0,
            copied_bytes: 0,
            loaded_bytes,
            mended_cells: 0,
            seconds: start.elapsed().as_secs_f64(),
        })
    }

    /// The ranks whose images have rotted. Collective.
    ///
    /// # Errors
    /// [`Refusal::RottenImages`] on all ranks, where a group bears no such loss.
    fn agree_on_rot(&self, is_rotten: bool) -> Result<Vec<usize>> {
        let rotten = self.ranks_where(is_rotten)?;
        let (lost, parities) = (self.plan.lost.clone(), self.config.parities);
        let is_gone = |rank: &&usize| rotten.contains(rank) || lost.contains(rank);
        let is_too_much = |group: &Vec<usize>| group.iter().filter(is_gone).count() > parities;
        let is_refused = self.plan.groups.iter().any(is_too_much);
        if !is_refused {
            return Ok(rotten);
        }
        let load = self.plan.load.as_ref().expect("what has rotted comes from images");
        let level = self.config.levels[load.level].name.clone();
        let epoch = self.plan.epoch;
        Err(Refusal::RottenImages { epoch, level, rotten, lost, parities }.into())
    }

    /// `state` counts on all ranks from when all have come here. The data is what it is, and
    /// images of it are written where they are due. The first time in a start all are where it
    /// goes on, so images that are not needed go then, and none is written.
    pub(super) fn checkpoint_abft(&mut self, state: &[u8]) -> Result<Stats> {
        self.record.assert_settled();
        let is_first = self.record.stamped() == self.plan.epoch;
        let epoch = self.record.stamped() + 1;
        let (mut state, mut stats) = (state.to_vec(), Stats { epoch, ..Stats::default() });
        self.vault.step(Step::new(StepName::Checkpoint, epoch))?;
        self.append_due(&mut state);
        broadcast_bytes(&self.job, &mut state, 0)?;
        let due = self.split_off_due(&mut state);
        self.barrier(epoch, &mut stats)?;
        self.record.commit(epoch, state);
        self.record.stamp(epoch);
        self.write_record(Step::new(StepName::Commit, epoch))?;
        if is_first {
            self.discard_superfluous_images()?;
        } else {
            let start = Instant::now();
            self.write_images(epoch, due);
            // The application writes to its data as soon as this returns.
            let _free = self.take_back_images_since(start);
        }
        Ok(stats)
    }

    /// Whether this is rank 0 and an image is due: then all call
    /// [`Self::checkpoint`] at the next cut.
    pub fn wants_images(&self) -> bool {
        self.job.rank() == 0 && self.shelves.due() != 0
    }

    /// The newest images that a restart could go on from.
    pub fn newest_images(&self) -> Option<Generation> {
        self.plan.restorable.iter().filter_map(|generations| generations.first()).max().copied()
    }

    /// [`Self::recover`] from the newest images that are left: all ranks have found that they
    /// cannot go on from what this start has recovered; `why`, in words. `or_newest`: nor from
    /// [`Self::newest_images`]. Collective.
    ///
    /// # Errors
    /// [`Refusal::OfNoUse`] on all processes where there are none, with nothing changed. As
    /// [`Self::recover`].
    pub fn recover_without(
        mut self,
        why: &str,
        or_newest: bool,
    ) -> Result<(Box<Self>, Option<Recovered>)> {
        let refusal = Refusal::OfNoUse { why: why.to_owned() };
        if let (true, Some(newest)) = (or_newest, self.newest_images()) {
            self.pass_over(newest, &refusal);
        }
        self.open_without(refusal)?.recover()
    }
}
