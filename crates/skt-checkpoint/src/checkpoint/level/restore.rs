//! Loading a rank's image at a restart, and removing images that no start needs any more.

use std::io;

use super::super::agree::{Plan, Refusal};
use super::super::checkpointer::Checkpointer;
use super::super::config::Config;
use super::super::error::{CheckpointError, Result};
use super::super::hook::{Step, StepName};
use super::super::joining::laid_out;
use super::super::layout::RegionShape;
use super::super::level::{Generation, Level, Load, Rotten, Source};
use super::super::memory::Memory;
use super::super::opening::{Earlier, Opening};
use super::super::protocol::Opened;
use super::disk::{FileId, ImageFile, ImageId, Slot};
use super::failed::remove_images;
use super::format::{ImageLayout, Said, Seal, read_seal};
use super::room::slots_with_room;
use crate::comm::Comm;

/// The `files` that no start needs: those of generations that cannot be restored, or are older than
/// the newest `keep` restorable ones. While no generation can be restored, all generations with a
/// `sealed` image stay.
fn unneeded(
    level: &Level,
    files: &[FileId],
    restorable: &[Generation],
    sealed: &[Generation],
) -> Vec<FileId> {
    let needed = match restorable {
        [] => sealed,
        _ => &restorable[..restorable.len().min(level.keep)],
    };
    files.iter().filter(|file| !needed.contains(&file.generation)).copied().collect()
}

/// Opens an image for reading.
fn open(level: &Level, id: ImageId) -> io::Result<Box<dyn ImageFile>> {
    match level.disk.list()?.into_iter().find(|file| file.has(id)) {
        Some(file) => level.disk.open(file, id.rank),
        None => Err(io::ErrorKind::NotFound.into()),
    }
}

impl<C: Comm, M: Memory> Checkpointer<C, M> {
    /// The slots that this rank writes to on each level. A level without room is given up if there
    /// is something to resume from, or the level is known to have nothing. Collective; nothing has
    /// changed yet.
    ///
    /// # Errors
    /// [`Refusal::NoRoom`] on all processes, if there is nothing to resume from and the level may
    /// have images.
    pub(in super::super) fn slots_of_levels(
        comm: &C,
        opening: &Opening<M>,
        plan: &mut Plan,
        config: &Config,
        shapes: &[RegionShape],
    ) -> Result<Vec<Slot>> {
        if config.levels.is_empty() {
            return Ok(Vec::new());
        }
        let rank = plan.ranks[comm.rank()];
        let (_, members) = plan.group_of(rank);
        let (layout, _) = laid_out(config, opening.header.bytes(), shapes, members.len())?;
        let image = ImageLayout::new(&layout, config.method, 0, config.abft_image_bytes);
        let bytes = image.image_bytes(layout.header_bytes);
        let align_bytes = config.image_align_bytes;
        let place = (rank, &config.node[..], &config.host[..]);
        let (slots, lacking) =
            slots_with_room(comm, &config.levels, &opening.seen, place, bytes, align_bytes)?;
        for (given_up, lacking) in plan.given_up.iter_mut().zip(lacking) {
            match lacking {
                Some(refusal) if plan.epoch == 0 && !config.nothing_hidden => {
                    return Err(refusal.into());
                }
                lacking => *given_up = given_up.take().or(lacking.map(|why| why.to_string())),
            }
        }
        Ok(slots)
    }

    /// The image that this rank loads, if it loads one.
    pub(in super::super) fn image(&self) -> Option<ImageId> {
        let Load { images, .. } = self.plan.load.as_deref()?;
        images.iter().flatten().find(|id| id.rank == self.job.rank()).copied()
    }

    /// Opens an image and reads its seal, which must fit its name and `layout`.
    fn open_sealed(
        &self,
        level: &Level,
        id: ImageId,
        layout: &ImageLayout,
    ) -> io::Result<(Box<dyn ImageFile>, Box<Seal>)> {
        let mut file = open(level, id)?;
        let Generation { start, epoch } = id.generation;
        let is_it = |seal: &Seal| {
            (seal.record.lineage(), seal.record.stamped()) == (start, epoch)
                && seal.body_bytes == layout.body_bytes
        };
        match read_seal(self.segment.header(), &mut *file)? {
            Said::Sealed(seal) if is_it(&seal) => Ok((file, seal)),
            _ => Err(io::Error::other("it has changed since it was looked at")),
        }
    }

    /// Loads the copy, parities and checksums of this rank from its image. Its segment is hollow
    /// until they are verified. What cannot be read, the whole image or a part, stays zero and
    /// differs from its checksums. Returns the bytes loaded; 0 with method `abft` if the image's
    /// single checksum differs.
    pub(in super::super) fn load_image(&mut self, epoch: u64) -> Result<usize> {
        let Some(id) = self.image() else { return Ok(0) };
        let number = self.plan.load.as_ref().expect("it names the image").level;
        let layout = self.segment.image_layout(epoch);
        let opened = self.open_sealed(&self.config.levels[number], id, &layout);
        let Ok((mut file, seal)) = opened else { return Ok(0) };
        self.segment.load_image(epoch, &layout, &mut *file, &seal)
    }

    /// Treats the images of the `rotten` ranks as lost: these ranks count as lost from here on, and
    /// their segments are zero.
    pub(in super::super) fn lose_images(&mut self, rotten: &[usize]) {
        if rotten.contains(&self.job.rank()) {
            self.segment.clear_image(self.plan.epoch);
        }
        let images = self.plan.load.iter_mut().flat_map(|load| &mut load.images);
        images.for_each(|image| *image = image.filter(|id| !rotten.contains(&id.rank)));
        self.plan.lost.extend(rotten);
        self.plan.lost.sort_unstable();
        if !rotten.is_empty() {
            self.segment.note_rotten_images();
            self.follow_images_at_once();
        }
    }

    /// Makes images due at once if this start resumes from images that have rotted in part.
    pub(in super::super) fn follow_images_at_once(&mut self) {
        if let Some(load) = &self.plan.load {
            self.shelves.make_due(load.level);
        }
    }

    /// Releases everything and decides again, without the rotten source of this start. Collective.
    ///
    /// # Errors
    /// `refusal`, if there is no other source; nothing has changed then.
    pub(in super::super) fn open_without(self, refusal: Refusal) -> Result<Box<Self>> {
        let source = match self.plan.load.as_deref() {
            None => Source::Memory,
            Some(&Load { level, generation, .. }) => Source::Images { level, generation },
        };
        let Self { job, mut rotten, config, helper, mut encoding, segment, .. } = self;
        let shapes: Vec<RegionShape> =
            segment.layout().regions.iter().map(|parts| parts.stripes.shape).collect();
        drop(helper);
        encoding.forget_peers();
        let (memory, held, lock, hook) = segment.into_parts();
        drop(held);
        // All have released segments that another process may take over or remove.
        job.barrier()?;
        rotten.push(Rotten { source, refusal });
        match Self::open_after(&job, memory, config, &shapes, hook, Earlier { lock, rotten })? {
            Opened::Ready(this) => Ok(this),
            Opened::Finished(_) => unreachable!("no rank of this start has come to the end"),
        }
    }

    /// Excludes these images from this start, on whatever level they are.
    pub(in super::super) fn pass_over(&mut self, images: Generation, refusal: &Refusal) {
        for (level, restorable) in self.plan.restorable.iter().enumerate() {
            if restorable.contains(&images) {
                let (source, refusal) =
                    (Source::Images { level, generation: images }, refusal.clone());
                self.rotten.push(Rotten { source, refusal });
            }
        }
    }

    /// Removes the images that no start needs any more, among those that this process manages.
    /// Rotten ones are among them, since the run resumes from another source. A disk on which
    /// removal fails, for instance a read-only one, costs its level.
    pub(in super::super) fn discard_superfluous_images(&mut self) -> Result<()> {
        let Plan { restorable, sealed, epoch, .. } = &self.plan;
        let step = Step::new(StepName::Discard, *epoch);
        for (number, files) in std::mem::take(&mut self.seen_files).iter().enumerate() {
            let level = &self.config.levels[number];
            let files = unneeded(level, files, &restorable[number], &sealed[number]);
            match remove_images(level, &files, &|| self.segment.step(step)) {
                Err(CheckpointError::Level { source, .. }) => {
                    self.shelves.fail(number, source.to_string());
                }
                removed => removed?,
            }
        }
        Ok(())
    }
}
