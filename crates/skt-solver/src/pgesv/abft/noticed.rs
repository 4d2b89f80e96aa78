/// Wrong numbers that a rank of checksums has noticed in a finished group. The other ranks learn of
/// them at the next barrier.
#[derive(Debug, Clone, Copy, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(super) struct Noticed {
    /// The largest deviation, in units. Negative if nothing is wrong.
    pub(super) units: f64,
    pub(super) unit: f64,
    /// The panel before which the group ends.
    pub(super) end: u64,
    pub(super) row: u64,
    pub(super) rows: u64,
}

impl Noticed {
    pub(super) const NOTHING: Self = Self { units: -1.0, unit: 0.0, end: 0, row: 0, rows: 0 };

    /// Local row `row` deviates by `units` units in the group that ends before panel `end`.
    pub(crate) fn in_row(end: usize, row: usize, units: f64, unit: f64) -> Self {
        Self { units, unit, end: end as u64, row: row as u64, rows: 1 }
    }

    /// Combines two reports: the worse deviation, and the rows of both.
    pub(crate) fn and(self, other: Self) -> Self {
        let worse = if other.units > self.units { other } else { self };
        Self { rows: self.rows + other.rows, ..worse }
    }
}
