use std::{io, mem};

use super::super::disk::{FileId, Generation, ImageFile, ImageId};
use super::super::failed::remove_images;
use super::super::format::{ImageLayout, Seal, SealState, read_seal};
use super::super::source::Restorable;
use super::{Images, Level};
use crate::checkpoint::decide::plan::{Note, StartPlan};
use crate::checkpoint::error::{CheckpointError, Result};
use crate::checkpoint::header::HeaderLayout;
use crate::checkpoint::hook::{Step, StepName};

use crate::checkpoint::segment::{Loaded, OwnSegment};

/// Those of generations that cannot be restored, or are not kept. While no generation can be
/// restored, all generations with a `sealed` image stay. The `note` of a chosen checkpoint stays.
fn unneeded(
    level: &Level,
    files: &[FileId],
    restorable: &Restorable,
    sealed: &[Generation],
    note: Option<&Note>,
) -> Vec<FileId> {
    let kept = restorable.kept(level.keep);
    let needed = if kept.is_empty() { sealed } else { &kept };
    let is_needed = |file: &&FileId| {
        needed.contains(&file.generation) || note.is_some_and(|note| note.name == file.generation)
    };
    files.iter().filter(|file| !is_needed(file)).copied().collect()
}

fn open(level: &Level, id: ImageId) -> io::Result<Box<dyn ImageFile>> {
    match level.disk.list()?.into_iter().find(|file| file.has(id)) {
        Some(file) => level.disk.open(file, id.rank),
        None => Err(io::ErrorKind::NotFound.into()),
    }
}

/// Opens an image and reads its seal, which must fit its name and `layout`.
fn open_sealed(
    level: &Level,
    id: ImageId,
    header: &HeaderLayout,
    layout: &ImageLayout,
) -> io::Result<(Box<dyn ImageFile>, Box<Seal>)> {
    let mut file = open(level, id)?;
    let Generation { start, epoch } = id.generation;
    let is_it = |seal: &Seal| {
        (seal.record.lineage(), seal.record.stamped()) == (start, epoch)
            && seal.body_bytes == layout.body_bytes
    };
    match read_seal(header, &mut *file)? {
        SealState::Sealed(seal) if is_it(&seal) => Ok((file, seal)),
        _ => Err(io::Error::other("it has changed since it was looked at")),
    }
}

impl Images {
    /// The segment is hollow until what is loaded is verified. Bytes that cannot be read stay zero
    /// and differ from their checksums; if they are more than `unread_bytes_max`, the image is
    /// lost.
    pub(crate) fn load(
        &self,
        number: usize,
        id: ImageId,
        segment: &mut OwnSegment,
        epoch: u64,
        unread_bytes_max: usize,
    ) -> Result<Loaded> {
        let layout = segment.image_layout(epoch);
        match open_sealed(&self.levels[number], id, &segment.header, &layout) {
            Ok((mut file, seal)) => {
                segment.load_image(epoch, &layout, &mut *file, &seal, unread_bytes_max)
            }
            Err(why) => Ok(Loaded { is_sound: false, failure: Some(why.to_string()) }),
        }
    }

    /// Those that this process manages, rotten ones among them, since the run resumes from another
    /// source. If removal fails, for instance on a read-only disk, the level fails.
    pub(crate) fn discard_superfluous(
        &mut self,
        segment: &OwnSegment,
        plan: &StartPlan,
    ) -> Result<()> {
        let StartPlan { restorable, sealed, epoch, note, .. } = plan;
        let step = Step::new(StepName::Discard, *epoch);
        for (number, files) in mem::take(&mut self.seen_files).iter().enumerate() {
            let level = &self.levels[number];
            let files =
                unneeded(level, files, &restorable[number], &sealed[number], note.as_deref());
            match remove_images(level, &files, &|| segment.step(step)) {
                Err(CheckpointError::Level { source, .. }) => {
                    self.rank_images.fail(number, source.to_string());
                }
                removed => removed?,
            }
        }
        Ok(())
    }
}
