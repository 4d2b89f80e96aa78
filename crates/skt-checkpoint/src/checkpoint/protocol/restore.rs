//! Restarts from images: which one a rank loads, and what a start does when images have rotted.

use super::Opened;
use super::checkpointer::Checkpointer;
use crate::checkpoint::decide::Refusal;
use crate::checkpoint::error::Result;
use crate::checkpoint::level::{EpochSource, Generation, ImageId, Load, Rotten};
use crate::checkpoint::methods::Method;
use crate::checkpoint::segment::{Loaded, SegmentParts};
use skt_comm::collect::roll_call;
use skt_host::waits::Announced;
use skt_store::layout::RegionShape;

impl<'n> Checkpointer<'n> {
    pub(super) fn image(&self) -> Option<ImageId> {
        let Load { images, .. } = self.plan.load.as_deref()?;
        images.iter().flatten().find(|id| id.rank == self.job.rank()).copied()
    }

    pub(super) fn load_image(&mut self, epoch: u64) -> Result<Loaded> {
        let none = Loaded { is_sound: true, failure: None };
        let Some(level) = self.plan.load.as_ref().map(|load| load.level) else { return Ok(none) };
        let mut wait = Announced::begin("its image to be read");
        let unread_bytes_max = match self.config.method {
            // One checksum covers all of the image.
            Method::Abft => 0,
            _ => self.config.damaged_cells_max.saturating_mul(self.config.cell_bytes),
        };
        let loaded = match self.image() {
            Some(id) => self.images.load(level, id, &mut self.segment, epoch, unread_bytes_max)?,
            None => none,
        };
        wait.update("all ranks to read their images");
        roll_call(&self.job)?;
        Ok(loaded)
    }

    /// The `rotten` ranks count as lost afterwards, and their segments are zero.
    pub(super) fn lose_images(&mut self, rotten: &[usize]) {
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

    pub(super) fn follow_images_at_once(&mut self) {
        if let Some(load) = &self.plan.load {
            self.images.rank_images.make_due(load.level);
        }
    }

    /// Releases everything and decides again, without the rotten source of this start; `refusal`,
    /// with nothing changed, if there is no other. Collective.
    pub(super) fn open_without(self, refusal: Refusal) -> Result<Box<Self>> {
        let source = match self.plan.load.as_deref() {
            None => EpochSource::Memory,
            Some(&Load { level, generation, .. }) => EpochSource::Images { level, generation },
        };
        let Self { job, mut rotten, config, images, segment, .. } = self;
        let shapes: Vec<RegionShape> =
            segment.layout.regions.iter().map(|areas| areas.stripes.shape).collect();
        drop(images);
        let SegmentParts { memory, held, lock, hook } = segment.into_parts();
        drop(held);
        // All have released segments that another process may take over or remove.
        job.barrier()?;
        rotten.push(Rotten { source, refusal });
        match Self::open_after(&job, memory, config, &shapes, hook, lock, rotten)? {
            Opened::Ready(this) => Ok(this),
            Opened::Finished(_) => unreachable!("no rank of this start has come to the end"),
        }
    }

    /// Excludes these images from this start, on whatever level they are.
    pub(super) fn pass_over(&mut self, images: Generation, refusal: &Refusal) {
        for (level, restorable) in self.plan.restorable.iter().enumerate() {
            if restorable.generations.contains(&images) {
                let (source, refusal) =
                    (EpochSource::Images { level, generation: images }, refusal.clone());
                self.rotten.push(Rotten { source, refusal });
            }
        }
    }
}
