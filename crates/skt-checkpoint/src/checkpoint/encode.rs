//! Encoding: the parities of a band from the blocks of all members.
//!
//! Four ways to the same bytes:
//!
//! - [`Encoder::Direct`], where all members stand on one node: each reads the
//!   blocks of the others where they lie, in shared memory, and adds them up. No
//!   message, no buffer, and each byte is moved once.
//! - [`Encoder::Ring`], the default elsewhere: the chain of Chen and Dongarra, "A
//!   scalable checkpoint encoding algorithm", section 3.2, for all stripes of a
//!   band at once. The m partial sums of stripe t start at member t+m and go
//!   round to t-1, each member adding its block; the last sends parity p to
//!   member t+p. In every step all members send and receive equally much: no
//!   member is a bottleneck, and a member sends m blocks for each of its own.
//! - [`Encoder::Reduce`]: one binomial reduction a parity, whole blocks (Tang
//!   et al., TPDS 2018, section 2.2, which calls `MPI_Reduce`).
//! - [`Encoder::Tree`]: one binary tree a parity, in segments.

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::ops::{DerefMut, Range};
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::code::Code;
use super::codec::{self, checksum};
use super::gathered::Gathered;
use super::hook::Step;
use super::layout::{Part, RegionParts, Stripes, Summed};
use super::memory::Peer;
use super::vault::Vault;
use crate::comm::{Comm, PanelBuf, RecvRequest, Result, SendRequest, Tag};

/// Bytes that are summed up at once when members read each other's memory: well
/// within the cache of a core.
const DIRECT_TILE_BYTES: usize = 256 << 10;

pub(super) const TAG_RING: Tag = 1;
pub(super) const TAG_PARITY: Tag = 2;
const TAG_TREE: Tag = 3;
const TAG_REBUILD: Tag = 4;
pub(super) const TAG_READY: Tag = 6;
pub(super) const TAG_SUMS: Tag = 7;

/// How parities are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Encoder {
    /// [`Encoder::Direct`] for a group that stands on one node, else
    /// [`Encoder::Ring`].
    Auto,
    /// Reading the others' memory.
    Direct,
    /// Pipelined ring.
    Ring,
    /// One binomial reduction a parity, whole blocks.
    Reduce,
    /// One binary tree a parity, in segments.
    Tree,
}

impl Encoder {
    /// Those that do with messages.
    pub const MESSAGES: [Self; 3] = [Self::Ring, Self::Reduce, Self::Tree];

    /// All encoders, and the choice by what there is.
    pub const ALL: [Self; 5] = [Self::Auto, Self::Direct, Self::Ring, Self::Reduce, Self::Tree];

    /// What is left of it where memory cannot be shared.
    pub(super) fn with_messages(self) -> Self {
        match self {
            Self::Auto | Self::Direct => Self::Ring,
            other => other,
        }
    }
}

impl fmt::Display for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Direct => "direct",
            Self::Ring => "ring",
            Self::Reduce => "reduce",
            Self::Tree => "tree",
        })
    }
}

/// No encoder of that name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown encoder `{0}`; one of auto, direct, ring, reduce, tree")]
pub struct UnknownEncoder(String);

impl FromStr for Encoder {
    type Err = UnknownEncoder;

    fn from_str(name: &str) -> std::result::Result<Self, UnknownEncoder> {
        let named = |encoder: &Self| encoder.to_string() == name;
        Self::ALL.into_iter().find(named).ok_or_else(|| UnknownEncoder(name.to_owned()))
    }
}

/// Segment size that makes a pipelined chain fastest: with t = bytes/s segments
/// over p processes, `T(s) = (p - 2 + t) (alpha + (beta + gamma) s)` is least at
///
/// ```text
/// s = sqrt(bytes alpha / ((p - 2) (beta + gamma)))
/// ```
///
/// (Chen and Dongarra, section 3.3). `alpha` is the latency of a message in
/// seconds, `beta` and `gamma` the seconds a byte takes to be sent and to be
/// added. Rounded to whole cache lines, and between one of them and `bytes`.
pub fn optimal_segment_bytes(
    bytes: usize,
    processes: usize,
    alpha_seconds: f64,
    beta_seconds_per_byte: f64,
    gamma_seconds_per_byte: f64,
) -> usize {
    const LINE: usize = 64;
    let most = bytes.max(1).next_multiple_of(LINE);
    if processes <= 2 {
        // No pipeline to fill: one message.
        return most;
    }
    let hops = (processes - 2) as f64;
    let per_byte = beta_seconds_per_byte + gamma_seconds_per_byte;
    let best = (bytes as f64 * alpha_seconds / (hops * per_byte)).sqrt();
    if !best.is_finite() {
        return most;
    }
    ((best / LINE as f64).round() as usize * LINE).clamp(LINE, most)
}

/// Buffers of messages, made at the first use and kept: on huge pages where the
/// system grants them, for a transport that copies between processes is twice
/// as fast there.
#[derive(Default)]
pub struct Scratch {
    buffers: Vec<PanelBuf>,
    /// Checksums of a row's cells.
    sums: Vec<u64>,
}

impl Scratch {
    /// A buffer of at least so many bytes, of any content.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub(super) fn take(&mut self, bytes: usize) -> crate::comm::Result<PanelBuf> {
        let doubles = bytes.div_ceil(size_of::<f64>());
        match self.buffers.pop() {
            Some(buffer) if buffer.len() >= doubles => Ok(buffer),
            _ => {
                let most =
                    if doubles < SMALL_DOUBLES { doubles } else { doubles.max(HUGE_DOUBLES) };
                PanelBuf::for_messages(most)
            }
        }
    }

    pub(super) fn give(&mut self, buffer: PanelBuf) {
        self.buffers.push(buffer);
    }
}

pub(super) fn bytes_of(buffer: &PanelBuf, bytes: usize) -> &[u8] {
    &bytemuck::cast_slice(buffer)[..bytes]
}

pub(super) fn bytes_of_mut(buffer: &mut PanelBuf, bytes: usize) -> &mut [u8] {
    &mut bytemuck::cast_slice_mut(buffer)[..bytes]
}

/// Messages below this are not worth a huge page.
const SMALL_DOUBLES: usize = (64 << 10) / size_of::<f64>();
/// A huge page.
const HUGE_DOUBLES: usize = (2 << 20) / size_of::<f64>();

/// Tiles that are on their way at once: while one is being sent and received,
/// another is added to.
pub(super) const IN_FLIGHT: usize = 2;
/// Rows from this length on are sent from where they lie, and received where
/// they belong.
const WHOLE_ROW_BYTES: usize = 16 << 10;

/// A group's end of encoding and rebuilding one region.
pub struct Band<'a, C, K, S, P> {
    /// The group.
    pub comm: &'a C,
    /// Its code, shaped for it.
    pub code: &'a K,
    /// This member's segment.
    pub vault: &'a mut Vault<S>,
    /// Where the region's parts lie in it.
    pub parts: &'a RegionParts,
    /// Bytes of a message, about.
    pub segment_bytes: usize,
    /// Buffers.
    pub scratch: &'a mut Scratch,
    /// The other members' segments, by place in the group, for
    /// [`Encoder::Direct`].
    pub peers: &'a [Option<P>],
    /// Checksums of the other members' data that were found on the way.
    pub gathered: &'a mut Gathered,
}

/// A piece of a block: rows counted from the block's first, bytes of each row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tile {
    rows: Range<usize>,
    bytes: Range<usize>,
}

impl Tile {
    pub(super) fn size(&self) -> usize {
        self.rows.len() * self.bytes.len()
    }

    /// Its rows within a block that begins at row `first` and has `height`
    /// rows, as (row of the part, bytes of the buffer).
    fn rows_of(&self, block: Range<usize>) -> impl Iterator<Item = (usize, Range<usize>)> + use<> {
        let width = self.bytes.len();
        let first = self.rows.start;
        let rows = first..self.rows.end.min(block.len()).max(first);
        rows.map(move |row| {
            let at = (row - first) * width;
            (block.start + row, at..at + width)
        })
    }
}

/// Cuts `height` rows of `bytes` into tiles of about `segment_bytes`, each of whole
/// cells of `cell_bytes`: a checksum needs all of its cell at once.
fn tiles(height: usize, bytes: Range<usize>, segment_bytes: usize, cell_bytes: usize) -> Vec<Tile> {
    if bytes.is_empty() {
        return Vec::new();
    }
    let width = bytes.len().min(segment_bytes.next_multiple_of(cell_bytes));
    let rows = (segment_bytes / width).max(1);
    let mut tiles = Vec::new();
    for row in (0..height).step_by(rows) {
        for byte in bytes.clone().step_by(width) {
            tiles.push(Tile {
                rows: row..(row + rows).min(height),
                bytes: byte..(byte + width).min(bytes.end),
            });
        }
    }
    tiles
}

impl<C: Comm, K: Code, S: DerefMut<Target = [u8]>, P: Peer> Band<'_, C, K, S, P> {
    pub(super) fn stripes(&self) -> Stripes {
        self.parts.stripes
    }

    fn tiles(&self, height: usize, bytes: Range<usize>, segment_bytes: usize) -> Vec<Tile> {
        tiles(height, bytes, segment_bytes, self.parts.cell_bytes)
    }

    /// `buffer += coef * block`, for the tile's part of the block. With `sums`, the
    /// checksums of the block's cells go there, for they are read anyway.
    pub(super) fn add(
        &mut self,
        coef: K::Coef,
        (from, block): Held,
        sums: Option<Summed>,
        tile: &Tile,
        buffer: &mut [u8],
    ) {
        let code = self.code;
        self.each_cell((from, block), sums, tile, buffer, |cell, out| code.fma(coef, cell, out));
    }

    /// `buffer = coef * block`, for the tile's part of the block; zeros where the
    /// block has no rows. Otherwise as [`Band::add`].
    pub(super) fn start(
        &mut self,
        coef: K::Coef,
        (from, block): Held,
        sums: Option<Summed>,
        tile: &Tile,
        buffer: &mut [u8],
    ) {
        let code = self.code;
        let filled = tile.rows_of(block.clone()).map(|(_, at)| at.end).last().unwrap_or(0);
        match code.is_one(coef) {
            true => self.copy_out((from, block), sums, tile, buffer),
            false => {
                let take = |cell: &[u8], out: &mut [u8]| code.mul(coef, cell, out);
                self.each_cell((from, block), sums, tile, buffer, take);
            }
        }
        buffer[filled..].fill(0);
    }

    /// Copies the tile's part of a block of this member into the buffer: past the
    /// caches, for another core that has read the buffer in its last use would have
    /// to give up each line of it.
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

    /// Takes the tile's part of a block of this member cell by cell into the buffer.
    fn each_cell(
        &mut self,
        (from, block): Held,
        sums: Option<Summed>,
        tile: &Tile,
        buffer: &mut [u8],
        mut take: impl FnMut(&[u8], &mut [u8]),
    ) {
        let cell_bytes = self.parts.cell_bytes;
        for (row, at) in tile.rows_of(block) {
            let outs = buffer[at].chunks_mut(cell_bytes);
            for (byte, out) in tile.bytes.clone().step_by(cell_bytes).zip(outs) {
                let cell = self.vault.bytes(from.at(row, byte..byte + out.len()));
                take(cell, out);
                if let Some(sums) = sums {
                    let sum = checksum(cell);
                    self.vault.set_sums(&sums, row, byte / cell_bytes, &[sum]);
                }
            }
        }
    }

    /// Writes the tile's part of a block, with the checksums of its cells.
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

    /// The tiles of bytes `bytes` of the rows of a band that the messages of the
    /// ring carry, of about `message_bytes`.
    pub(super) fn ring_tiles(
        &self,
        band: usize,
        bytes: Range<usize>,
        message_bytes: usize,
    ) -> Vec<Tile> {
        self.tiles(self.stripes().parity_height(band), bytes, message_bytes)
    }

    fn row_from(&self, byte: usize) -> Range<usize> {
        byte..self.stripes().shape.pitch_bytes.max(byte)
    }

    /// Encodes one band of A, bytes `bytes` of each row, into parity set
    /// `set`, without a pause. With messages, collective over the group. Of the
    /// ring, only what two members with XOR do, each the other's mirror; the rest is
    /// in `ring`.
    pub fn encode(
        &mut self,
        encoder: Encoder,
        set: usize,
        band: usize,
        bytes: Range<usize>,
        step: Step,
    ) -> Result<()> {
        self.vault.step(step)?;
        let height = self.stripes().parity_height(band);
        let (links, tile_bytes): (Links, usize) = match encoder {
            Encoder::Auto => unreachable!("decided when it was opened"),
            Encoder::Ring => return self.encode_mirror(set, band, bytes, step),
            Encoder::Direct => {
                let tiles = self.tiles(height, bytes, DIRECT_TILE_BYTES);
                return self.encode_direct(set, band, &tiles, step);
            }
            Encoder::Reduce => (binomial, height * bytes.len()),
            Encoder::Tree => (binary, self.segment_bytes),
        };
        let tiles = self.tiles(height, bytes, tile_bytes);
        self.encode_tree(links, set, band, &tiles, step)
    }

    /// Whether a parity is nothing but the other member's block, and its rows are
    /// long enough to be sent from where they lie.
    pub(super) fn can_mirror(&self, from_byte: usize) -> bool {
        self.stripes().geometry.data() == 1
            && self.code.is_one(self.code.encode_coef(0, 0))
            && self.row_from(from_byte).len() >= WHOLE_ROW_BYTES
    }

    /// The ring of two members whose parities are each other's blocks: from A
    /// there into D here, with no buffer between.
    fn encode_mirror(
        &mut self,
        set: usize,
        band: usize,
        bytes: Range<usize>,
        step: Step,
    ) -> Result<()> {
        let (stripes, other) = (self.stripes(), 1 - self.comm.rank());
        let (a, parities) = (self.parts.a, self.parts.parities(set));
        let d = parities.part;
        let rows = stripes.block(band, 0).zip(stripes.parity(band, 0));
        let rows: Vec<(usize, usize)> = rows.collect();
        let whole = bytes == (0..stripes.shape.pitch_bytes);
        let at_once = (self.segment_bytes / bytes.len()).max(1);
        for (turn, batch) in rows.chunks(at_once).enumerate() {
            self.vault.step(step.chunk(turn))?;
            let (low, mut high) = self.vault.read_and_write(a.range(), d.range());
            let mut gone = d.offset;
            let (mut sends, mut recvs) = (Vec::new(), Vec::new());
            // Whole rows follow each other without a gap.
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
                    // What has come is the other's row as it is.
                    self.gathered.put(other, row, cell, sum);
                }
            }
        }
        Ok(())
    }

    /// This member's parities, from the blocks where they lie.
    fn encode_direct(&mut self, set: usize, band: usize, tiles: &[Tile], step: Step) -> Result<()> {
        for (p, chain) in self.own_parities(band).into_iter().enumerate() {
            let target = (self.parts.parities(set), self.stripes().parity(band, p));
            // Once is enough.
            self.pull(&chain, target, tiles, p == 0, step)?;
        }
        Ok(())
    }

    /// What each of this member's parities of a band is the sum of; in the order
    /// of the ring, so that sums of doubles come out the same.
    fn own_parities(&self, band: usize) -> Vec<Vec<Link<K::Coef>>> {
        let (stripes, me) = (self.stripes(), self.comm.rank());
        let geometry = stripes.geometry;
        let chain = |p: usize| {
            let stripe = geometry.parity_stripe(me, p);
            let blocks = (0..geometry.data()).rev().map(|i| (i, stripes.block(band, i)));
            let link = |(i, block)| {
                (
                    geometry.data_member(stripe, i),
                    (self.parts.a, block),
                    self.code.encode_coef(p, i),
                )
            };
            blocks.filter(|(_, block)| !block.is_empty()).map(link).collect()
        };
        (0..geometry.parities).map(chain).collect()
    }

    /// Makes what [`Encoder::Direct`] will read of the other members ready.
    pub fn prepare_direct(&self) {
        for band in 0..self.stripes().bands() {
            for (member, (from, rows), _) in self.own_parities(band).into_iter().flatten() {
                if let Some(peer) = &self.peers[member] {
                    let whole = 0..from.pitch_bytes;
                    let end = from.at(rows.end - 1, whole.clone()).end;
                    peer.will_read(from.at(rows.start, whole).start..end);
                }
            }
        }
    }

    /// Bytes of another member's segment: none keeps a parity of its own blocks.
    fn held(&self, member: usize, range: Range<usize>) -> &[u8] {
        let peer = self.peers[member].as_ref().expect("a member keeps no parity of its own");
        // SAFETY: that member has said that these rows are ready, by its own
        // caller's promise until all meet at the barrier after the encoding;
        // whatever else it writes meanwhile nobody reads.
        unsafe { peer.bytes(range) }
    }

    /// Sums up what the members of `chain` hold, into the target on this one. With
    /// `gather`, the checksums of what they hold are kept for them.
    fn pull(
        &mut self,
        chain: &[Link<K::Coef>],
        (into, block): (Summed, Range<usize>),
        tiles: &[Tile],
        gather: bool,
        step: Step,
    ) -> Result<()> {
        let mut buffer = self.scratch.take(tiles.first().map_or(0, Tile::size))?;
        for tile in tiles {
            match chain {
                [(member, held, coef)]
                    if self.code.is_one(*coef) && held.1.len() == block.len() =>
                {
                    let target = (into, block.clone());
                    self.pull_as_it_is((*member, held), target, tile, gather, step)?;
                }
                _ => {
                    let sum = bytes_of_mut(&mut buffer, tile.size());
                    for (place, link) in chain.iter().enumerate() {
                        self.pull_one(link, tile, place == 0, gather, sum);
                    }
                    self.put(into, block.clone(), tile, sum, step)?;
                }
            }
        }
        self.scratch.give(buffer);
        Ok(())
    }

    /// `sum += coef * what a member holds`, or `sum =` that where it is the first,
    /// for the tile's part of it.
    fn pull_one(
        &mut self,
        (member, (from, rows), coef): &Link<K::Coef>,
        tile: &Tile,
        is_first: bool,
        gather: bool,
        sum: &mut [u8],
    ) {
        let cell_bytes = self.parts.cell_bytes;
        let mut filled = 0;
        for (row, at) in tile.rows_of(rows.clone()) {
            filled = at.end;
            let outs = sum[at].chunks_mut(cell_bytes);
            for (byte, out) in tile.bytes.clone().step_by(cell_bytes).zip(outs) {
                let cell = self.held(*member, from.at(row, byte..byte + out.len()));
                match is_first {
                    true => self.code.mul(*coef, cell, out),
                    false => self.code.fma(*coef, cell, out),
                }
                if gather {
                    let sum = checksum(cell);
                    self.gathered.put(*member, row, byte / cell_bytes, sum);
                }
            }
        }
        if is_first {
            sum[filled..].fill(0);
        }
    }

    /// [`Band::pull`] of one block that is not changed: straight from there to
    /// here.
    fn pull_as_it_is(
        &mut self,
        (member, (from, rows)): (usize, &Held),
        (into, block): (Summed, Range<usize>),
        tile: &Tile,
        gather: bool,
        step: Step,
    ) -> Result<()> {
        let pairs = tile.rows_of(rows.clone()).zip(tile.rows_of(block));
        for ((source, _), (target, _)) in pairs {
            let range = from.at(source, tile.bytes.clone());
            let peer = self.peers[member].as_ref().expect("a member keeps no parity of its own");
            // SAFETY: as in `held`.
            let bytes = unsafe { peer.bytes(range) };
            self.vault.store_cells(&into, target, tile.bytes.clone(), bytes, step)?;
            // The parity is the block, and so are its checksums.
            for cell in into.cells(&tile.bytes).filter(|_| gather) {
                let sum = self.vault.sum(&into, target, cell);
                self.gathered.put(member, source, cell, sum);
            }
        }
        Ok(())
    }

    /// Where the checksums of this member's own blocks go while they are encoded:
    /// once, with the first parity.
    pub(super) fn own_sums(&self, set: usize, parity: usize) -> Option<Summed> {
        (parity == 0).then(|| self.parts.data(self.parts.a, set))
    }

    /// For each stripe and parity in turn, a tree of the members that hold its
    /// data, the parity's own member at the root. All go through the trees in
    /// one order, so blocking messages cannot deadlock.
    fn encode_tree(
        &mut self,
        links: Links,
        set: usize,
        band: usize,
        tiles: &[Tile],
        step: Step,
    ) -> Result<()> {
        for tile in tiles {
            self.encode_tile(links, set, band, tile, step)?;
        }
        Ok(())
    }

    fn encode_tile(
        &mut self,
        links: Links,
        set: usize,
        band: usize,
        tile: &Tile,
        step: Step,
    ) -> Result<()> {
        let (stripes, me) = (self.stripes(), self.comm.rank());
        let Stripes { geometry, .. } = stripes;
        let size = tile.size();
        let mut buffers = [self.scratch.take(size)?, self.scratch.take(size)?];
        let [sum, theirs] = buffers.each_mut().map(|buffer| bytes_of_mut(buffer, size));
        for stripe in 0..geometry.members {
            for p in 0..geometry.parities {
                // Place 0 is the root, place 1 + i the member with data i.
                let mut places = vec![geometry.parity_member(stripe, p)];
                places.extend((0..geometry.data()).map(|i| geometry.data_member(stripe, i)));
                let Some(place) = places.iter().position(|&member| member == me) else { continue };
                if place > 0 {
                    let coef = self.code.encode_coef(p, place - 1);
                    let held = (self.parts.a, stripes.block(band, place - 1));
                    self.start(coef, held, self.own_sums(set, p), tile, sum);
                } else {
                    sum.fill(0);
                }
                let (parent, children) = links(place, places.len());
                for child in children {
                    self.comm.recv_bytes(theirs, places[child], TAG_TREE)?;
                    self.code.fma(self.code.one(), theirs, sum);
                }
                match parent {
                    Some(parent) => self.comm.send_bytes(sum, places[parent], TAG_TREE)?,
                    None => {
                        let into = self.parts.parities(set);
                        self.put(into, stripes.parity(band, p), tile, sum, step)?;
                    }
                }
            }
        }
        self.scratch.buffers.extend(buffers);
        Ok(())
    }

    /// Rebuilds what the members `lost` held of one band: blocks of copy `copy`
    /// first, then parities of `set`. Collective over the group; survivors only
    /// read. Returns the bytes written here.
    pub fn rebuild(
        &mut self,
        lost: &[usize],
        settled: (usize, usize),
        band: usize,
        step: Step,
    ) -> Result<usize> {
        self.vault.step(step)?;
        let stripes = self.stripes();
        let row = 0..stripes.shape.pitch_bytes;
        let tiles = self.tiles(stripes.parity_height(band), row, self.segment_bytes);
        let mut written = 0;
        for stripe in 0..stripes.geometry.members {
            written += self.rebuild_stripe(lost, settled, (band, stripe), &tiles, step)?;
        }
        Ok(written)
    }

    /// [`Band::rebuild`] of one cell of one row of a stripe's blocks, on members
    /// that have lost no more than that.
    pub fn rebuild_cell(
        &mut self,
        lost: &[usize],
        settled: (usize, usize),
        place: &Place,
        step: Step,
    ) -> Result<usize> {
        let start = place.cell * self.parts.cell_bytes;
        let end = (start + self.parts.cell_bytes).min(self.stripes().shape.pitch_bytes);
        let tile = Tile { rows: place.row..place.row + 1, bytes: start..end };
        self.rebuild_stripe(lost, settled, (place.band, place.stripe), &[tile], step)
    }

    fn rebuild_stripe(
        &mut self,
        lost: &[usize],
        (copy, set): (usize, usize),
        (band, stripe): (usize, usize),
        tiles: &[Tile],
        step: Step,
    ) -> Result<usize> {
        let stripes = self.stripes();
        let geometry = stripes.geometry;
        let copy = self.parts.data(self.parts.b[copy], set);
        let parities = self.parts.parities(set);
        // What a member holds of a stripe: data i of it, or parity p.
        let data = |i: usize| (copy.part, stripes.block(band, i));
        let parity = |p: usize| (parities.part, stripes.parity(band, p));
        let holder = |i: usize| geometry.data_member(stripe, i);
        let keeper = |p: usize| geometry.parity_member(stripe, p);
        let exists = |i: &usize| !stripes.block(band, *i).is_empty();
        let lost_data: Vec<usize> =
            (0..geometry.data()).filter(exists).filter(|&i| lost.contains(&holder(i))).collect();
        let lost_parity: Vec<usize> =
            (0..geometry.parities).filter(|&p| lost.contains(&keeper(p))).collect();
        let mut written = 0;
        for rebuild in self.code.rebuild_plan(&lost_data, &lost_parity) {
            let mut chain = Vec::new();
            for i in (0..geometry.data()).filter(exists) {
                chain.push((holder(i), data(i), rebuild.from_data[i]));
            }
            for (p, &coef) in rebuild.from_parity.iter().enumerate() {
                chain.push((keeper(p), parity(p), coef));
            }
            chain.retain(|&(_, _, coef)| !self.code.is_zero(coef));
            let target = (holder(rebuild.block), (copy, stripes.block(band, rebuild.block)));
            assert!(chain.iter().all(|(member, ..)| !lost.contains(member)));
            written += self.run_chain(&chain, target, tiles, step)?;
        }
        for p in lost_parity {
            let mut chain = Vec::new();
            for i in (0..geometry.data()).filter(exists) {
                chain.push((holder(i), data(i), self.code.encode_coef(p, i)));
            }
            let target = (keeper(p), (parities, stripes.parity(band, p)));
            written += self.run_chain(&chain, target, tiles, step)?;
        }
        Ok(written)
    }

    /// Sums up along the chain, tile by tile, and writes the sum at its end.
    /// Members work on different tiles: each receives the next one, and sends the
    /// last one, while it adds to this one.
    fn run_chain(
        &mut self,
        chain: &[Link<K::Coef>],
        (target, (into, block)): (usize, (Summed, Range<usize>)),
        tiles: &[Tile],
        step: Step,
    ) -> Result<usize> {
        let me = self.comm.rank();
        let place = chain.iter().position(|(member, ..)| *member == me);
        if place.is_none() && target != me {
            return Ok(0);
        }
        let before = match place {
            Some(0) => None,
            Some(place) => Some(chain[place - 1].0),
            None => Some(chain.last().expect("a lost block has sources").0),
        };
        let doubles = |tile: &Tile| 0..tile.size().div_ceil(size_of::<f64>());
        let (mut coming, mut sent) = (VecDeque::new(), VecDeque::new());
        let (mut posted, mut written) = (0, 0);
        for (turn, tile) in tiles.iter().enumerate() {
            while let Some(source) = before
                && posted < tiles.len().min(turn + IN_FLIGHT)
            {
                let buffer = self.scratch.take(tiles[posted].size())?;
                let range = doubles(&tiles[posted]);
                coming.push_back(self.comm.irecv(buffer, range, source, TAG_REBUILD)?);
                posted += 1;
            }
            let mut buffer = match coming.pop_front() {
                Some(recv) => RecvRequest::wait(recv)?,
                None => self.scratch.take(tile.size())?,
            };
            let sum = bytes_of_mut(&mut buffer, tile.size());
            let Some(place) = place else {
                self.put(into, block.clone(), tile, sum, step)?;
                written += tile.rows_of(block.clone()).count() * tile.bytes.len();
                self.scratch.give(buffer);
                continue;
            };
            let (_, held, coef) = &chain[place];
            match place {
                0 => self.start(*coef, held.clone(), None, tile, sum),
                _ => self.add(*coef, held.clone(), None, tile, sum),
            }
            let next = chain.get(place + 1).map_or(target, |(member, ..)| *member);
            let sum = Arc::new(buffer);
            sent.push_back((self.comm.isend(sum.clone(), doubles(tile), next, TAG_REBUILD)?, sum));
            if sent.len() >= IN_FLIGHT {
                self.sent(sent.pop_front())?;
            }
        }
        while !sent.is_empty() {
            self.sent(sent.pop_front())?;
        }
        Ok(written)
    }

    /// Waits for a send and takes its buffer back.
    pub(super) fn sent(&mut self, sent: Option<(C::Send, Arc<PanelBuf>)>) -> Result<()> {
        if let Some((send, buffer)) = sent {
            send.wait()?;
            self.scratch.buffers.extend(Arc::into_inner(buffer));
        }
        Ok(())
    }
}

/// Rows of a part, on one member.
type Held = (Part, Range<usize>);

/// A cell of one row of each block of a stripe, of data and parities alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Region.
    pub region: usize,
    /// Band of the region.
    pub band: usize,
    /// Stripe of the band.
    pub stripe: usize,
    /// Row, from the first of each block on.
    pub row: usize,
    /// Cell of the row.
    pub cell: usize,
}

/// A member, what it holds of a stripe, and the multiple of it to add.
type Link<T> = (usize, Held, T);

/// Parent and children of a place in a tree of so many places; 0 is the root.
type Links = fn(usize, usize) -> (Option<usize>, Vec<usize>);

fn binomial(place: usize, size: usize) -> (Option<usize>, Vec<usize>) {
    let low = if place == 0 { size.next_power_of_two() } else { place & place.wrapping_neg() };
    let masks = std::iter::successors(Some(1usize), |mask| Some(mask << 1));
    let children =
        masks.take_while(|&mask| mask < low).map(|mask| place + mask).filter(|&c| c < size);
    ((place > 0).then(|| place - low), children.collect())
}

fn binary(place: usize, size: usize) -> (Option<usize>, Vec<usize>) {
    let children = [2 * place + 1, 2 * place + 2].into_iter().filter(|&child| child < size);
    ((place > 0).then(|| (place - 1) / 2), children.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_span_all_places() {
        for links in [binomial as Links, binary] {
            for size in 1..40 {
                for place in 0..size {
                    let (parent, children) = links(place, size);
                    assert_eq!(parent.is_none(), place == 0);
                    if let Some(parent) = parent {
                        assert!(parent < place && links(parent, size).1.contains(&place));
                    }
                    for child in children {
                        assert_eq!(links(child, size).0, Some(place));
                    }
                }
            }
        }
    }

    #[test]
    fn tiles_cover_a_block_once() {
        for (height, bytes, segment) in
            [(5, 0..64, 128), (3, 8..200, 64), (1, 0..8, 1), (7, 16..24, 1 << 20), (2, 8..8, 64)]
        {
            let mut seen = vec![0; height * bytes.end];
            for tile in tiles(height, bytes.clone(), segment, 64) {
                assert!(tile.size() <= segment.next_multiple_of(64).max(bytes.len().min(64)));
                for row in tile.rows {
                    for byte in tile.bytes.clone() {
                        seen[row * bytes.end + byte] += 1;
                    }
                }
            }
            for (at, count) in seen.into_iter().enumerate() {
                assert_eq!(count, usize::from(bytes.contains(&(at % bytes.end))));
            }
        }
    }

    #[test]
    fn the_segment_is_the_optimum_of_the_pipeline() {
        let (alpha, beta, gamma) = (2e-6, 1e-10, 0.8e-10);
        for processes in [3, 4, 16, 256] {
            let bytes = 256 << 20;
            let time =
                |s: f64| (processes as f64 - 2.0 + bytes as f64 / s) * (alpha + (beta + gamma) * s);
            let best = optimal_segment_bytes(bytes, processes, alpha, beta, gamma) as f64;
            assert!(time(best) <= time(best * 1.1) && time(best) <= time(best / 1.1));
        }
        assert_eq!(optimal_segment_bytes(1000, 2, alpha, beta, gamma), 1024);
        assert_eq!(optimal_segment_bytes(1000, 5, 0.0, beta, gamma), 64);
        assert_eq!(optimal_segment_bytes(0, 5, alpha, 0.0, 0.0), 64);
    }
}
