//! The ring of two members whose parities are each other's blocks.

use std::ops::Range;

use super::{RegionView, TAG_PARITY};
use crate::checkpoint::hook::Step;

use crate::tuning::TUNING;
use skt_comm::Result;
use skt_store::codec::checksum;

impl RegionView<'_> {
    /// Whether a parity is just the other member's block, with rows long enough to be sent in
    /// place.
    pub(in super::super) fn can_mirror(&self, from_byte: usize) -> bool {
        self.stripes().geometry.members == 2
            && self.code.is_one(self.code.encode_coef(0, 0))
            && self.stripes().shape.pitch_bytes.saturating_sub(from_byte) >= TUNING.whole_row_bytes
    }

    /// Encodes a band of two members whose parities are each other's blocks: each sends its A
    /// straight into the other's D, without a buffer between.
    pub(super) fn encode_mirror(
        &mut self,
        set: usize,
        band: usize,
        bytes: Range<usize>,
        step: Step,
    ) -> Result<()> {
        let (stripes, other) = (self.stripes(), 1 - self.comm.rank());
        let (a, parities) = (self.areas.a, self.areas.parities(set));
        let d = parities.area;
        let rows = stripes.block(band, 0).zip(stripes.parity(band, 0));
        let rows: Vec<(usize, usize)> = rows.collect();
        let whole = bytes == (0..stripes.shape.pitch_bytes);
        let at_once = (self.message_bytes / bytes.len()).max(1);
        for (turn, batch) in rows.chunks(at_once).enumerate() {
            self.vault.step(step.chunk(turn))?;
            let (low, mut high) = self.vault.read_and_write(a.range(), d.range());
            let mut gone = d.offset;
            let (mut sends, mut recvs) = (Vec::new(), Vec::new());
            // Whole rows are adjacent, so one message can have several.
            let messages = batch.chunks(if whole { batch.len() } else { 1 });
            for message in messages {
                let (first, last) = (message[0], message[message.len() - 1]);
                let from = a.at(first.0, bytes.clone()).start..a.at(last.0, bytes.clone()).end;
                let into = d.at(first.1, bytes.clone()).start..d.at(last.1, bytes.clone()).end;
                let (_, rest) = high.split_at_mut(into.start - gone);
                let (slice, rest) = rest.split_at_mut(into.len());
                (high, gone) = (rest, into.end);
                sends.push((&low[from.start - a.offset..from.end - a.offset], other, TAG_PARITY));
                recvs.push((slice, other, TAG_PARITY));
            }
            self.comm.exchange_bytes(&sends, &mut recvs)?;
            for &(row, parity_row) in batch {
                for cell in parities.cells(&bytes) {
                    let bytes = d.at(parity_row, parities.bytes_of(cell));
                    let sum = checksum(self.vault.bytes(bytes));
                    self.vault.set_sums(&parities, parity_row, cell, &[sum]);
                    // The row that arrived is the other's row unchanged.
                    self.gathered.put(other, row, cell, sum);
                }
            }
        }
        Ok(())
    }
}
