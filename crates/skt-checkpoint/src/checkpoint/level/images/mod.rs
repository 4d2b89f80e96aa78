//! The images of this rank. A segment lends the bytes of a stamped epoch to the writer of images,
//! and takes them back before it overwrites them. At the barriers ranks exchange what is sealed.

mod load;

use std::time::Instant;

use super::super::config::Config;
use super::super::decide::StartPlan;
use super::super::error::Result;
use super::super::hook::Hook;

use super::super::segment::OwnSegment;
use super::super::start::Start;
use super::disk::{FileId, Slot};
use super::failed::level_error;
use super::format::ImageLayout;
use super::helper::{Free, Helper};
use super::probe::Seen;
use super::rank_images::{LevelReport, RankImages, Vote};
use super::source::{FoundImage, Restorable};
use super::writing::{Sealed, Writing};
use super::{Level, MAX_LEVELS};
use skt_comm::Comm;
use skt_comm::collect::{all_max, all_reduce};
use skt_host::messages;

pub(crate) struct Images {
    levels: Vec<Level>,
    piece_bytes: usize,
    helper: Helper,
    pub rank_images: RankImages,
    /// The files of images that this process manages, by level.
    seen_files: Vec<Vec<FileId>>,
}

impl Images {
    /// Starts the writer of this rank's images, which go to the `slots` of the levels. Collective.
    pub(crate) fn start(
        comm: &Comm,
        start: &Start,
        plan: &StartPlan,
        config: &Config,
        slots: &[Slot],
    ) -> Result<Self> {
        let (levels, seen, rank) = (&config.levels, &start.seen, plan.ranks[comm.rank()]);
        let is_own = |file: &&FileId| file.ranks.contains(rank);
        let own = seen.iter().map(|seen| seen.listed.iter().filter(is_own).copied().collect());
        let kept = |(all, level): (&Restorable, &Level)| all.continued(level.keep);
        let kept: Vec<_> = plan.restorable.iter().zip(levels).map(kept).collect();
        let newest_seconds = newest_seconds(comm, config, plan, seen)?;
        let mut rank_images = RankImages::new(
            plan.start,
            levels,
            slots,
            (&kept, &newest_seconds),
            own.collect(),
            &plan.given_up,
            config.state_seconds,
        );
        // Images that are incomplete survive fewer losses, and those of a run that has gone back
        // are of a past that was given up: new ones are due at once.
        let is_lacking = |level: &usize| {
            let restorable = &plan.restorable[*level];
            restorable.is_lacking || restorable.chosen.is_some()
        };
        let lacking = (0..levels.len()).filter(is_lacking);
        lacking.for_each(|level| rank_images.make_due(level));
        let helper = match levels.first() {
            None => Helper::None,
            Some(first) => {
                let failed = level_error("starting the writer of images", first);
                Helper::start(config.image_writer.clone()).map_err(failed)?
            }
        };
        Ok(Self {
            levels: levels.clone(),
            piece_bytes: config.image_piece_bytes,
            helper,
            rank_images,
            seen_files: start.seen_files(plan),
        })
    }

    /// Seconds that the images of one epoch take this rank, judging by those that it has written or
    /// is writing in this start; 0 if there are none.
    pub(crate) fn seconds(&mut self) -> f64 {
        if let Some(written) = self.helper.done() {
            self.rank_images.note(written, 0.0);
        }
        self.rank_images.seconds_of_images()
    }

    /// Waits for the images that are being written, on all ranks.
    fn wait(&mut self, job: &Comm, segment: &mut OwnSegment) -> Result<()> {
        let (start, hook) = (Instant::now(), segment.vault.hook());
        let (written, _free) = self.helper.take_back(false, &*hook);
        self.rank_images.note(written, start.elapsed().as_secs_f64());
        self.barrier(job, segment)
    }

    /// Waits for the images that are being written, and for those of the newest epoch that had no
    /// room before. Returns, level by level, whether those of the newest epoch are complete on all
    /// ranks. Collective.
    pub(crate) fn finish(&mut self, job: &Comm, segment: &mut OwnSegment) -> Result<Vec<bool>> {
        if self.rank_images.is_empty() {
            return Ok(Vec::new());
        }
        self.wait(job, segment)?;
        let newest = segment.record().committed();
        let put_off = self.rank_images.put_off();
        if put_off != 0 {
            self.write(segment, newest, put_off);
            self.wait(job, segment)?;
        }
        let is_whole = |report: LevelReport| report.complete_epoch == newest && newest > 0;
        Ok(self.rank_images.reports().into_iter().map(is_whole).collect())
    }

    /// Does one operation on an image, if this rank writes its images itself.
    pub(crate) fn advance(&mut self) {
        self.helper.advance();
    }

    pub(crate) fn are_due(&mut self) -> bool {
        self.due() != 0
    }

    /// One bit per level, as rank 0 sees it; warns of intervals longer than the user asks for.
    fn due(&mut self) -> u8 {
        for why in self.rank_images.new_warnings() {
            messages::print(format_args!("warning: {why}"));
        }
        self.rank_images.due()
    }

    pub(crate) fn give_up(&mut self, hook: &dyn Hook) {
        let (_written, _free) = self.helper.take_back(true, hook);
    }

    pub(crate) fn take_back(&mut self, hook: &dyn Hook) -> Free {
        self.take_back_since(Instant::now(), hook)
    }

    /// [`Self::take_back`] for a rank that has waited for the images since `start`.
    pub(crate) fn take_back_since(&mut self, start: Instant, hook: &dyn Hook) -> Free {
        let (written, free) = self.helper.take_back(false, hook);
        self.rank_images.note(written, start.elapsed().as_secs_f64());
        free
    }

    /// Unless the images are of the epoch before `epoch`, whose bytes may stay lent.
    pub(crate) fn take_back_before(&mut self, epoch: u64, hook: &dyn Hook) -> Free {
        if self.rank_images.writing() + 1 == epoch {
            self.helper.leave()
        } else {
            self.take_back(hook)
        }
    }

    /// Images of `epoch` on the levels that are `due`. The epoch is stamped: nothing of it (with
    /// method `abft`, of the rank's data) changes before it is taken back.
    pub(crate) fn write(&mut self, segment: &mut OwnSegment, epoch: u64, due: u8) {
        if self.rank_images.is_empty() {
            return;
        }
        segment.record().assert_settled();
        assert_eq!(segment.record().stamped(), epoch);
        let free = self.take_back(&*segment.vault.hook());
        let layout = segment.image_layout(epoch);
        let body_sum = if due == 0 { 0 } else { segment.body_sum(&layout) };
        let ImageLayout { ranges, body_bytes } = layout;
        let (ranges, places): (Vec<_>, Vec<_>) = ranges.into_iter().unzip();
        let sealed = || {
            let seal = segment.seal(body_bytes, body_sum);
            Sealed { seal, places: places.clone(), body_bytes }
        };
        let images = self.rank_images.new_images(due, epoch, &sealed);
        if images.is_empty() {
            return;
        }
        // SAFETY: nothing writes to an epoch's copy, parities and checksums before the flush of
        // the next epoch or the copy of the one after it, and both ask for `Free`; with `abft`
        // this rank waits for `Free` before it writes to anything. And a checkpointer drops its
        // images before its segment.
        let lent = unsafe { segment.lend(&ranges) };
        self.helper.write(Writing::new(lent, images, self.piece_bytes), free);
    }

    /// The job-wide barrier, at which ranks exchange the state of their images. Collective.
    pub(crate) fn barrier(&mut self, job: &Comm, segment: &mut OwnSegment) -> Result<()> {
        let mut votes = self.rank_images.votes();
        all_reduce(job, &mut votes, Vote::and)?;
        self.rank_images.count_votes(&votes);
        if self.rank_images.has_complete_images() {
            segment.forget_rotten_images();
        }
        Ok(())
    }

    /// The state of rank 0 gets one byte with the levels that are due; none without levels.
    pub(crate) fn append_due(&mut self, job: &Comm, state: &mut Vec<u8>) {
        const { assert!(MAX_LEVELS <= u8::BITS as usize) };
        if !self.rank_images.is_empty() {
            let due = if job.rank() == 0 {
                self.rank_images.note_saved_state(state);
                self.due()
            } else {
                // That of rank 0 counts.
                0
            };
            state.push(due);
        }
    }

    /// What [`Self::append_due`] has added; 0 without levels.
    pub(crate) fn split_off_due(&self, state: &mut Vec<u8>) -> u8 {
        if self.rank_images.is_empty() { 0 } else { state.pop().expect("rank 0 has appended it") }
    }
}

/// When the newest restorable images of each level were due, in seconds of the run, according to
/// the states in their seals; 0 for a level without any. Collective.
fn newest_seconds(
    comm: &Comm,
    config: &Config,
    plan: &StartPlan,
    seen: &[Seen],
) -> Result<Vec<f64>> {
    let of_level = |(seen, restorable): (&Seen, &Restorable)| {
        let newest = restorable.generations.first();
        let is_of_newest = |(image, _): &&(FoundImage, Vec<u8>)| {
            image.content.is_some() && Some(&image.id.generation) == newest
        };
        let image = seen.images.iter().find(is_of_newest).zip(config.state_seconds);
        image.map_or(0.0, |((_, state), seconds_of)| seconds_of(state))
    };
    let mut seconds: Vec<f64> = seen.iter().zip(&plan.restorable).map(of_level).collect();
    if !seconds.is_empty() {
        all_max(comm, &mut seconds)?;
    }
    Ok(seconds)
}
