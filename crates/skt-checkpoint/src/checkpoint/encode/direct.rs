//! [`Encoder::Direct`](super::Encoder::Direct): members read each other's blocks in place.

use std::ops::Range;

use super::tile::Tile;
use super::{Held, RegionView, Sums, Term, bytes_of_mut};
use crate::checkpoint::hook::Step;

use skt_comm::Result;
use skt_store::layout::Summed;

impl RegionView<'_> {
    /// Computes this member's parities of a band from the others' blocks, read in place.
    pub(super) fn encode_direct(
        &mut self,
        set: usize,
        band: usize,
        tiles: &[Tile],
        step: Step,
    ) -> Result<()> {
        for (p, chain) in self.own_parities(band).into_iter().enumerate() {
            let (into, block) = (self.areas.parities(set), self.stripes().parity(band, p));
            // The checksums are needed once, so only the first parity gathers them.
            self.pull(&chain, into, block, tiles, p == 0, step)?;
        }
        Ok(())
    }

    /// The terms of each of this member's parities of a band, in the order of the ring, so that
    /// sums of doubles have the same bits.
    fn own_parities(&self, band: usize) -> Vec<Vec<Term>> {
        let (stripes, me) = (self.stripes(), self.comm.rank());
        let geometry = stripes.geometry;
        let chain = |p: usize| {
            let stripe = geometry.parity_stripe(me, p);
            let blocks = (0..geometry.data()).rev().map(|i| (i, stripes.block(band, i)));
            let term = |(i, block)| {
                (
                    geometry.data_member(stripe, i),
                    (self.areas.a, block),
                    self.code.encode_coef(p, i),
                )
            };
            blocks.filter(|(_, block)| !block.is_empty()).map(term).collect()
        };
        (0..geometry.parities).map(chain).collect()
    }

    /// Announces to the other members' segments what will be read of them.
    pub(crate) fn prepare_direct(&self) {
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

    /// Sums up the blocks of the members of `chain` into the target on this one. With `gather`,
    /// keeps the checksums of the blocks for their owners.
    fn pull(
        &mut self,
        chain: &[Term],
        into: Summed,
        block: Range<usize>,
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
                    let block = block.clone();
                    self.pull_as_it_is((*member, held), into, block, tile, gather, step)?;
                }
                _ => {
                    let sum = bytes_of_mut(&mut buffer, tile.size());
                    for (place, term) in chain.iter().enumerate() {
                        self.sum_up(term, place == 0, gather.then_some(Sums::Gathered), tile, sum);
                    }
                    self.put(into, block.clone(), tile, sum, step)?;
                }
            }
        }
        self.scratch.give(buffer);
        Ok(())
    }

    /// [`RegionView::pull`] of a single block with factor 1: copies straight from the member's
    /// segment to this one.
    fn pull_as_it_is(
        &mut self,
        (member, (from, rows)): (usize, &Held),
        into: Summed,
        block: Range<usize>,
        tile: &Tile,
        gather: bool,
        step: Step,
    ) -> Result<()> {
        let pairs = tile.rows_of(rows.clone()).zip(tile.rows_of(block));
        for ((source, _), (target, _)) in pairs {
            let range = from.at(source, tile.bytes.clone());
            let peer = self.peers[member].as_ref().expect("the parities of a member are on others");
            // SAFETY: as in `held`.
            let bytes = unsafe { peer.bytes(range) };
            self.vault.store_cells(&into, target, tile.bytes.clone(), bytes, step)?;
            // The parity equals the block, so its checksums do, too.
            for cell in into.cells(&tile.bytes).filter(|_| gather) {
                let sum = self.vault.sum(&into, target, cell);
                self.gathered.put(member, source, cell, sum);
            }
        }
        Ok(())
    }
}
