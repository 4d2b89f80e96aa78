//! Layout of blocks, parities and copies: pure functions of shapes.
//!
//! A region is `rows x pitch_bytes`, row-major, of one shape on all members of a group. Its rows
//! are cut into blocks of equal height (the last may be lower). With n members and m parities, each
//! k = n - m consecutive blocks of every member form a *band*; a band has n *stripes*. Stripe t
//! keeps its m parities on members t, t+1, .. t+m-1 (mod n) and takes one block from each of the k
//! others: block i of a band, on member q, belongs to stripe t = q + 1 + i (mod n), so that data
//! block i of stripe t is on member t - 1 - i.
//!
//! ```text
//! n = 4, m = 1:   member 0   1   2   3        stripe of block i in a band
//!        i = 0           1   2   3   0
//!        i = 1           2   3   0   1
//!        i = 2           3   0   1   2
//!        parity          0   1   2   3
//! ```
//!
//! So every member keeps m parity blocks per band, C = D = m/(n-m) of the region (Tang et al., TPDS
//! 2018, Table 1, for m = 1), the load is even within each band, and bands freeze whole, from the
//! top.

use std::ops::Range;

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};

/// Bands that a region with enough rows is cut into. A checkpoint encodes whole bands, so more
/// bands waste less at the frozen edge.
pub const BANDS: usize = 64;

/// Bytes of a cell, the unit of checksums: long enough that checksums take little memory, short
/// enough to stay in the nearest cache while it is summed, and to lose little with one flipped bit.
pub const CELL_BYTES: usize = 2048;

/// Shape of a region of memory to protect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RegionShape {
    /// Number of rows.
    pub rows: usize,
    /// Bytes from one row to the next, padding included.
    pub pitch_bytes: usize,
}

impl RegionShape {
    /// Size of the region.
    pub fn bytes(&self) -> usize {
        self.rows * self.pitch_bytes
    }
}

/// The part of a region that may have changed since the last checkpoint: rows from `row` on, in the
/// bytes of each row from `byte` on. Everything outside must be as it was at the last checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Pod, Zeroable)]
#[repr(C)]
pub struct Active {
    /// First row that may have changed.
    pub row: usize,
    /// First byte within a row that may have changed.
    pub byte: usize,
}

impl Active {
    /// All of a region.
    pub const ALL: Self = Self { row: 0, byte: 0 };
    /// Nothing of a region.
    pub const NOTHING: Self = Self { row: usize::MAX, byte: usize::MAX };
}

/// Members and parities of a stripe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Geometry {
    /// Members of the group, n.
    pub members: usize,
    /// Parities of a stripe, m.
    pub parities: usize,
}

impl Geometry {
    /// Data blocks of a stripe, k = n - m.
    pub fn data(&self) -> usize {
        self.members - self.parities
    }

    /// The stripe that block `block` of a band on `member` belongs to.
    pub fn stripe_of(&self, member: usize, block: usize) -> usize {
        (member + 1 + block) % self.members
    }

    /// The member that keeps data block `block` of a stripe.
    pub fn data_member(&self, stripe: usize, block: usize) -> usize {
        (stripe + 2 * self.members - 1 - block) % self.members
    }

    /// The member that keeps parity `parity` of a stripe.
    pub fn parity_member(&self, stripe: usize, parity: usize) -> usize {
        (stripe + parity) % self.members
    }

    /// The stripe whose parity `parity` is kept on `member`.
    pub fn parity_stripe(&self, member: usize, parity: usize) -> usize {
        (member + self.members - parity) % self.members
    }
}

/// The blocks and bands of one region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stripes {
    /// The group's geometry.
    pub geometry: Geometry,
    /// The region's shape.
    pub shape: RegionShape,
    /// Rows of a full block.
    pub block_rows: usize,
}

impl Stripes {
    /// Cuts a region into [`BANDS`] bands, or fewer if it has too few rows.
    pub fn new(geometry: Geometry, shape: RegionShape) -> Self {
        Self::with_bands(geometry, shape, BANDS)
    }

    /// Cuts a region into at most `bands` bands.
    ///
    /// # Panics
    /// When `geometry` has no parity, except for a member alone, or more parities than data blocks.
    pub fn with_bands(geometry: Geometry, shape: RegionShape, bands: usize) -> Self {
        let Geometry { members, parities } = geometry;
        assert!((parities >= 1 || members == 1) && 2 * parities <= members);
        let block_rows = shape.rows.div_ceil(geometry.data() * bands.max(1)).max(1);
        Self { geometry, shape, block_rows }
    }

    /// Rows of a full band.
    pub fn band_rows(&self) -> usize {
        self.block_rows * self.geometry.data()
    }

    /// Number of bands.
    pub fn bands(&self) -> usize {
        self.shape.rows.div_ceil(self.band_rows())
    }

    /// Bands with rows from `row` on.
    pub fn bands_from(&self, row: usize) -> Range<usize> {
        (row / self.band_rows()).min(self.bands())..self.bands()
    }

    /// Rows of block `block` of a band, as rows of the region; empty if the last band lacks it.
    ///
    /// # Panics
    /// When a band has no such block.
    pub fn block(&self, band: usize, block: usize) -> Range<usize> {
        assert!(block < self.geometry.data());
        let first = band * self.band_rows() + block * self.block_rows;
        first.min(self.shape.rows)..(first + self.block_rows).min(self.shape.rows)
    }

    /// Rows of a band, as rows of the region.
    pub fn band(&self, band: usize) -> Range<usize> {
        let first = band * self.band_rows();
        first.min(self.shape.rows)..(first + self.band_rows()).min(self.shape.rows)
    }

    /// Rows of each parity of a band: as many as the first block of the band has, which is the
    /// highest.
    pub fn parity_height(&self, band: usize) -> usize {
        self.block(band, 0).len()
    }

    /// Rows of parity `parity` of a band, as rows of C and D.
    ///
    /// # Panics
    /// When a stripe has no such parity.
    pub fn parity(&self, band: usize, parity: usize) -> Range<usize> {
        assert!(parity < self.geometry.parities);
        let Range { start, .. } = self.parities(band);
        let height = self.parity_height(band);
        start + parity * height..start + (parity + 1) * height
    }

    /// Rows of all parities of a band, as rows of C and D.
    pub fn parities(&self, band: usize) -> Range<usize> {
        let first = band * self.block_rows * self.geometry.parities;
        first..first + self.geometry.parities * self.parity_height(band)
    }

    /// Rows of C, which are also those of D.
    pub fn parity_rows(&self) -> usize {
        match self.bands() {
            0 => 0,
            bands => self.parities(bands - 1).end,
        }
    }
}

/// One area of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Area {
    /// First byte within the segment.
    pub offset: usize,
    /// Bytes from one row to the next.
    pub pitch_bytes: usize,
    /// Number of rows.
    pub rows: usize,
}

impl Area {
    /// Bytes `bytes` of row `row`, as bytes of the segment.
    ///
    /// # Panics
    /// When the area has no such row or bytes.
    pub fn at(&self, row: usize, bytes: Range<usize>) -> Range<usize> {
        assert!(row < self.rows && bytes.start <= bytes.end && bytes.end <= self.pitch_bytes);
        let start = self.offset + row * self.pitch_bytes;
        start + bytes.start..start + bytes.end
    }

    /// All bytes of the area, as bytes of the segment.
    pub fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.rows * self.pitch_bytes
    }
}

/// The areas of one region within a segment; areas that the method does not have are missing from
/// the lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionAreas {
    /// Blocks and bands.
    pub stripes: Stripes,
    /// A, the live workspace.
    pub a: Area,
    /// B, the copies of A.
    pub b: Vec<Area>,
    /// C and D, the sets of parities.
    pub parity: Vec<Area>,
    /// Checksums of the cells of an epoch's data, row by row, followed by those of its parities;
    /// one set for each set of parities, with which they alternate.
    pub sums: Vec<Area>,
    /// Bytes of a cell, a part of a row; the last cell of a row may be shorter.
    pub cell_bytes: usize,
}

impl RegionAreas {
    /// The data of an epoch, in `area` (A or a copy), with checksum set `set`.
    pub fn data(&self, area: Area, set: usize) -> Summed {
        Summed { area, sums: self.sums[set], first: 0, cell_bytes: self.cell_bytes }
    }

    /// Parity set `set` with its checksums.
    pub fn parities(&self, set: usize) -> Summed {
        let (area, sums) = (self.parity[set], self.sums[set]);
        Summed { area, sums, first: self.a.rows, cell_bytes: self.cell_bytes }
    }
}

/// An area of a segment whose cells have checksums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summed {
    /// The area.
    pub area: Area,
    /// The checksums, one row for each row of the area.
    sums: Area,
    /// The row of `sums` for the first row of the area.
    first: usize,
    /// Bytes of a cell.
    pub cell_bytes: usize,
}

impl Summed {
    /// Bytes of a checksum.
    pub const SUM_BYTES: usize = size_of::<u64>();

    /// The cells that contain these bytes of a row.
    pub fn cells(&self, bytes: &Range<usize>) -> Range<usize> {
        if bytes.is_empty() {
            0..0
        } else {
            bytes.start / self.cell_bytes..bytes.end.div_ceil(self.cell_bytes)
        }
    }

    /// The bytes of a cell within its row.
    pub fn bytes_of(&self, cell: usize) -> Range<usize> {
        let start = cell * self.cell_bytes;
        start..(start + self.cell_bytes).min(self.area.pitch_bytes)
    }

    /// The checksums of these cells of a row, as bytes of the segment.
    pub fn sums_at(&self, row: usize, cells: &Range<usize>) -> Range<usize> {
        let bytes = cells.start * Self::SUM_BYTES..cells.end * Self::SUM_BYTES;
        self.sums.at(self.first + row, bytes)
    }
}

/// The layout of a rank's segment: header, then A, B, C, D and the checksums of each region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentLayout {
    /// Bytes of the header.
    pub header_bytes: usize,
    /// The regions.
    pub regions: Vec<RegionAreas>,
    /// Size of the segment.
    pub bytes: usize,
}

impl SegmentLayout {
    /// Lays out each region after a header of `header_bytes`: A, `copies` copies, `parity_sets`
    /// sets of parities, and as many sets of checksums, one for each cell of `cell_bytes`. Each
    /// area begins on a multiple of `align_bytes`.
    pub fn new(
        header_bytes: usize,
        shapes: &[RegionShape],
        geometry: Geometry,
        bands: usize,
        (copies, parity_sets): (usize, usize),
        cell_bytes: usize,
        align_bytes: usize,
    ) -> Self {
        let mut end = header_bytes;
        let mut area = |rows: usize, pitch_bytes: usize| {
            let offset = end.next_multiple_of(align_bytes);
            end = offset + rows * pitch_bytes;
            Area { offset, pitch_bytes, rows }
        };
        let regions = shapes
            .iter()
            .map(|&shape| {
                let stripes = Stripes::with_bands(geometry, shape, bands);
                let parity_rows = stripes.parity_rows();
                let sums_pitch_bytes = shape.pitch_bytes.div_ceil(cell_bytes) * Summed::SUM_BYTES;
                let mut areas = |count: usize, rows, pitch_bytes| -> Vec<Area> {
                    (0..count).map(|_| area(rows, pitch_bytes)).collect()
                };
                RegionAreas {
                    stripes,
                    a: areas(1, shape.rows, shape.pitch_bytes)[0],
                    b: areas(copies, shape.rows, shape.pitch_bytes),
                    parity: areas(parity_sets, parity_rows, shape.pitch_bytes),
                    sums: areas(parity_sets, shape.rows + parity_rows, sums_pitch_bytes),
                    cell_bytes,
                }
            })
            .collect();
        Self { header_bytes, regions, bytes: end }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn geometries() -> impl Strategy<Value = Geometry> {
        (0usize..5, 0usize..10).prop_map(|(m, extra)| {
            let members = if m == 0 { 1 } else { 2 * m + extra };
            Geometry { members, parities: m }
        })
    }

    proptest! {
        #[test]
        fn every_stripe_takes_one_block_of_each_member(g in geometries()) {
            for stripe in 0..g.members {
                let mut seen = vec![0; g.members];
                for i in 0..g.data() {
                    let member = g.data_member(stripe, i);
                    prop_assert_eq!(g.stripe_of(member, i), stripe);
                    seen[member] += 1;
                }
                for p in 0..g.parities {
                    let member = g.parity_member(stripe, p);
                    prop_assert_eq!(g.parity_stripe(member, p), stripe);
                    seen[member] += 1;
                }
                prop_assert!(seen.iter().all(|&count| count == 1));
            }
        }

        #[test]
        fn blocks_cover_every_row_once_and_parities_their_part(
            g in geometries(), rows in 0usize..300, bands in 1usize..70,
        ) {
            let s = Stripes::with_bands(g, RegionShape { rows, pitch_bytes: 8 }, bands);
            prop_assert!(s.bands() <= bands);
            let (mut next, mut next_parity) = (0, 0);
            for band in 0..s.bands() {
                prop_assert_eq!(s.band(band).start, next);
                for i in 0..g.data() {
                    let block = s.block(band, i);
                    prop_assert_eq!(block.start, next);
                    prop_assert!(block.len() <= s.parity_height(band));
                    next = block.end;
                }
                prop_assert_eq!(s.band(band).end, next);
                for p in 0..g.parities {
                    prop_assert_eq!(s.parity(band, p).start, next_parity);
                    next_parity = s.parity(band, p).end;
                }
            }
            prop_assert_eq!(next, rows);
            prop_assert_eq!(next_parity, s.parity_rows());
            // m/(n-m) of the region, and at most one band more.
            prop_assert!(s.parity_rows() * g.data() >= rows * g.parities);
            let most = rows * g.parities + s.band_rows() * g.parities;
            prop_assert!(s.parity_rows() * g.data() < most.max(1));
        }

        #[test]
        fn bands_from_a_row_hold_all_rows_below(
            g in geometries(), rows in 1usize..300, row in 0usize..320,
        ) {
            let s = Stripes::with_bands(g, RegionShape { rows, pitch_bytes: 8 }, 32);
            let bands = s.bands_from(row);
            prop_assert_eq!(bands.end, s.bands());
            if row < rows {
                prop_assert!(s.band(bands.start).contains(&row));
            } else {
                prop_assert!(bands.len() <= 1);
            }
        }

        #[test]
        fn areas_do_not_overlap(
            g in geometries(), copies in 0usize..3, sets in 0usize..3, cell in 1usize..5,
            shapes in prop::collection::vec((0usize..50, 1usize..9), 0..4),
        ) {
            let shapes: Vec<RegionShape> = shapes
                .into_iter()
                .map(|(rows, words)| RegionShape { rows, pitch_bytes: 8 * words })
                .collect();
            let layout =
                SegmentLayout::new(100, &shapes, g, 8, (copies, sets), 8 * cell, 64);
            let mut end = layout.header_bytes;
            for region in &layout.regions {
                let areas = [&region.a].into_iter().chain(&region.b).chain(&region.parity);
                for area in areas.chain(&region.sums) {
                    prop_assert!(area.offset >= end && area.offset % 64 == 0);
                    end = area.range().end;
                }
                prop_assert_eq!((region.b.len(), region.parity.len()), (copies, sets));
            }
            prop_assert_eq!(end, layout.bytes);
        }

        #[test]
        fn each_cell_has_a_checksum_of_its_own(
            rows in 1usize..9, words in 1usize..20, cell in 1usize..7,
        ) {
            let g = Geometry { members: 3, parities: 1 };
            let shape = RegionShape { rows, pitch_bytes: 8 * words };
            let layout = SegmentLayout::new(0, &[shape], g, 8, (1, 2), 8 * cell, 8);
            let areas = &layout.regions[0];
            let mut taken = std::collections::BTreeSet::new();
            for set in 0..2 {
                for summed in [areas.data(areas.a, set), areas.parities(set)] {
                    let cells = summed.cells(&(0..shape.pitch_bytes));
                    let covered: usize = cells.clone().map(|c| summed.bytes_of(c).len()).sum();
                    prop_assert_eq!(covered, shape.pitch_bytes);
                    for row in 0..summed.area.rows {
                        for cell in cells.clone() {
                            let at = summed.sums_at(row, &(cell..cell + 1));
                            prop_assert_eq!(at.len(), 8);
                            prop_assert!(areas.sums[set].range().contains(&at.start));
                            prop_assert!(taken.insert(at.start));
                        }
                    }
                }
            }
        }
    }
}
