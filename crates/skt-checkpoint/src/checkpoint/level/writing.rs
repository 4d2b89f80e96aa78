//! The writing of images, one operation at a time.
//!
//! The order of operations survives a power cut at any instant: the name and the body are safe
//! before the seal is written, and the seal is safe before the image counts.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use super::super::vault::Lent;
use super::disk::{Disk, FileId, Generation, ImageFile, Slot};
use skt_host::thread_clock::thread_cpu_seconds;

#[derive(Debug)]
pub(crate) struct NewImage {
    pub level: usize,
    pub disk: Arc<dyn Disk>,
    pub generation: Generation,
    pub slot: Slot,
    /// Files that are no longer needed, which this rank removes first.
    pub remove: Vec<FileId>,
    /// The image itself; `None` if there are only files to remove.
    pub sealed: Option<Sealed>,
}

#[derive(Debug)]
pub(crate) struct Sealed {
    /// The image's seal, in whole pages.
    pub seal: Vec<u8>,
    /// Offsets of the lent ranges in the body.
    pub places: Vec<u64>,
    pub body_bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Written {
    pub level: usize,
    pub epoch: u64,
    pub end: ImageEnd,
    /// Files that this rank was to remove first, and has not, as it gave up before.
    pub left: Vec<FileId>,
    /// From its first operation to its last; 0 for one that was given up before it was begun.
    pub seconds: f64,
    pub cpu_seconds: f64,
}

#[derive(Debug)]
pub(crate) enum ImageEnd {
    /// The image is complete and survives a power cut; with its bytes.
    Sealed(u64),
    /// There was no image to write, only files to remove, of which some may be left.
    Removed,
    /// The image was not done in time, and does not count.
    GivenUp,
    /// The image could not be written, for this reason, and does not count.
    Failed(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextOperation {
    Remove(usize),
    Create,
    SyncNames,
    /// Writes the body from byte `at` of lent range `range` on.
    Body {
        range: usize,
        at: usize,
    },
    SyncBody,
    Seal,
    SyncSeal,
    Done,
}

pub(crate) struct Writing {
    lent: Lent,
    images: Vec<NewImage>,
    piece_bytes: usize,
    /// The index of the image that is being written; `next` is its next operation.
    image: usize,
    next: NextOperation,
    file: Option<Box<dyn ImageFile>>,
    begun: Instant,
    cpu_seconds: f64,
    /// When the first bytes of its body were written.
    body: Option<Instant>,
    operations: u64,
    written: Vec<Written>,
}

impl Writing {
    pub(crate) fn new(lent: Lent, images: Vec<NewImage>, piece_bytes: usize) -> Self {
        assert!(piece_bytes > 0);
        Self {
            lent,
            images,
            piece_bytes,
            image: 0,
            next: NextOperation::Remove(0),
            file: None,
            begun: Instant::now(),
            cpu_seconds: 0.0,
            body: None,
            operations: 0,
            written: Vec::new(),
        }
    }

    /// The operations done, and the seconds that the next one may take: the first sync writes at
    /// most what the body has written so far; for other operations 0, unknown.
    pub(crate) fn progress(&self) -> (u64, f64) {
        let expected_seconds = match (self.next, self.body) {
            (NextOperation::SyncBody, Some(begun)) => begun.elapsed().as_secs_f64(),
            _ => 0.0,
        };
        (self.operations, expected_seconds)
    }

    /// Does the next operation. Returns whether there is another.
    pub(crate) fn advance(&mut self) -> bool {
        let Some(image) = self.images.get(self.image) else { return false };
        self.operations += 1;
        let (level, epoch) = (image.level, image.generation.epoch);
        let cpu_before = thread_cpu_seconds();
        let operated = self.operate();
        self.cpu_seconds += thread_cpu_seconds() - cpu_before;
        let end = match operated {
            Ok(NextOperation::Done) => match &self.images[self.image].sealed {
                Some(sealed) => ImageEnd::Sealed(sealed.seal.len() as u64 + sealed.body_bytes),
                None => ImageEnd::Removed,
            },
            Ok(next) => {
                self.next = next;
                return true;
            }
            Err(error) => {
                self.discard_unsealed();
                ImageEnd::Failed(error.to_string())
            }
        };
        let seconds = self.begun.elapsed().as_secs_f64();
        let cpu_seconds = std::mem::take(&mut self.cpu_seconds);
        let left = Vec::new();
        self.written.push(Written { level, epoch, end, left, seconds, cpu_seconds });
        (self.image, self.next, self.begun) =
            (self.image + 1, NextOperation::Remove(0), Instant::now());
        (self.file, self.body) = (None, None);
        self.image < self.images.len()
    }

    /// Stops writing, and frees the space of what is not sealed. Removes no files, as the rank
    /// waits for this, and a disk may take long to remove many.
    pub(crate) fn give_up(&mut self) {
        let is_begun = self.file.is_some();
        let mut seconds = if is_begun { self.begun.elapsed().as_secs_f64() } else { 0.0 };
        self.discard_unsealed();
        for image in self.images.drain(..).skip(self.image) {
            let NewImage {
                level, generation: Generation { epoch, .. }, mut remove, sealed, ..
            } = image;
            // Those after the current one have not begun.
            let next = std::mem::replace(&mut self.next, NextOperation::Remove(0));
            let left = match next {
                NextOperation::Remove(at) => remove.split_off(at),
                _ => Vec::new(),
            };
            let end = if sealed.is_some() { ImageEnd::GivenUp } else { ImageEnd::Removed };
            let (seconds, cpu_seconds) =
                (std::mem::take(&mut seconds), std::mem::take(&mut self.cpu_seconds));
            self.written.push(Written { level, epoch, end, left, seconds, cpu_seconds });
        }
    }

    pub(crate) fn into_written(self) -> Vec<Written> {
        self.written
    }

    fn operate(&mut self) -> io::Result<NextOperation> {
        let image = &self.images[self.image];
        let file = self.file.as_mut();
        let opened = "opened before it is written";
        match (self.next, &image.sealed) {
            (NextOperation::Remove(at), _) if at < image.remove.len() => {
                image.disk.remove(image.remove[at])?;
                return Ok(NextOperation::Remove(at + 1));
            }
            (NextOperation::Remove(_), None) | (NextOperation::Done, _) => {
                return Ok(NextOperation::Done);
            }
            (NextOperation::Remove(_), Some(_)) => return Ok(NextOperation::Create),
            (_, None) => unreachable!("nothing is written without an image"),
            (NextOperation::Create, Some(sealed)) => {
                let bytes = sealed.seal.len() as u64 + sealed.body_bytes;
                assert!(bytes <= image.slot.bytes, "slots are made for the largest image");
                self.file = Some(image.disk.create(image.generation, &image.slot)?);
                return Ok(NextOperation::SyncNames);
            }
            (NextOperation::SyncNames, _) => image.disk.sync_names()?,
            (NextOperation::Body { range, at }, Some(sealed)) => {
                let Some(bytes) = self.lent.range(range) else {
                    return Ok(NextOperation::SyncBody);
                };
                let place = sealed.seal.len() as u64 + sealed.places[range] + at as u64;
                // File systems handle whole pieces best.
                let piece_bytes = self.piece_bytes - (place % self.piece_bytes as u64) as usize;
                let piece = &bytes[at..bytes.len().min(at + piece_bytes)];
                self.body.get_or_insert_with(Instant::now);
                file.expect(opened).write_at(place, piece)?;
                return Ok(if at + piece.len() < bytes.len() {
                    NextOperation::Body { range, at: at + piece.len() }
                } else {
                    NextOperation::Body { range: range + 1, at: 0 }
                });
            }
            (NextOperation::SyncBody, _) => file.expect(opened).sync()?,
            (NextOperation::Seal, Some(sealed)) => file.expect(opened).write_at(0, &sealed.seal)?,
            (NextOperation::SyncSeal, _) => file.expect(opened).sync()?,
        }
        Ok(match self.next {
            NextOperation::SyncNames => NextOperation::Body { range: 0, at: 0 },
            NextOperation::SyncBody => NextOperation::Seal,
            NextOperation::Seal => NextOperation::SyncSeal,
            _ => NextOperation::Done,
        })
    }

    /// Frees the space of an image that is not complete, and so useless; if that fails, it is freed
    /// with the file. An image that has a seal, or part of one, is left as it is: a whole seal must
    /// never stand before a body with a hole.
    fn discard_unsealed(&mut self) {
        let is_sealing = matches!(self.next, NextOperation::Seal | NextOperation::SyncSeal);
        if let (false, Some(mut file)) = (is_sealing, self.file.take()) {
            let _ = file.discard();
        }
    }
}
