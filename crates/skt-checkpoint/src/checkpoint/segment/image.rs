//! The image of a segment: what its writer reads, and what is loaded from a file.

use std::ops::Range;
use std::time::Instant;

use super::OwnSegment;
use crate::checkpoint::error::Result;
use crate::checkpoint::hook::{Step, StepName};
use crate::checkpoint::level::{ImageFile, ImageLayout, Seal, encode_seal};

use crate::checkpoint::methods::Method;
use crate::checkpoint::vault::Lent;
use skt_store::codec::checksum;

pub(crate) struct Loaded {
    /// Whether the image has a seal, and with method `abft` its single checksum holds.
    pub is_sound: bool,
    /// Why it could not be read, all or in part.
    pub failure: Option<String>,
}

impl<'n> OwnSegment<'n> {
    pub(crate) fn image_layout(&self, epoch: u64) -> ImageLayout {
        ImageLayout::new(&self.layout, self.method, epoch, self.abft_image_bytes)
    }

    /// Of an image's part of this rank's segment, if the segment contains no checksums; else 0.
    pub(crate) fn body_sum(&self, layout: &ImageLayout) -> u64 {
        if self.method != Method::Abft {
            return 0;
        }
        /// Bytes between two calls of the hook: reading all of the matrix takes minutes.
        const PIECE_BYTES: usize = 256 << 20;
        let (begun, mut sums) = (Instant::now(), Vec::new());
        for (range, _) in &layout.ranges {
            for start in range.clone().step_by(PIECE_BYTES) {
                self.vault.passes(begun, sums.len());
                let piece = start..range.end.min(start + PIECE_BYTES);
                sums.push(checksum(self.vault.bytes(piece)));
            }
        }
        checksum(bytemuck::cast_slice(&sums))
    }

    /// Of an image of the epoch in the record.
    pub(crate) fn seal(&self, body_bytes: u64, body_sum: u64) -> Vec<u8> {
        encode_seal(&self.header, &self.identity, &self.record, body_bytes, body_sum)
    }

    /// # Safety
    /// While the ranges are lent, no one writes to them, and this segment exists.
    pub(crate) unsafe fn lend(&mut self, ranges: &[Range<usize>]) -> Lent {
        // SAFETY: as the caller promises.
        unsafe { self.vault.lend(ranges) }
    }

    /// Ranges of `layout` that cannot be read become zero and differ from their checksums. Once
    /// more than `unread_bytes_max` could not be read, the image is lost, and the rest counts as
    /// unread without a try: a disk that fails may take seconds to refuse each read.
    pub(crate) fn load_image(
        &mut self,
        epoch: u64,
        layout: &ImageLayout,
        file: &mut dyn ImageFile,
        seal: &Seal,
        unread_bytes_max: usize,
    ) -> Result<Loaded> {
        assert!(self.record.is_hollow(), "an image is never loaded over data that counts");
        let (mut loaded, mut unread, piece_bytes) = (0, 0, self.vault.chunk_bytes());
        let mut failure = None;
        let begun = Instant::now();
        for (index, (range, place)) in layout.ranges.iter().cloned().enumerate() {
            for (chunk, start) in range.clone().step_by(piece_bytes).enumerate() {
                let step = Step::new(StepName::RecoverLoad, epoch).band(index / 3, index % 3);
                self.vault.step(step.chunk(chunk))?;
                let piece = start..range.end.min(start + piece_bytes);
                let at = seal.body_at + place + (start - range.start) as u64;
                let into = self.vault.bytes_mut(piece.clone());
                let is_read = unread <= unread_bytes_max
                    && file
                        .read_at(at, into)
                        .inspect_err(|why| failure = Some(why.to_string()))
                        .is_ok();
                if !is_read {
                    into.fill(0);
                    unread += piece.len();
                }
                loaded += piece.len();
                // Reports progress, because ranks without an image wait.
                self.vault.passes(begun, loaded);
            }
        }
        Ok(Loaded { is_sound: self.body_sum(layout) == seal.body_sum, failure })
    }

    pub(crate) fn clear_image(&mut self, epoch: u64) {
        assert!(self.record.is_hollow(), "what comes from an image does not count yet");
        let ImageLayout { ranges, .. } = self.image_layout(epoch);
        ranges.into_iter().for_each(|(range, _)| self.vault.bytes_mut(range).fill(0));
    }
}
