use std::ops::Range;
use std::time::Instant;

use super::OwnSegment;
use crate::checkpoint::encode::CellPosition;

use crate::checkpoint::record::Holds;
use skt_store::codec::checksum;
use skt_store::layout::Summed;

/// A damaged cell of this rank: its position in the group's stripes and in this rank's areas.
pub(crate) struct DamagedCell {
    pub place: CellPosition,
    pub area: &'static str,
    pub row: usize,
}

/// The damage of this rank. All cells are counted, but a limited number is listed, because an
/// unreadable image consists of damaged cells only.
pub(crate) struct Findings {
    pub listed: Vec<DamagedCell>,
    listed_max: usize,
    pub cells: usize,
}

impl Findings {
    fn none_of(listed_max: usize) -> Self {
        Self { listed: Vec::new(), listed_max, cells: 0 }
    }

    fn add(&mut self, found: DamagedCell) {
        self.cells += 1;
        if self.listed.len() < self.listed_max.max(1) {
            self.listed.push(found);
        }
    }

    pub(crate) fn are_listed(&self) -> bool {
        self.cells <= self.listed_max
    }
}

impl<'n> OwnSegment<'n> {
    /// Compares all data and parities of `epoch` with their checksums. `holds` is where the data
    /// is, and this rank is member `me` of its group. Lists at most `listed_max` damaged cells.
    pub(crate) fn find_damage(
        &self,
        epoch: u64,
        holds: Holds,
        me: usize,
        listed_max: usize,
    ) -> Findings {
        let (copy, set) = self.method.settled(epoch);
        let (begun, mut bands) = (Instant::now(), 0);
        let mut found = Findings::none_of(listed_max);
        for (region, areas) in self.layout.regions.iter().enumerate() {
            let stripes = areas.stripes;
            let geometry = stripes.geometry;
            let settled = match holds {
                Holds::Copy => areas.b[copy],
                Holds::Workspace => areas.a,
                Holds::Nothing => break,
            };
            let (data, parities) = (areas.data(settled, set), areas.parities(set));
            for band in 0..stripes.bands() {
                self.vault.passes(begun, bands);
                bands += 1;
                for block in 0..geometry.data() {
                    let stripe = geometry.stripe_of(me, block);
                    let at = CellPosition { region, band, stripe, row: 0, cell: 0 };
                    let rows = stripes.block(band, block);
                    self.check(data, rows, at, "data", &mut found);
                }
                for parity in 0..geometry.parities {
                    let stripe = geometry.parity_stripe(me, parity);
                    let at = CellPosition { region, band, stripe, row: 0, cell: 0 };
                    let rows = stripes.parity(band, parity);
                    self.check(parities, rows, at, "parities", &mut found);
                }
            }
        }
        found
    }

    /// `rows` are a block of the stripe `at`.
    fn check(
        &self,
        summed: Summed,
        rows: Range<usize>,
        at: CellPosition,
        name: &'static str,
        found: &mut Findings,
    ) {
        for (offset, row) in rows.enumerate() {
            for cell in summed.cells(&(0..summed.area.pitch_bytes)) {
                let bytes = self.vault.bytes(summed.area.at(row, summed.bytes_of(cell)));
                if checksum(bytes) != self.vault.sum(&summed, row, cell) {
                    let place = CellPosition { row: offset, cell, ..at };
                    found.add(DamagedCell { place, area: name, row });
                }
            }
        }
    }
}
