//! Encoding, the parities of a band from the blocks of all members, in a ring of messages (`ring`);
//! and rebuilding what is lost, in `rebuild`.
//!
//! The ring is the chain of Chen and Dongarra, "A scalable checkpoint encoding algorithm", section
//! 3.2, for all stripes of a band at once. The m partial sums of stripe t start at member t+m and
//! go round to t-1, each member adding its block; the last sends parity p to member t+p. In every
//! step all members send and receive the same number of bytes: no member is a bottleneck, and a
//! member sends m blocks for each block that it has.

mod rebuild;
pub(super) mod ring;
mod tile;

use std::mem;
use std::ops::Range;
use std::sync::Arc;

use super::hook::Step;
use super::vault::Vault;
use crate::tuning::TUNING;
pub(crate) use rebuild::CellPosition;
use skt_comm::{Comm, PageBuf, Result, SendRequest, Tag};
use skt_store::codec::{self, Codec, Coef, checksum};
use skt_store::layout::{Area, RegionAreas, Stripes, Summed};
use tile::{Tile, tiles};

const TAG_RING: Tag = 1;
const TAG_PARITY: Tag = 2;
const HUGE_DOUBLES: usize = (2 << 20) / size_of::<f64>();

pub(crate) struct RegionView<'a> {
    pub comm: &'a Comm,
    pub code: &'a Codec,
    pub vault: &'a mut Vault,
    pub areas: &'a RegionAreas,
    pub message_bytes: usize,
    pub scratch: &'a mut Scratch,
}

type Held = (Area, Range<usize>);

impl RegionView<'_> {
    fn stripes(&self) -> Stripes {
        self.areas.stripes
    }

    /// The tiles of a band, bytes `bytes` of each row, for messages of about `message_bytes`.
    pub(super) fn tiles(
        &self,
        band: usize,
        bytes: Range<usize>,
        message_bytes: usize,
    ) -> Vec<Tile> {
        tiles(self.stripes().parity_height(band), bytes, message_bytes, self.areas.cell_bytes)
    }

    pub(super) fn sum_alone(&mut self, set: usize, band: usize, bytes: &Range<usize>) {
        let own = self.areas.data(self.areas.a, set);
        for row in self.stripes().band(band) {
            for cell in own.cells(bytes) {
                let sum = checksum(self.vault.bytes(own.area.at(row, own.bytes_of(cell))));
                self.vault.set_sums(&own, row, cell, &[sum]);
            }
        }
    }

    /// `buffer = coef * block`, for the tile's part of a block of this member; zeros where the
    /// block has no rows. With `sums`, also stores the checksums of the block's cells there.
    fn start(
        &mut self,
        coef: Coef,
        held: Held,
        sums: Option<Summed>,
        tile: &Tile,
        buffer: &mut [u8],
    ) {
        let filled = tile.bytes_of(&held.1);
        if self.code.is_one(coef) {
            self.copy_out(held, sums, tile, buffer);
        } else {
            self.sum_up(held, sums, tile, buffer, |cell, out| codec::mul(coef, cell, out));
        }
        buffer[filled..].fill(0);
    }

    /// `buffer += coef * block`; see [`Self::start`].
    fn add(
        &mut self,
        coef: Coef,
        held: Held,
        sums: Option<Summed>,
        tile: &Tile,
        buffer: &mut [u8],
    ) {
        self.sum_up(held, sums, tile, buffer, |cell, out| codec::fma(coef, cell, out));
    }

    fn sum_up(
        &mut self,
        (from, rows): Held,
        sums: Option<Summed>,
        tile: &Tile,
        buffer: &mut [u8],
        operate: impl Fn(&[u8], &mut [u8]),
    ) {
        let cell_bytes = self.areas.cell_bytes;
        for (row, at) in tile.rows_of(rows) {
            let outs = buffer[at].chunks_mut(cell_bytes);
            for (byte, out) in tile.bytes.clone().step_by(cell_bytes).zip(outs) {
                let cell = self.vault.bytes(from.at(row, byte..byte + out.len()));
                operate(cell, out);
                if let Some(sums) = &sums {
                    let sum = checksum(cell);
                    self.vault.set_sums(sums, row, byte / cell_bytes, &[sum]);
                }
            }
        }
    }

    /// Copies the tile's part of a block of this member into the buffer, past the caches: another
    /// core that has read the buffer in its last use would otherwise have to give up each of its
    /// cache lines.
    fn copy_out(
        &mut self,
        (from, block): Held,
        sums: Option<Summed>,
        tile: &Tile,
        buffer: &mut [u8],
    ) {
        let mut found = mem::take(&mut self.scratch.sums);
        for (row, at) in tile.rows_of(block) {
            let source = self.vault.bytes(from.at(row, tile.bytes.clone()));
            let Some(sums) = sums else {
                codec::copy(source, &mut buffer[at]);
                continue;
            };
            found.clear();
            codec::copy_summed(source, &mut buffer[at], sums.cell_bytes, |sum| found.push(sum));
            self.vault.set_sums(&sums, row, sums.cells(&tile.bytes).start, &found);
        }
        self.scratch.sums = found;
    }

    fn put(
        &mut self,
        into: Summed,
        block: Range<usize>,
        tile: &Tile,
        buffer: &[u8],
        step: Step,
    ) -> Result<()> {
        for (row, at) in tile.rows_of(block) {
            self.vault.store_cells(&into, row, tile.bytes.clone(), &buffer[at], step)?;
        }
        Ok(())
    }

    fn sent(&mut self, (send, buffer): (Box<dyn SendRequest>, Arc<PageBuf>)) -> Result<()> {
        send.wait()?;
        self.scratch.buffers.extend(Arc::into_inner(buffer));
        Ok(())
    }
}

/// Buffers for messages, made at their first use and kept. They are on huge pages if the system
/// grants them, because a transport that copies between processes is twice as fast there.
#[derive(Default)]
pub(crate) struct Scratch {
    buffers: Vec<PageBuf>,
    sums: Vec<u64>,
}

impl Scratch {
    /// A buffer of at least `bytes`, with any contents.
    fn take(&mut self, bytes: usize) -> Result<PageBuf> {
        let doubles = bytes.div_ceil(size_of::<f64>());
        match self.buffers.pop() {
            Some(buffer) if buffer.len() >= doubles => Ok(buffer),
            _ => {
                let is_small = doubles < TUNING.small_message_bytes / size_of::<f64>();
                let most = if is_small { doubles } else { doubles.max(HUGE_DOUBLES) };
                PageBuf::for_messages(most)
            }
        }
    }
}

fn bytes_of(buffer: &PageBuf, bytes: usize) -> &[u8] {
    &bytemuck::cast_slice(buffer)[..bytes]
}

fn bytes_of_mut(buffer: &mut PageBuf, bytes: usize) -> &mut [u8] {
    &mut bytemuck::cast_slice_mut(buffer)[..bytes]
}
