//! A rank's knowledge of its images: which are sealed, which generations are complete on all ranks,
//! and so which may be removed.

use std::collections::BTreeSet;

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};

use super::super::record::StartId;
use super::Level;
use super::disk::{FileId, Generation, Slot};
use super::due::{ImageCost, NextImage, RunClock, StateSeconds};
use super::writing::{ImageEnd, NewImage, Sealed, Written};

/// The largest number of generations that are written and not known to be complete: the one that is
/// being written, and the one before it. All ranks exchange the state of the latter before a third
/// one begins; if it is not complete then, it never will be, as some rank has given its image up.
const PENDING_MAX: usize = 2;

/// What a level has done on a rank.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LevelReport {
    /// The level, as users know it.
    pub name: String,
    /// Images that this rank has written in this start.
    pub images: u64,
    /// Bytes of these images.
    pub bytes: u64,
    /// Seconds that they took, each from its first operation to its last.
    pub seconds: f64,
    /// Seconds that the rank has waited for images of any level.
    pub stall_seconds: f64,
    /// Seconds of a core that their writer has used.
    pub cpu_seconds: f64,
    /// Seconds between two images that this rank would choose by the cost of the last one; `None`
    /// if the interval is given, or no image is done yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_seconds: Option<f64>,
    /// Images that were given up.
    pub given_up: u64,
    /// Newest epoch of which all ranks are known to have an image; 0 if there is none.
    pub complete_epoch: u64,
    /// Why this rank writes no more images, if a write or, at the start, the level has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Whether no rank writes more images, as one has failed to or the level failed at the start.
    #[serde(skip)]
    pub is_over: bool,
}

impl LevelReport {
    /// The rate of writing, in bytes per second.
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.bytes as f64 / self.seconds } else { 0.0 }
    }
}

/// What a rank reports of its images on a level at a barrier.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Vote {
    /// The pending epochs that are sealed here, one bit each.
    sealed: u64,
    /// All bits set if the rank can still write.
    works: u64,
    /// The cost of its last image; zero if it is not known.
    cost: ImageCost,
}

impl Vote {
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            sealed: self.sealed & other.sealed,
            works: self.works & other.works,
            cost: self.cost.max(other.cost),
        }
    }
}

pub(crate) struct RankImages {
    start: StartId,
    clock: RunClock,
    /// Epoch of the images last given to the writer; 0 if there is none.
    writing: u64,
    levels: Vec<LevelImages>,
}

struct LevelImages {
    level: Level,
    /// The slot of this rank's images in the files of this start.
    slot: Slot,
    /// When the next image is due; rank 0 decides by it.
    next: NextImage,
    /// Epochs of this start that all ranks were to write an image of, and that are not known to be
    /// complete, oldest first. The same on all ranks.
    pending: Vec<u64>,
    /// Whether images of the last epoch were due, and had no room yet. The same on all ranks.
    is_put_off: bool,
    sealed: BTreeSet<u64>,
    /// The generations to keep that all ranks can be restored from, newest first. The same on all
    /// ranks. Those that the start has found may be one more than the level keeps.
    complete: Vec<Generation>,
    /// All files in which this rank has a slot, whether it has an image or not. Each rank that
    /// shares a file removes it before it creates the next one, so that there is room in whatever
    /// order the ranks write.
    own: BTreeSet<FileId>,
    /// Files that are no longer needed, to be removed with the next image.
    unneeded: Vec<FileId>,
    /// Whether this process has warned that the interval is longer than the user asks for.
    has_warned: bool,
    report: LevelReport,
}

impl RankImages {
    /// The images of a start that writes to `slots`, one per level, on levels that it has not
    /// `given_up`. The start keeps the `complete` generations that it has found there, the newest
    /// due at `newest_seconds` of the run, and has found files `own` with slots of this rank.
    pub(crate) fn new(
        start: StartId,
        levels: &[Level],
        slots: &[Slot],
        (complete, newest_seconds): (&[Vec<Generation>], &[f64]),
        own: Vec<BTreeSet<FileId>>,
        given_up: &[Option<String>],
        state_seconds: Option<StateSeconds>,
    ) -> Self {
        let n = levels.len();
        assert_eq!([slots.len(), complete.len(), own.len(), given_up.len()], [n; 4]);
        let level = |(i, own): (usize, BTreeSet<FileId>)| LevelImages {
            slot: slots[i],
            next: NextImage::new(levels[i].every, newest_seconds[i]),
            pending: Vec::new(),
            is_put_off: false,
            sealed: BTreeSet::new(),
            complete: complete[i].clone(),
            own,
            unneeded: Vec::new(),
            has_warned: false,
            report: LevelReport {
                name: levels[i].name.clone(),
                complete_epoch: complete[i].first().map_or(0, |newest| newest.epoch),
                failure: given_up[i].clone(),
                is_over: given_up[i].is_some(),
                ..LevelReport::default()
            },
            level: levels[i].clone(),
        };
        let levels = own.into_iter().enumerate().map(level).collect();
        Self { start, clock: RunClock::new(state_seconds), writing: 0, levels }
    }

    /// This rank writes no more images there. The others learn of it at the next barrier.
    pub(crate) fn fail(&mut self, level: usize, why: String) {
        self.levels[level].report.failure.get_or_insert(why);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.levels.is_empty()
    }

    pub(crate) fn writing(&self) -> u64 {
        self.writing
    }

    pub(crate) fn reports(&self) -> Vec<LevelReport> {
        let report = |level: &LevelImages| LevelReport {
            interval_seconds: level.next.interval_by_cost(),
            ..level.report.clone()
        };
        self.levels.iter().map(report).collect()
    }

    pub(crate) fn make_due(&mut self, level: usize) {
        self.levels[level].next.make_due();
    }

    pub(crate) fn make_all_due(&mut self) {
        self.levels.iter_mut().for_each(|level| level.next.make_due());
    }

    /// Those that this rank needs for the images of one more epoch, judging by those of this start;
    /// one that is being written counts at least twice its time so far, and its rest comes first.
    pub(crate) fn seconds_of_images(&self) -> f64 {
        let (mut new, mut begun, mut passed) = (0.0, 0.0, 0.0_f64);
        // A write that has failed here ends this rank's images, before the others learn of it.
        let works = |level: &&LevelImages| !level.report.is_over && level.report.failure.is_none();
        for level in self.levels.iter().filter(works) {
            let LevelReport { seconds, images, .. } = level.report;
            let known = if images > 0 { seconds / images as f64 } else { 0.0 };
            let under_way = level.next.seconds_under_way();
            new += known.max(2.0 * under_way.unwrap_or(0.0));
            if let Some(seconds) = under_way {
                // Images of all levels begin together, and are written one after the other.
                begun += known;
                passed = passed.max(seconds);
            }
        }
        new + (begun - passed).max(0.0)
    }

    pub(crate) fn note_saved_state(&mut self, state: &[u8]) {
        self.clock.note_saved(state);
    }

    /// The levels that need an image now, one bit each, as rank 0 sees it.
    pub(crate) fn due(&self) -> u8 {
        let now_seconds = self.clock.seconds();
        self.levels_that(|level| !level.report.is_over && level.next.is_due(now_seconds))
    }

    /// The levels whose images of the last epoch were due and had no room, one bit each.
    pub(crate) fn put_off(&self) -> u8 {
        self.levels_that(|level| level.is_put_off)
    }

    /// The levels of which `holds` is true, one bit each.
    fn levels_that(&self, holds: impl Fn(&LevelImages) -> bool) -> u8 {
        let bits = self.levels.iter().enumerate().map(|(i, level)| u8::from(holds(level)) << i);
        bits.fold(0, |all, bit| all | bit)
    }

    /// About each level whose images cost too much to be written as often as the user asks, once.
    pub(crate) fn new_warnings(&mut self) -> Vec<String> {
        let warning = |level: &mut LevelImages| {
            let (asked_seconds, used_seconds) =
                level.next.stretched().filter(|_| !level.has_warned)?;
            level.has_warned = true;
            let ImageCost { write_seconds, wait_seconds, cpu_seconds } = level.next.cost()?;
            let name = &level.level.name;
            Some(format!(
                "level {name}: an image takes {write_seconds:.3} s (the run waits \
                 {wait_seconds:.3} s, its writer uses {cpu_seconds:.3} s of a core), too long for \
                 one every {asked_seconds} s: images are {used_seconds:.3} s apart, to cost at most \
                 a tenth of the time; every={asked_seconds}s! takes them whatever they cost"
            ))
        };
        self.levels.iter_mut().filter_map(warning).collect()
    }

    pub(crate) fn votes(&self) -> Vec<Vote> {
        let vote = |level: &LevelImages| {
            let bit = |(i, epoch)| u64::from(level.sealed.contains(epoch)) << i;
            let sealed = level.pending.iter().enumerate().map(bit).fold(0, |all, bit| all | bit);
            let works = if level.report.failure.is_none() { u64::MAX } else { 0 };
            Vote { sealed, works, cost: level.next.own_cost() }
        };
        self.levels.iter().map(vote).collect()
    }

    /// Applies the votes of all ranks together: a generation that all have sealed becomes complete,
    /// generations older than the ones to keep may be removed, and the slowest rank's cost counts.
    pub(crate) fn count_votes(&mut self, votes: &[Vote]) {
        assert_eq!(votes.len(), self.levels.len());
        for (level, vote) in self.levels.iter_mut().zip(votes) {
            level.report.is_over |= vote.works == 0;
            level.next.note_cost(vote.cost);
            level.complete(self.start, vote.sealed);
        }
    }

    /// Whether images of this start are complete on all levels that are still written to.
    pub(crate) fn has_complete_images(&self) -> bool {
        let is_of_start = |newest: &Generation| newest.start == self.start;
        let mut working = self.levels.iter().filter(|level| !level.report.is_over).peekable();
        working.peek().is_some()
            && working.all(|level| level.complete.first().is_some_and(is_of_start))
    }

    /// Of `epoch`, whose stamp is in force, on the levels that are `due`.
    pub(crate) fn new_images(
        &mut self,
        due: u8,
        epoch: u64,
        sealed: &dyn Fn() -> Sealed,
    ) -> Vec<NewImage> {
        let generation = Generation { start: self.start, epoch };
        let before = std::mem::replace(&mut self.writing, epoch);
        let now_seconds = self.clock.seconds();
        let mut images = Vec::new();
        for (number, level) in self.levels.iter_mut().enumerate() {
            let is_wanted = due >> number & 1 == 1;
            let is_due = is_wanted && level.has_room(before);
            level.is_put_off = is_wanted && !is_due;
            if is_due {
                level.next.begin(now_seconds);
                level.forget_incomplete(self.start);
                level.pending.push(epoch);
                level.own.insert(FileId { generation, ranks: level.slot.ranks });
            }
            let is_written = is_due && level.report.failure.is_none();
            let remove = std::mem::take(&mut level.unneeded);
            if is_written || !remove.is_empty() {
                let (disk, slot) = (level.level.disk.clone(), level.slot);
                let sealed = is_written.then(sealed);
                images.push(NewImage { level: number, disk, generation, slot, remove, sealed });
            }
        }
        images
    }

    pub(crate) fn note(&mut self, written: Vec<Written>, wait_seconds: f64) {
        let all_seconds: f64 = written.iter().map(|one| one.seconds).sum();
        for one in written {
            // Images are written one after the other, so each has its share of the wait.
            let share = if all_seconds > 0.0 { one.seconds / all_seconds } else { 0.0 };
            let level = &mut self.levels[one.level];
            level.note(one, share * wait_seconds);
        }
        for level in &mut self.levels {
            level.report.stall_seconds += wait_seconds;
        }
    }
}

impl LevelImages {
    /// Notes the result of an image, for which the rank has waited `wait_seconds`.
    fn note(&mut self, written: Written, wait_seconds: f64) {
        let Written { epoch, end, left, seconds, cpu_seconds, .. } = written;
        self.unneeded.extend(left);
        let cost = ImageCost { write_seconds: seconds, wait_seconds, cpu_seconds };
        self.report.cpu_seconds += cpu_seconds;
        match end {
            ImageEnd::Sealed(bytes) => {
                self.report.images += 1;
                self.report.bytes += bytes;
                self.report.seconds += seconds;
                self.sealed.insert(epoch);
                self.next.end(Some(cost));
            }
            ImageEnd::Removed => self.report.seconds += seconds,
            ImageEnd::GivenUp => {
                self.report.given_up += 1;
                // It would have taken longer, by an unknown time.
                self.next.end((seconds > 0.0).then_some(cost));
            }
            ImageEnd::Failed(why) => {
                self.report.seconds += seconds;
                self.report.failure.get_or_insert(why);
            }
        }
    }

    /// Pending ones, so that the disk has what the level keeps and at most [`PENDING_MAX`] others.
    fn pending_max(&self) -> usize {
        PENDING_MAX - self.complete.len().saturating_sub(self.level.keep)
    }

    /// Whether another generation may become pending. The generation of `before`, the last epoch
    /// given to the writer, may still be pending, because some ranks may have been writing it at
    /// the last barrier. Without room images stay due, and at the next checkpoint all ranks have
    /// reported `before`. The same on all ranks.
    fn has_room(&self, before: u64) -> bool {
        usize::from(self.pending.contains(&before)) < self.pending_max()
    }

    /// Makes room for another pending generation of `start`, by dropping the oldest pending ones.
    /// These are not complete on all ranks and never will be; without this, they would accumulate
    /// on a level where some rank keeps giving its images up. No rank writes to a dropped one any
    /// more: a rank ends an image before it begins the next one, and all ranks have reported both
    /// at the last barrier.
    fn forget_incomplete(&mut self, start: StartId) {
        let surplus = (self.pending.len() + 1).saturating_sub(self.pending_max());
        for epoch in self.pending.drain(..surplus) {
            let is_it = |file: &&FileId| file.generation == Generation { start, epoch };
            self.unneeded.extend(self.own.iter().filter(is_it));
            self.own.retain(|file| !is_it(&file));
            self.sealed.remove(&epoch);
        }
    }

    /// Marks the pending epochs whose bits are set as complete: all ranks have sealed them. They
    /// have ended older images before, so no rank writes to the files that become unneeded.
    fn complete(&mut self, start: StartId, sealed_by_all: u64) {
        let is_complete = |i: usize| sealed_by_all >> i & 1 == 1;
        let Some(newest) = (0..self.pending.len()).rev().find(|&i| is_complete(i)) else { return };
        for i in (0..=newest).filter(|&i| is_complete(i)) {
            self.complete.insert(0, Generation { start, epoch: self.pending[i] });
        }
        self.complete.truncate(self.level.keep);
        self.pending.drain(..=newest);
        self.report.complete_epoch = self.complete[0].epoch;
        let is_needed = |file: &FileId| {
            let Generation { start: of, epoch } = file.generation;
            let is_pending = of == start && self.pending.contains(&epoch);
            is_pending || self.complete.contains(&file.generation)
        };
        let (needed, unneeded): (BTreeSet<_>, BTreeSet<_>) =
            self.own.iter().copied().partition(is_needed);
        self.own = needed;
        self.unneeded.extend(unneeded);
        self.sealed.retain(|epoch| self.pending.contains(epoch));
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use super::super::{CostLimits, ImagesEvery, Reach, SpacedRanks, Unopened};
    use super::*;

    const SECONDS: f64 = 1e6;

    /// RankImages of two levels, each with one image of `SECONDS` done and the next being written.
    fn writing() -> RankImages {
        writing_every(ImagesEvery::Seconds(0.0))
    }

    fn writing_every(every: ImagesEvery) -> RankImages {
        let level = Level {
            name: "level".into(),
            disk: Arc::new(Unopened(io::ErrorKind::Unsupported.into())),
            reach: Reach::Local,
            every,
            keep: 1,
        };
        let slot = Slot { rank: 0, ranks: SpacedRanks::alone(0), bytes: 8 };
        let start = StartId { number: 1, nonce: 1 };
        let (levels, own) = ([level.clone(), level], vec![BTreeSet::new(); 2]);
        let none = (&[vec![], vec![]][..], &[0.0; 2][..]);
        let mut rank_images =
            RankImages::new(start, &levels, &[slot; 2], none, own, &[None, None], None);
        let sealed = || Sealed { seal: Vec::new(), places: Vec::new(), body_bytes: 0 };
        rank_images.new_images(0b11, 1, &sealed);
        let ends = [0, 1].map(|level| ended(level, 1, ImageEnd::Sealed(8)));
        rank_images.note(ends.into(), 0.0);
        rank_images.new_images(0b11, 2, &sealed);
        rank_images
    }

    fn ended(level: usize, epoch: u64, end: ImageEnd) -> Written {
        Written { level, epoch, end, left: Vec::new(), seconds: SECONDS, cpu_seconds: 0.0 }
    }

    /// The last images of a start are written once those before are done.
    #[test]
    fn awaited_images_count_the_rest_of_those_under_way() {
        let seconds = writing().seconds_of_images();
        assert!((3.0 * SECONDS..=4.0 * SECONDS).contains(&seconds), "{seconds}");
    }

    /// The cost of another rank counts, once the ranks have compared.
    #[test]
    fn interval_stretched_by_image_cost_is_reported_once() {
        let limits = CostLimits { threads: 1, shares: false, share_max: 0.1, mtbf_seconds: 1.0 };
        let every = ImagesEvery::Cost { asked_seconds: Some(2.0), limits };
        let mut rank_images = writing_every(every);
        assert_eq!(rank_images.new_warnings(), Vec::<String>::new(), "this rank has not waited");
        let of_another = |wait_seconds| Vote {
            sealed: 0,
            works: u64::MAX,
            cost: ImageCost { write_seconds: 5.0, wait_seconds, cpu_seconds: 0.5 },
        };
        let own = rank_images.votes();
        let both: Vec<Vote> = own.iter().map(|own| own.and(of_another(4.0))).collect();
        rank_images.count_votes(&both);
        let warnings = rank_images.new_warnings();
        assert_eq!(warnings.len(), 2, "one for each level");
        for part in ["level level: ", "the run waits 4.000 s", "every 2 s", "are 40.000 s apart"] {
            assert!(warnings[0].contains(part), "{warnings:?}");
        }
        assert_eq!(rank_images.new_warnings(), Vec::<String>::new());
        let intervals = rank_images.reports().into_iter().map(|report| report.interval_seconds);
        assert_eq!(intervals.collect::<Vec<_>>(), [Some(40.0); 2]);
    }

    /// The other ranks learn of it at the next checkpoint, which may be hours later.
    #[test]
    fn a_write_that_has_failed_is_not_under_way_any_more() {
        let mut rank_images = writing();
        let failed = [0, 1].map(|level| ended(level, 2, ImageEnd::Failed("it fails".into())));
        rank_images.note(failed.into(), 0.0);
        assert_eq!(rank_images.seconds_of_images(), 0.0);
    }
}
