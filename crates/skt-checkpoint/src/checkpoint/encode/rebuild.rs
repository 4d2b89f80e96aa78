//! Rebuilding: computes what lost members held from the blocks and parities of the others.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use bytemuck::{Pod, Zeroable};

use super::tile::Tile;
use super::{Held, RegionView, bytes_of_mut};
use crate::checkpoint::hook::Step;

use crate::tuning::TUNING;
use skt_comm::{RecvRequest, Result, Tag};
use skt_store::codec::Coef;
use skt_store::layout::Summed;

const TAG_REBUILD: Tag = 4;

/// A term of a sum: a member, its block of the stripe, and the factor of the block.
type Term = (usize, Held, Coef);

/// The position of a cell within a stripe: one cell of the same row of each of its blocks, data and
/// parities alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct CellPosition {
    pub region: usize,
    pub band: usize,
    pub stripe: usize,
    /// The row, counted from the first of each block.
    pub row: usize,
    pub cell: usize,
}

impl RegionView<'_> {
    /// First their blocks of the copy, then their parities. `settled` has the indices of the copy
    /// and of the set of parities. Survivors only read. Collective over the group.
    pub(crate) fn rebuild(
        &mut self,
        lost: &[usize],
        settled: (usize, usize),
        band: usize,
        step: Step,
    ) -> Result<()> {
        self.vault.step(step)?;
        let stripes = self.stripes();
        let row = 0..stripes.shape.pitch_bytes;
        let tiles = self.tiles(band, row, self.message_bytes);
        for stripe in 0..stripes.geometry.members {
            self.rebuild_stripe(lost, settled, (band, stripe), &tiles, step)?;
        }
        Ok(())
    }

    /// The members `lost` need not have lost anything else. Collective over the group.
    pub(crate) fn rebuild_cell(
        &mut self,
        lost: &[usize],
        settled: (usize, usize),
        place: &CellPosition,
        step: Step,
    ) -> Result<()> {
        let start = place.cell * self.areas.cell_bytes;
        let end = (start + self.areas.cell_bytes).min(self.stripes().shape.pitch_bytes);
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
    ) -> Result<()> {
        let stripes = self.stripes();
        let geometry = stripes.geometry;
        let copy = self.areas.data(self.areas.b[copy], set);
        let parities = self.areas.parities(set);
        // A member holds either data block i of a stripe or parity p.
        let data = |i: usize| (copy.area, stripes.block(band, i));
        let parity = |p: usize| (parities.area, stripes.parity(band, p));
        let holder = |i: usize| geometry.data_member(stripe, i);
        let keeper = |p: usize| geometry.parity_member(stripe, p);
        let exists = |i: &usize| !stripes.block(band, *i).is_empty();
        // The next stripe's chain begins one member later, so it follows this one at a distance of
        // one member. In the other order it would begin where this one ends.
        let along_the_ring = || (0..geometry.data()).rev().filter(exists);
        let lost_data: Vec<usize> =
            (0..geometry.data()).filter(exists).filter(|&i| lost.contains(&holder(i))).collect();
        let lost_parity: Vec<usize> =
            (0..geometry.parities).filter(|&p| lost.contains(&keeper(p))).collect();
        let plan = self.code.rebuild_plan(&lost_data, &lost_parity);
        for rebuild in plan.expect("the protocol has refused what is too much").data {
            let mut chain = Vec::new();
            for i in along_the_ring() {
                chain.push((holder(i), data(i), rebuild.from_data[i]));
            }
            for (p, &coef) in rebuild.from_parity.iter().enumerate() {
                chain.push((keeper(p), parity(p), coef));
            }
            chain.retain(|&(_, _, coef)| !coef.is_zero());
            let target = (holder(rebuild.block), (copy, stripes.block(band, rebuild.block)));
            assert!(chain.iter().all(|(member, ..)| !lost.contains(member)));
            self.run_chain(&chain, target, tiles, step)?;
        }
        for p in lost_parity {
            let mut chain = Vec::new();
            for i in along_the_ring() {
                chain.push((holder(i), data(i), self.code.encode_coef(p, i)));
            }
            let target = (keeper(p), (parities, stripes.parity(band, p)));
            self.run_chain(&chain, target, tiles, step)?;
        }
        Ok(())
    }

    /// Tile by tile; the last member writes the sum. Members work on different tiles: each receives
    /// the next tile and sends the previous one while it adds to this one.
    fn run_chain(
        &mut self,
        chain: &[Term],
        (target, (into, block)): (usize, (Summed, Range<usize>)),
        tiles: &[Tile],
        step: Step,
    ) -> Result<()> {
        let me = self.comm.rank();
        let place = chain.iter().position(|(member, ..)| *member == me);
        if place.is_none() && target != me {
            return Ok(());
        }
        let before = match place {
            Some(0) => None,
            Some(place) => Some(chain[place - 1].0),
            None => Some(chain.last().expect("a lost block has sources").0),
        };
        let doubles = |tile: &Tile| 0..tile.size().div_ceil(size_of::<f64>());
        let (mut coming, mut sent) = (VecDeque::new(), VecDeque::new());
        let mut posted = 0;
        for (turn, tile) in tiles.iter().enumerate() {
            while let Some(source) = before
                && posted < tiles.len().min(turn + TUNING.tiles_in_flight)
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
                self.scratch.buffers.push(buffer);
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
            if sent.len() >= TUNING.tiles_in_flight {
                self.sent(sent.pop_front().expect("some are left"))?;
            }
        }
        sent.into_iter().try_for_each(|sent| self.sent(sent))
    }
}
