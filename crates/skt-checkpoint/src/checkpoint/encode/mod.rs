//! Encoding, the parities of a band from the blocks of all members; and rebuilding, in `rebuild`.
//!
//! Four encoders compute the same bytes:
//!
//! - [`Encoder::Direct`], if all members are on one node: each reads the blocks of the others in
//!   place, in shared memory, and adds them up. There is no message and no buffer, and each byte is
//!   moved once.
//! - [`Encoder::Ring`], the default elsewhere: the chain of Chen and Dongarra, "A scalable
//!   checkpoint encoding algorithm", section 3.2, for all stripes of a band at once. The m partial
//!   sums of stripe t start at member t+m and go round to t-1, each member adding its block; the
//!   last sends parity p to member t+p. In every step all members send and receive the same number
//!   of bytes: no member is a bottleneck, and a member sends m blocks for each block that it has.
//! - [`Encoder::Reduce`]: one binomial reduction per parity, of whole blocks (Tang et al., TPDS
//!   2018, section 2.2, which calls `MPI_Reduce`).
//! - [`Encoder::Tree`]: one binary tree per parity, in segments.

mod direct;
mod mirror;
mod rebuild;
pub(super) mod ring;
mod scratch;
mod tile;
mod tree;

use std::mem;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use skt_terms::named;
use skt_terms::tree::Tree;

use super::gathered::Gathered;
use super::hook::Step;
use super::memory::OpenPeer;
use super::vault::Vault;
use crate::tuning::TUNING;
pub(crate) use rebuild::CellPosition;
pub(crate) use scratch::Scratch;
use scratch::{bytes_of, bytes_of_mut};
use skt_comm::{Comm, PageBuf, Result, SendRequest, Tag};
use skt_store::codec::{self, Codec, Coef, checksum};
use skt_store::layout::{Area, RegionAreas, Stripes, Summed};
use tile::{Tile, tiles};

pub(super) const TAG_RING: Tag = 1;
pub(super) const TAG_PARITY: Tag = 2;
pub(super) const TAG_READY: Tag = 6;
pub(super) const TAG_SUMS: Tag = 7;

/// How parities are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Encoder {
    /// [`Encoder::Direct`] for a group on one node, else [`Encoder::Ring`].
    Auto,
    /// Reads the others' memory in place.
    Direct,
    /// A pipelined ring of messages.
    Ring,
    /// One binomial reduction per parity, of whole blocks.
    Reduce,
    /// One binary tree per parity, in segments.
    Tree,
}

impl Encoder {
    /// The encoders that use messages alone.
    pub const MESSAGES: [Self; 3] = [Self::Ring, Self::Reduce, Self::Tree];

    /// The encoder to use if memory cannot be shared.
    pub(super) fn with_messages(self) -> Self {
        match self {
            Self::Auto | Self::Direct => Self::Ring,
            other => other,
        }
    }
}

named!(Encoder { Auto: "auto", Direct: "direct", Ring: "ring", Reduce: "reduce", Tree: "tree" });

/// One member's view of a region, with all that it needs to encode and rebuild bands.
pub(crate) struct RegionView<'a> {
    pub comm: &'a Comm,
    pub code: &'a Codec,
    pub vault: &'a mut Vault,
    pub areas: &'a RegionAreas,
    pub message_bytes: usize,
    pub scratch: &'a mut Scratch,
    /// The other members' segments, by position in the group, for [`Encoder::Direct`].
    pub peers: &'a [Option<OpenPeer>],
    /// Checksums of the other members' data that this member has computed.
    pub gathered: &'a mut Gathered,
}

/// Rows of an area of one member's segment.
type Held = (Area, Range<usize>);

/// A term of a sum: a member, its block of the stripe, and the factor of the block.
type Term = (usize, Held, Coef);

/// Where the checksums of cells that are read are stored.
#[derive(Clone, Copy)]
enum Sums {
    /// In this member's segment: the cells are its own.
    Own(Summed),
    /// In [`Gathered`], to be sent to the member that owns the cells.
    Gathered,
}

impl RegionView<'_> {
    pub(super) fn stripes(&self) -> Stripes {
        self.areas.stripes
    }

    fn tiles(&self, height: usize, bytes: Range<usize>, message_bytes: usize) -> Vec<Tile> {
        tiles(height, bytes, message_bytes, self.areas.cell_bytes)
    }

    /// Encodes one band of A, bytes `bytes` of each row, into parity set `set`, without a pause.
    /// With messages, collective over the group. The ring is done here only for two members that
    /// mirror each other; otherwise the module `ring` does it.
    pub(crate) fn encode(
        &mut self,
        encoder: Encoder,
        set: usize,
        band: usize,
        bytes: Range<usize>,
        step: Step,
    ) -> Result<()> {
        self.vault.step(step)?;
        if self.stripes().geometry.parities == 0 {
            self.sum_alone(set, band, &bytes);
            return Ok(());
        }
        let height = self.stripes().parity_height(band);
        let (tree, tile_bytes) = match encoder {
            Encoder::Auto => unreachable!("decided when it was opened"),
            Encoder::Ring => return self.encode_mirror(set, band, bytes, step),
            Encoder::Direct => {
                let tiles = self.tiles(height, bytes, TUNING.direct_tile_bytes);
                return self.encode_direct(set, band, &tiles, step);
            }
            Encoder::Reduce => (Tree::Binomial, height * bytes.len()),
            Encoder::Tree => (Tree::Binary, self.message_bytes),
        };
        let tiles = self.tiles(height, bytes, tile_bytes);
        self.encode_tree(tree, set, band, &tiles, step)
    }

    /// Computes the checksums of a member that is alone in its group.
    fn sum_alone(&mut self, set: usize, band: usize, bytes: &Range<usize>) {
        let own = self.areas.data(self.areas.a, set);
        for row in self.stripes().band(band) {
            for cell in own.cells(bytes) {
                let sum = checksum(self.vault.bytes(own.area.at(row, own.bytes_of(cell))));
                self.vault.set_sums(&own, row, cell, &[sum]);
            }
        }
    }

    /// Where to store the checksums of this member's own blocks while it encodes `parity`: they are
    /// computed once, with the first parity.
    pub(super) fn own_sums(&self, set: usize, parity: usize) -> Option<Summed> {
        (parity == 0).then(|| self.areas.data(self.areas.a, set))
    }

    /// `buffer += coef * block`, for the tile's part of a block of this member. With `sums`, also
    /// stores the checksums of the block's cells there.
    fn add(
        &mut self,
        coef: Coef,
        held: Held,
        sums: Option<Summed>,
        tile: &Tile,
        buffer: &mut [u8],
    ) {
        self.sum_up(&(self.comm.rank(), held, coef), false, sums.map(Sums::Own), tile, buffer);
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
        if self.code.is_one(coef) {
            let filled = tile.bytes_of(&held.1);
            self.copy_out(held, sums, tile, buffer);
            buffer[filled..].fill(0);
        } else {
            self.sum_up(&(self.comm.rank(), held, coef), true, sums.map(Sums::Own), tile, buffer);
        }
    }

    /// `buffer += coef * block` for the tile's part of a member's block, cell by cell, or `buffer =
    /// coef * block` if it `is_first`. Stores the checksums of the cells in `sums`.
    fn sum_up(
        &mut self,
        (member, (from, rows), coef): &Term,
        is_first: bool,
        sums: Option<Sums>,
        tile: &Tile,
        buffer: &mut [u8],
    ) {
        let cell_bytes = self.areas.cell_bytes;
        for (row, at) in tile.rows_of(rows.clone()) {
            let outs = buffer[at].chunks_mut(cell_bytes);
            for (byte, out) in tile.bytes.clone().step_by(cell_bytes).zip(outs) {
                let cell = self.held(*member, from.at(row, byte..byte + out.len()));
                if is_first {
                    codec::mul(*coef, cell, out)
                } else {
                    codec::fma(*coef, cell, out)
                }
                let Some(sums) = sums else { continue };
                let (sum, place) = (checksum(cell), byte / cell_bytes);
                match sums {
                    Sums::Own(own) => self.vault.set_sums(&own, row, place, &[sum]),
                    Sums::Gathered => self.gathered.put(*member, row, place, sum),
                }
            }
        }
        if is_first {
            buffer[tile.bytes_of(rows)..].fill(0);
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

    /// Bytes of a member's segment, read in place: this member's or another's.
    fn held(&self, member: usize, range: Range<usize>) -> &[u8] {
        if member == self.comm.rank() {
            return self.vault.bytes(range);
        }
        let peer = self.peers[member].as_ref().expect("in reach");
        // SAFETY: that member has declared these rows ready, and by its caller's promise they do
        // not change until all meet at the barrier after the encoding. The bytes that it writes
        // until then are not read.
        unsafe { peer.bytes(range) }
    }

    /// Writes the tile's part of a block, and the checksums of its cells.
    pub(super) fn put(
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

    /// The tiles of a band, bytes `bytes` of each row, for the ring's messages of about
    /// `message_bytes`.
    pub(super) fn ring_tiles(
        &self,
        band: usize,
        bytes: Range<usize>,
        message_bytes: usize,
    ) -> Vec<Tile> {
        self.tiles(self.stripes().parity_height(band), bytes, message_bytes)
    }

    /// Waits for a send and takes its buffer back.
    pub(super) fn sent(
        &mut self,
        sent: Option<(Box<dyn SendRequest>, Arc<PageBuf>)>,
    ) -> Result<()> {
        if let Some((send, buffer)) = sent {
            send.wait()?;
            self.scratch.buffers.extend(Arc::into_inner(buffer));
        }
        Ok(())
    }
}
