//! The order of encoding: which parts are final, which are encoded, and which messages are in
//! transit between the members.
//!
//! The active part is encoded in *units*, bytes of the rows of a band. All members encode them in
//! the order in which they become final, stage by stage:
//!
//! ```text
//! +-------------------+    the active part, two stages: first the bands 1 and
//! | 1                 |    the bytes 2 of all others become final, then 3 and 4,
//! +----+--------------+    then the rest, band by band from the first on
//! | 2  | 3            |
//! |    +----+---------+
//! |    | 4  | the     |
//! |    |    | rest    |
//! +----+----+---------+
//! ```
//!
//! A member takes part in the rounds of a unit once its own is ready.

use std::ops::Range;

use super::encode::ring::Rounds;
use skt_store::layout::{Active, SegmentLayout, Stripes};

/// A unit of encoding: `bytes` of the rows of a band.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unit {
    pub region: usize,
    pub band: usize,
    pub bytes: Range<usize>,
}

/// The units of the active part of a region, in the order in which they become final: outside of
/// each corner of `stages` in turn, then inside the last.
pub(super) fn units_of(
    region: usize,
    stripes: &Stripes,
    active: Active,
    stages: &[Active],
) -> Vec<Unit> {
    let pitch = stripes.shape.pitch_bytes;
    let unit = |bytes: Range<usize>| move |band| Unit { region, band, bytes: bytes.clone() };
    let (mut units, mut before) = (Vec::new(), active);
    for stage in stages {
        let now = Active { row: stage.row.max(before.row), byte: stage.byte.max(before.byte) };
        let (all, left) = (stripes.bands_from(before.row), stripes.bands_from(now.row));
        let width = before.byte.min(pitch)..now.byte.min(pitch);
        units.extend((all.start..left.start).map(unit(before.byte.min(pitch)..pitch)));
        if !width.is_empty() {
            units.extend(left.map(unit(width)));
        }
        before = now;
    }
    units.extend(stripes.bands_from(before.row).map(unit(before.byte.min(pitch)..pitch)));
    units
}

/// What is left to do of an encoding before more of A becomes ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Polled {
    /// Everything is encoded.
    Done,
    /// Nothing to do until more is ready, and no message is in transit.
    Idle,
    /// Only to wait for messages in transit.
    Waiting,
    /// There is more to encode at once.
    More,
}

/// What a checkpoint did on this rank.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Stats {
    /// The epoch it made.
    pub epoch: u64,
    /// Bytes of A that went into parities.
    pub encoded_bytes: usize,
    /// Seconds to encode.
    pub encode_seconds: f64,
    /// Seconds in the barrier, which waits for the slowest group.
    pub barrier_seconds: f64,
    /// Seconds to agree that the epoch is complete, including the barrier; by method `self` alone.
    pub agree_seconds: f64,
    /// Seconds from the agreement to the end of COMMIT; counted by method `self` alone.
    pub commit_seconds: f64,
    /// Seconds to copy, before and after COMMIT.
    pub copy_seconds: f64,
    /// The seconds of `copy_seconds` after COMMIT; counted by method `self` alone.
    pub flush_seconds: f64,
}

pub(super) struct UnderWay {
    pub epoch: u64,
    pub active: Vec<Active>,
    /// The corner of each region outside of which everything is final.
    pub ready: Vec<Active>,
    /// The running encoding (method `self`); the other methods do all in `complete`.
    pub schedule: Option<EncodingSchedule>,
    pub stats: Stats,
}

pub(super) struct EncodingSchedule {
    pub epoch: u64,
    pub units: Vec<Unit>,
    /// The number of first units that are encoded or whose rounds have begun.
    pub begun: usize,
    /// The number of first units that are final here.
    pub ready: usize,
    pub rounds: Rounds,
}

impl EncodingSchedule {
    /// Marks the units outside of these corners, one per region, as final here. Units that are
    /// ready stay so.
    pub(crate) fn set_ready(&mut self, layout: &SegmentLayout, outside: &[Active]) {
        let is_ready = |unit: &Unit| {
            let stripes = layout.regions[unit.region].stripes;
            let Active { row, byte } = outside[unit.region];
            stripes.band(unit.band).end <= row || unit.bytes.end <= byte
        };
        while self.units.get(self.ready).is_some_and(is_ready) {
            self.ready += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use skt_store::layout::{Geometry, RegionShape};

    fn corner() -> impl Strategy<Value = Active> {
        (0usize..50, 0usize..12).prop_map(|(row, words)| Active { row, byte: 8 * words })
    }

    proptest! {
        #[test]
        fn units_cover_active_rows_once_and_are_ready_in_order(
            rows in 0usize..40, words in 0usize..10, bands in 1usize..7,
            active in corner(), stages in prop::collection::vec(corner(), 0..4),
        ) {
            let geometry = Geometry { members: 3, parities: 1 };
            let shape = RegionShape { rows, pitch_bytes: 8 * words };
            let stripes = Stripes::with_bands(geometry, shape, bands);
            let units = units_of(0, &stripes, active, &stages);
            let mut seen = vec![0; rows * words];
            for unit in &units {
                for row in stripes.band(unit.band) {
                    for word in unit.bytes.start / 8..unit.bytes.end / 8 {
                        seen[row * words + word] += 1;
                    }
                }
            }
            let from = stripes.bands_from(active.row).start * stripes.band_rows();
            for (at, count) in seen.into_iter().enumerate() {
                let (row, word) = (at / words, at % words);
                prop_assert_eq!(count, usize::from(row >= from && 8 * word >= active.byte));
            }
            // When a stage is reached, the first units are ready, and none after them is, except
            // units with nothing inside.
            let mut reached = active;
            for stage in &stages {
                reached = Active {
                    row: reached.row.max(stage.row),
                    byte: reached.byte.max(stage.byte),
                };
                let ready = units.iter().take_while(|unit| {
                    stripes.band(unit.band).end <= reached.row || unit.bytes.end <= reached.byte
                });
                let inside = |unit: &&Unit| {
                    stripes.band(unit.band).end > reached.row && unit.bytes.end > reached.byte
                };
                prop_assert_eq!(ready.count(), units.iter().take_while(|u| !inside(u)).count());
                let first = units.iter().position(|unit| inside(&unit)).unwrap_or(units.len());
                prop_assert!(units[first..].iter().all(|unit| inside(&unit)
                    || unit.bytes.is_empty()));
            }
        }
    }
}
