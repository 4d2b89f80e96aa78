//! The hand-over between a checkpointer and its writer of images: the checkpointer lends a stamped
//! epoch, and takes it back before it writes there itself. At its barriers the ranks tell each
//! other which images are sealed.

use std::time::Instant;

use super::super::checkpointer::Checkpointer;
use super::super::error::Result;
use super::super::memory::Memory;
use super::format::ImageLayout;
use super::helper::Free;
use super::shelf::LevelReport;
use super::writing::{Sealed, Writing};
use super::{MOST_LEVELS, WhenBusy};
use crate::comm::Comm;
use crate::comm::collect::all_reduce;

impl<C: Comm, M: Memory> Checkpointer<C, M> {
    /// What each level has done on this rank.
    pub fn level_reports(&self) -> Vec<LevelReport> {
        self.shelves.reports()
    }

    /// Makes images of the next epoch due on all levels. Rank 0 decides.
    pub fn make_images_due(&mut self) {
        self.shelves.make_all_due();
    }

    /// Seconds that the images of one epoch take this rank, judging by those that it has written or
    /// is writing in this start; 0 if there are none.
    pub fn seconds_of_images(&mut self) -> f64 {
        if let Some(written) = self.helper.done() {
            self.shelves.note(written, 0.0);
        }
        self.shelves.seconds_of_images()
    }

    /// Waits for the images that are being written. Returns, level by level, whether those of the
    /// newest epoch are complete on all ranks. Collective.
    ///
    /// # Errors
    /// When a rank is lost.
    pub fn finish_images(&mut self) -> Result<Vec<bool>> {
        if self.shelves.is_empty() {
            return Ok(Vec::new());
        }
        let (start, hook) = (Instant::now(), self.segment.hook());
        let (written, _free) = self.helper.take_back(WhenBusy::Wait, &*hook);
        self.shelves.note(written, start.elapsed().as_secs_f64());
        self.barrier_with_levels()?;
        let newest = self.epoch();
        let is_whole = |told: LevelReport| told.complete_epoch == newest && newest > 0;
        Ok(self.level_reports().into_iter().map(is_whole).collect())
    }

    /// Takes the bytes of an epoch back from the writer of images, if it still has them.
    pub(in super::super) fn take_back_images(&mut self) -> Free {
        self.take_back_images_since(Instant::now())
    }

    /// [`Self::take_back_images`] for a rank that has waited for the images since `start`.
    pub(in super::super) fn take_back_images_since(&mut self, start: Instant) -> Free {
        let hook = self.segment.hook();
        let (written, free) = self.helper.take_back(self.shelves.when_busy(), &*hook);
        self.shelves.note(written, start.elapsed().as_secs_f64());
        free
    }

    /// [`Self::take_back_images`], unless the images are of the epoch before `epoch`, whose bytes
    /// may stay lent.
    pub(in super::super) fn take_back_images_before(&mut self, epoch: u64) -> Free {
        match self.shelves.writing() + 1 == epoch {
            true => self.helper.leave(),
            false => self.take_back_images(),
        }
    }

    /// Starts writing images of `epoch` on the levels that are `due`. The epoch is stamped: nothing
    /// of it changes before it is taken back. With method `abft`, nothing of the rank's data
    /// changes.
    pub(in super::super) fn write_images(&mut self, epoch: u64, due: u8) {
        if self.shelves.is_empty() {
            return;
        }
        self.segment.record().assert_settled();
        assert_eq!(self.segment.record().stamped(), epoch);
        let free = self.take_back_images();
        let layout = self.segment.image_layout(epoch);
        let body_sum = if due == 0 { 0 } else { self.segment.body_sum(&layout) };
        let ImageLayout { parts, body_bytes } = layout;
        let (ranges, places): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
        let sealed = || {
            let seal = self.segment.seal(body_bytes, body_sum);
            Sealed { seal, places: places.clone(), body_bytes }
        };
        let images = self.shelves.new_images(due, epoch, &sealed);
        if images.is_empty() {
            return;
        }
        // SAFETY: nothing writes to an epoch's copy, parities and checksums before the flush of
        // the next epoch or the copy of the one after it, and both ask for `Free`; with `abft`
        // this rank waits for `Free` before it writes to anything. And the helper is dropped
        // before the vault.
        let lent = unsafe { self.segment.lend(&ranges) };
        let rates = self.config.levels.iter().map(|level| level.max_bytes_per_second).collect();
        let piece_bytes = self.config.image_piece_bytes;
        self.helper.write(Writing::new(lent, images, piece_bytes, rates), free);
    }

    /// The job-wide barrier, at which ranks tell each other of their images. Collective.
    pub(in super::super) fn barrier_with_levels(&mut self) -> Result<()> {
        let mut votes = self.shelves.votes();
        all_reduce(&self.job, &mut votes, |a, b| a & b)?;
        self.shelves.hear(&votes);
        if self.shelves.has_complete_images() {
            self.segment.forget_rotten_images();
        }
        Ok(())
    }

    /// Appends to the state of rank 0 one byte that says which levels are due; nothing without
    /// levels.
    pub(in super::super) fn append_due(&mut self, state: &mut Vec<u8>) {
        const { assert!(MOST_LEVELS <= u8::BITS as usize) };
        if !self.shelves.is_empty() {
            if self.job.rank() == 0 {
                self.shelves.hear_state(state);
            }
            state.push(self.shelves.due());
        }
    }

    /// Removes that byte from the state and returns it.
    pub(in super::super) fn split_off_due(&self, state: &mut Vec<u8>) -> u8 {
        match self.shelves.is_empty() {
            true => 0,
            false => state.pop().expect("rank 0 has appended it"),
        }
    }
}
