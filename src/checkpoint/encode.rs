//! Encoding: the parities of a band from the blocks of all members.
//!
//! Three ways to the same bytes:
//!
//! - [`Encoder::Ring`], the default: the chain of Chen and Dongarra, "A
//!   scalable checkpoint encoding algorithm", section 3.2, for all stripes of a
//!   band at once. The m partial sums of stripe t start at member t+m and go
//!   round to t-1, each member adding its block; the last sends parity p to
//!   member t+p. In every step all members send and receive equally much: no
//!   member is a bottleneck, and a member sends m blocks for each of its own.
//! - [`Encoder::Reduce`]: one binomial reduction a parity, whole blocks (Tang
//!   et al., TPDS 2018, section 2.2, which calls `MPI_Reduce`).
//! - [`Encoder::Tree`]: one binary tree a parity, in segments.

use std::fmt;
use std::ops::{DerefMut, Range};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::code::Code;
use super::hook::Step;
use super::layout::{Part, RegionParts, Stripes};
use super::vault::Vault;
use crate::comm::{Comm, Result, Tag};

const TAG_RING: Tag = 1;
const TAG_PARITY: Tag = 2;
const TAG_TREE: Tag = 3;
const TAG_REBUILD: Tag = 4;

/// How parities are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Encoder {
    /// Pipelined ring.
    Ring,
    /// One binomial reduction a parity, whole blocks.
    Reduce,
    /// One binary tree a parity, in segments.
    Tree,
}

impl Encoder {
    /// All encoders.
    pub const ALL: [Self; 3] = [Self::Ring, Self::Reduce, Self::Tree];
}

impl fmt::Display for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ring => "ring",
            Self::Reduce => "reduce",
            Self::Tree => "tree",
        })
    }
}

/// No encoder of that name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown encoder `{0}`; one of ring, reduce, tree")]
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

/// Buffers of messages, allocated once.
#[derive(Default)]
pub struct Scratch {
    out: Vec<u8>,
    inn: Vec<u8>,
}

/// A group's end of encoding and rebuilding one region.
pub struct Band<'a, C, K, S> {
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
}

/// A piece of a block: rows counted from the block's first, bytes of each row.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Tile {
    rows: Range<usize>,
    bytes: Range<usize>,
}

impl Tile {
    fn size(&self) -> usize {
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

/// Cuts `height` rows of `bytes` into tiles of about `segment_bytes`.
fn tiles(height: usize, bytes: Range<usize>, segment_bytes: usize) -> Vec<Tile> {
    if bytes.is_empty() {
        return Vec::new();
    }
    // Whole cache lines of a row, and so whole doubles.
    let width = bytes.len().min(segment_bytes.next_multiple_of(64));
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

impl<C: Comm, K: Code, S: DerefMut<Target = [u8]>> Band<'_, C, K, S> {
    fn stripes(&self) -> Stripes {
        self.parts.stripes
    }

    /// `buffer += coef * block`, for the tile's part of the block.
    fn add(&self, coef: K::Coef, from: Part, block: Range<usize>, tile: &Tile, buffer: &mut [u8]) {
        for (row, at) in tile.rows_of(block) {
            let source = self.vault.bytes(from.at(row, tile.bytes.clone()));
            self.code.fma(coef, source, &mut buffer[at]);
        }
    }

    /// `buffer = coef * block`, for the tile's part of the block; zeros where the
    /// block has no rows.
    fn start(
        &self,
        coef: K::Coef,
        from: Part,
        block: Range<usize>,
        tile: &Tile,
        buffer: &mut [u8],
    ) {
        let mut filled = 0;
        for (row, at) in tile.rows_of(block) {
            filled = at.end;
            let source = self.vault.bytes(from.at(row, tile.bytes.clone()));
            self.code.mul(coef, source, &mut buffer[at]);
        }
        buffer[filled..].fill(0);
    }

    /// Writes the tile's part of a block.
    fn put(
        &mut self,
        into: Part,
        block: Range<usize>,
        tile: &Tile,
        buffer: &[u8],
        step: Step,
    ) -> Result<()> {
        for (row, at) in tile.rows_of(block) {
            self.vault.store(into.at(row, tile.bytes.clone()).start, &buffer[at], step)?;
        }
        Ok(())
    }

    /// Encodes one band of A, bytes `from_byte..` of each row, into parity set
    /// `set`. Collective over the group. Returns the bytes of A encoded here.
    pub fn encode(
        &mut self,
        encoder: Encoder,
        set: usize,
        band: usize,
        from_byte: usize,
        step: Step,
    ) -> Result<usize> {
        self.vault.step(step)?;
        let bytes = from_byte..self.stripes().shape.pitch_bytes.max(from_byte);
        let height = self.stripes().parity_height(band);
        let encoded = self.stripes().band(band).len() * bytes.len();
        let segment_bytes = match encoder {
            Encoder::Reduce => height * bytes.len(),
            Encoder::Ring | Encoder::Tree => self.segment_bytes,
        };
        for tile in tiles(height, bytes, segment_bytes) {
            match encoder {
                Encoder::Ring => self.encode_ring(set, band, &tile, step)?,
                Encoder::Reduce => self.encode_tree(binomial, set, band, &tile, step)?,
                Encoder::Tree => self.encode_tree(binary, set, band, &tile, step)?,
            }
        }
        Ok(encoded)
    }

    /// Step s: this member adds block i = k-1-s to the partial sums of stripe
    /// me + 1 + i, which it has from the member before, and passes them on.
    fn encode_ring(&mut self, set: usize, band: usize, tile: &Tile, step: Step) -> Result<()> {
        let (stripes, me) = (self.stripes(), self.comm.rank());
        let Stripes { geometry, .. } = stripes;
        let (n, m, size) = (geometry.members, geometry.parities, tile.size());
        let mut out = std::mem::take(&mut self.scratch.out);
        let mut inn = std::mem::take(&mut self.scratch.inn);
        inn.resize(m * size, 0);
        out.resize(m * size, 0);
        // Blocks that a last band lacks, it lacks on all members.
        let blocks = (0..geometry.data()).rev().filter(|&i| !stripes.block(band, i).is_empty());
        for (turn, i) in blocks.enumerate() {
            std::mem::swap(&mut out, &mut inn);
            for (p, partial) in out.chunks_exact_mut(size).enumerate() {
                let (coef, block) = (self.code.encode_coef(p, i), stripes.block(band, i));
                if turn == 0 {
                    self.start(coef, self.parts.a, block, tile, partial);
                } else {
                    self.add(coef, self.parts.a, block, tile, partial);
                }
            }
            if i > 0 {
                let sends = [(&out[..], (me + 1) % n, TAG_RING)];
                let mut recvs = [(&mut inn[..], (me + n - 1) % n, TAG_RING)];
                self.comm.exchange_bytes(&sends, &mut recvs)?;
            }
        }
        // Block 0 was the last of stripe me + 1; parity p here is of stripe me - p.
        let sends: Vec<_> = (out.chunks_exact(size).enumerate())
            .map(|(p, sum)| (sum, geometry.parity_member(me + 1, p), TAG_PARITY))
            .collect();
        let mut recvs: Vec<_> = (inn.chunks_exact_mut(size).enumerate())
            .map(|(p, sum)| {
                (sum, geometry.data_member(geometry.parity_stripe(me, p), 0), TAG_PARITY)
            })
            .collect();
        self.comm.exchange_bytes(&sends, &mut recvs)?;
        for (p, parity) in inn.chunks_exact(size).enumerate() {
            self.put(self.parts.parity[set], stripes.parity(band, p), tile, parity, step)?;
        }
        self.scratch.out = out;
        self.scratch.inn = inn;
        Ok(())
    }

    /// For each stripe and parity in turn, a tree of the members that hold its
    /// data, the parity's own member at the root. All go through the trees in
    /// one order, so blocking messages cannot deadlock.
    fn encode_tree(
        &mut self,
        links: Links,
        set: usize,
        band: usize,
        tile: &Tile,
        step: Step,
    ) -> Result<()> {
        let (stripes, me) = (self.stripes(), self.comm.rank());
        let Stripes { geometry, .. } = stripes;
        let mut sum = std::mem::take(&mut self.scratch.out);
        let mut theirs = std::mem::take(&mut self.scratch.inn);
        theirs.resize(tile.size(), 0);
        for stripe in 0..geometry.members {
            for p in 0..geometry.parities {
                // Place 0 is the root, place 1 + i the member with data i.
                let mut places = vec![geometry.parity_member(stripe, p)];
                places.extend((0..geometry.data()).map(|i| geometry.data_member(stripe, i)));
                let Some(place) = places.iter().position(|&member| member == me) else { continue };
                sum.clear();
                sum.resize(tile.size(), 0);
                if place > 0 {
                    let coef = self.code.encode_coef(p, place - 1);
                    let block = stripes.block(band, place - 1);
                    self.add(coef, self.parts.a, block, tile, &mut sum);
                }
                let (parent, children) = links(place, places.len());
                for child in children {
                    self.comm.recv_bytes(&mut theirs, places[child], TAG_TREE)?;
                    self.code.fma(self.code.one(), &theirs, &mut sum);
                }
                match parent {
                    Some(parent) => self.comm.send_bytes(&sum, places[parent], TAG_TREE)?,
                    None => {
                        let into = self.parts.parity[set];
                        self.put(into, stripes.parity(band, p), tile, &sum, step)?;
                    }
                }
            }
        }
        self.scratch.out = sum;
        self.scratch.inn = theirs;
        Ok(())
    }

    /// Rebuilds what the members `lost` held of one band: blocks of copy `copy`
    /// first, then parities of `set`. Collective over the group; survivors only
    /// read. Returns the bytes written here.
    pub fn rebuild(
        &mut self,
        lost: &[usize],
        (copy, set): (usize, usize),
        band: usize,
        step: Step,
    ) -> Result<usize> {
        self.vault.step(step)?;
        let stripes = self.stripes();
        let Stripes { geometry, shape, .. } = stripes;
        let (b, c) = (self.parts.b[copy], self.parts.parity[set]);
        // What a member holds of a stripe: data i of it, or parity p.
        let data = |i: usize| (b, stripes.block(band, i));
        let parity = |p: usize| (c, stripes.parity(band, p));
        let all_tiles =
            tiles(stripes.parity_height(band), 0..shape.pitch_bytes, self.segment_bytes);
        let mut written = 0;
        for stripe in 0..geometry.members {
            let holder = |i: usize| geometry.data_member(stripe, i);
            let keeper = |p: usize| geometry.parity_member(stripe, p);
            let exists = |i: &usize| !stripes.block(band, *i).is_empty();
            let lost_data: Vec<usize> = (0..geometry.data())
                .filter(exists)
                .filter(|&i| lost.contains(&holder(i)))
                .collect();
            let lost_parity: Vec<usize> =
                (0..geometry.parities).filter(|&p| lost.contains(&keeper(p))).collect();
            for rebuild in self.code.rebuild_plan(&lost_data, &lost_parity) {
                let mut chain = Vec::new();
                for i in (0..geometry.data()).filter(exists) {
                    chain.push((holder(i), data(i), rebuild.from_data[i]));
                }
                for (p, &coef) in rebuild.from_parity.iter().enumerate() {
                    chain.push((keeper(p), parity(p), coef));
                }
                chain.retain(|&(_, _, coef)| !self.code.is_zero(coef));
                let target = (holder(rebuild.block), data(rebuild.block));
                assert!(chain.iter().all(|(member, ..)| !lost.contains(member)));
                written += self.run_chain(&chain, target, &all_tiles, step)?;
            }
            for p in lost_parity {
                let mut chain = Vec::new();
                for i in (0..geometry.data()).filter(exists) {
                    chain.push((holder(i), data(i), self.code.encode_coef(p, i)));
                }
                written += self.run_chain(&chain, (keeper(p), parity(p)), &all_tiles, step)?;
            }
        }
        Ok(written)
    }

    /// Sums up along the chain, tile by tile, and writes the sum at its end.
    fn run_chain(
        &mut self,
        chain: &[Link<K::Coef>],
        (target, (part, block)): (usize, (Part, Range<usize>)),
        tiles: &[Tile],
        step: Step,
    ) -> Result<usize> {
        let me = self.comm.rank();
        let place = chain.iter().position(|(member, ..)| *member == me);
        if place.is_none() && target != me {
            return Ok(0);
        }
        let mut sum = std::mem::take(&mut self.scratch.out);
        let mut written = 0;
        for tile in tiles {
            sum.clear();
            sum.resize(tile.size(), 0);
            if let Some(place) = place {
                if place > 0 {
                    self.comm.recv_bytes(&mut sum, chain[place - 1].0, TAG_REBUILD)?;
                }
                let (_, (from, rows), coef) = &chain[place];
                self.add(*coef, *from, rows.clone(), tile, &mut sum);
                let next = chain.get(place + 1).map_or(target, |(member, ..)| *member);
                self.comm.send_bytes(&sum, next, TAG_REBUILD)?;
            } else {
                let last = chain.last().expect("a lost block has sources").0;
                self.comm.recv_bytes(&mut sum, last, TAG_REBUILD)?;
                self.put(part, block.clone(), tile, &sum, step)?;
                written += tile.rows_of(block.clone()).count() * tile.bytes.len();
            }
        }
        self.scratch.out = sum;
        Ok(written)
    }
}

/// A member, what it holds of a stripe, and the multiple of it to add.
type Link<T> = (usize, (Part, Range<usize>), T);

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
            for tile in tiles(height, bytes.clone(), segment) {
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
