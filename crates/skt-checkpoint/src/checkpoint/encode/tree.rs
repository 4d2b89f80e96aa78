//! [`Encoder::Reduce`](super::Encoder::Reduce) and [`Encoder::Tree`](super::Encoder::Tree): a tree
//! of members for each parity.

use super::tile::Tile;
use super::{RegionView, bytes_of_mut};
use crate::checkpoint::hook::Step;

use skt_comm::{Result, Tag};
use skt_store::codec;
use skt_store::layout::Stripes;
use skt_terms::tree::Tree;

const TAG_TREE: Tag = 3;

impl RegionView<'_> {
    /// Encodes a band. For each stripe and parity in turn the members that hold its data form a
    /// tree, with the parity's own member as the root. All go through the trees in one order, so
    /// blocking messages cannot deadlock.
    pub(super) fn encode_tree(
        &mut self,
        tree: Tree,
        set: usize,
        band: usize,
        tiles: &[Tile],
        step: Step,
    ) -> Result<()> {
        for tile in tiles {
            self.encode_tile(tree, set, band, tile, step)?;
        }
        Ok(())
    }

    fn encode_tile(
        &mut self,
        tree: Tree,
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
                // Node 0 is the root, node 1 + i the member with data block i.
                let mut places = vec![geometry.parity_member(stripe, p)];
                places.extend((0..geometry.data()).map(|i| geometry.data_member(stripe, i)));
                let Some(place) = places.iter().position(|&member| member == me) else { continue };
                if place > 0 {
                    let coef = self.code.encode_coef(p, place - 1);
                    let held = (self.areas.a, stripes.block(band, place - 1));
                    self.start(coef, held, self.own_sums(set, p), tile, sum);
                } else {
                    sum.fill(0);
                }
                for child in tree.children(place, places.len()) {
                    self.comm.recv_bytes(theirs, places[child], TAG_TREE)?;
                    codec::fma(self.code.one(), theirs, sum);
                }
                match tree.parent(place) {
                    Some(parent) => self.comm.send_bytes(sum, places[parent], TAG_TREE)?,
                    None => {
                        let into = self.areas.parities(set);
                        self.put(into, stripes.parity(band, p), tile, sum, step)?;
                    }
                }
            }
        }
        self.scratch.buffers.extend(buffers);
        Ok(())
    }
}
