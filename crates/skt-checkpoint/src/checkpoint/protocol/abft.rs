//! Method `abft`: the application maintains checksums of its data, and nothing is copied. The
//! records keep the rest: which segment has which rank, which start it followed, the application's
//! state, and the result.
//!
//! An image is written from the data itself, which the rank does not change until it is written. A
//! group survives the loss of its images like the loss of its ranks.

use std::time::Instant;

use super::checkpointer::Checkpointer;
use super::recover::Recovered;
use crate::checkpoint::decide::{Damage, Refusal};
use crate::checkpoint::error::Result;
use crate::checkpoint::hook::{Step, StepName};
use crate::checkpoint::level::{Generation, Restorable};

use crate::checkpoint::schedule::Stats;
use crate::checkpoint::segment::Loaded;
use skt_comm::collect::{all_gather_json, broadcast_bytes};

impl<'n> Checkpointer<'n> {
    /// Recovers: surviving data is as it was left, or as it is in an image; new segments, all
    /// zeros, replace lost ones, and the application rebuilds them.
    ///
    /// A loaded segment stays hollow until all images are loaded and enough of each group are
    /// sound. Images are not removed before the application continues, see
    /// [`Self::checkpoint_abft`].
    pub(super) fn recover_abft(&mut self) -> Result<Recovered> {
        let (start, epoch) = (Instant::now(), self.plan.epoch);
        let loaded = self.load_image(epoch)?;
        if self.plan.load.is_some() {
            self.segment.step(Step::new(StepName::RecoverVerify, epoch))?;
            let rotten = self.agree_on_rot(&loaded)?;
            self.lose_images(&rotten);
            self.segment.stamp_rebuilt(epoch, &self.plan.state)?;
        }
        self.segment.set_ready();
        Ok(Recovered {
            epoch,
            state: self.segment.record().state().to_vec(),
            rebuilt: self.plan.lost.clone(),
            repaired_cells: 0,
            seconds: start.elapsed().as_secs_f64(),
        })
    }

    /// The ranks whose images have rotted; [`Refusal::Damaged`] on all ranks, if a group does
    /// not survive that. Collective.
    fn agree_on_rot(&self, loaded: &Loaded) -> Result<Vec<usize>> {
        let rotten = self.ranks_where(!loaded.is_sound)?;
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
        let failures = all_gather_json(&self.job, &loaded.failure)?;
        let damage = failures.iter().enumerate().filter_map(|(rank, failure)| match failure {
            Some(why) => Some(Damage::unread(rank, why)),
            None if rotten.contains(&rank) => {
                Some(Damage { rank, what: "has an image that has rotted".to_owned() })
            }
            None => None,
        });
        let (level, damage) = (Some(level), damage.collect());
        Err(Refusal::Damaged { epoch, level, damage, lost, parities }.into())
    }

    /// Commits `state` on all ranks, once all have called this. The data is not copied; images of
    /// it are written if they are due. At the first call of a start all ranks have reached the
    /// point where it resumed, so superfluous images are removed then, and none is written.
    /// Collective.
    pub(super) fn checkpoint_abft(&mut self, state: &[u8]) -> Result<Stats> {
        self.segment.record().assert_settled();
        let is_first = self.segment.record().stamped() == self.plan.epoch;
        let epoch = self.segment.record().stamped() + 1;
        let (mut state, mut stats) = (state.to_vec(), Stats { epoch, ..Stats::default() });
        self.segment.step(Step::new(StepName::Checkpoint, epoch))?;
        self.images.append_due(&self.job, &mut state);
        broadcast_bytes(&self.job, &mut state, 0)?;
        let due = self.images.split_off_due(&mut state);
        self.barrier(epoch, &mut stats)?;
        self.segment.commit_stamped(epoch, state)?;
        if is_first {
            self.images.discard_superfluous(&self.segment, &self.plan)?;
        } else {
            let start = Instant::now();
            self.images.write(&mut self.segment, epoch, due);
            // The application writes to its data as soon as this function returns.
            let _free = self.images.take_back_since(start, &*self.segment.vault.hook());
        }
        Ok(stats)
    }

    /// Whether this is rank 0 and an image is due: then all ranks call [`Self::checkpoint`] at the
    /// next cut.
    pub fn wants_images(&mut self) -> bool {
        self.job.rank() == 0 && self.images.are_due()
    }

    /// The newest images that a restart could resume from.
    pub fn newest_images(&self) -> Option<Generation> {
        let newest = |of: &Restorable| of.generations.first().copied();
        self.plan.restorable.iter().filter_map(newest).max()
    }

    /// [`Self::recover`] from the newest images that are left, after all ranks have found that they
    /// cannot continue with what this start recovered, for the reason `why`; with `or_newest` the
    /// images of [`Self::newest_images`] cannot be used either. [`Refusal::OfNoUse`] on all
    /// processes if no images are left, with nothing changed. Collective.
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
