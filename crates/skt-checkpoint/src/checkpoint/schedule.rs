//! What is encoded when: which bands are final, which are done, and what is on its
//! way between the members.
//!
//! What is encoded comes in *units*, bytes of the rows of a band, in one order on
//! all members: that in which they become final, stage by stage.
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
//! Where members read each other's memory, each tells the others how many of its
//! units are ready (*tokens*), and sums up those that are ready everywhere. In the
//! ring a member takes part in the rounds of a unit once its own is ready. The other
//! encoders need all at once.

use std::ops::Range;

use super::encode::ring::Rounds;
use super::layout::{Active, SegmentLayout, Stripes};
use crate::comm::Comm;

/// Bytes `bytes` of the rows of a band, to be encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unit {
    pub region: usize,
    pub band: usize,
    pub bytes: Range<usize>,
}

/// The units of what is active in a region, in the order in which they become
/// final: outside of each of the corners `stages` in turn, then inside the last.
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

/// What is left to do of an encoding before more of A is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Polled {
    /// All is encoded.
    Done,
    /// Nothing, and nothing is on its way.
    Idle,
    /// To look after what is on its way.
    Waiting,
    /// More, at once.
    More,
}

/// What a checkpoint did on this rank.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Stats {
    /// The epoch it made.
    pub epoch: u64,
    /// Bytes of A that went into parities.
    pub encoded_bytes: usize,
    /// Bytes copied into B and C.
    pub copied_bytes: usize,
    /// Seconds to encode.
    pub encode_seconds: f64,
    /// Seconds in the barrier: waiting for the slowest group.
    pub barrier_seconds: f64,
    /// Seconds to agree that the epoch is complete, the barrier included; method
    /// `self` alone counts them.
    pub agree_seconds: f64,
    /// Seconds from there to the end of COMMIT; method `self` alone counts them.
    pub commit_seconds: f64,
    /// Seconds to copy, before and behind COMMIT.
    pub copy_seconds: f64,
    /// Seconds of them behind COMMIT; method `self` alone counts them.
    pub flush_seconds: f64,
}

/// An epoch that is being taken.
pub(super) struct UnderWay<C: Comm> {
    pub epoch: u64,
    pub active: Vec<Active>,
    /// Outside of these all is final, by region.
    pub ready: Vec<Active>,
    /// With method `self` alone: the others do all in `complete`.
    pub encoding: Option<Encoding<C>>,
    pub stats: Stats,
}

/// How far the encoding of an epoch is on this member.
pub(super) struct Encoding<C: Comm> {
    pub epoch: u64,
    pub units: Vec<Unit>,
    /// Units from the first on that are encoded, or whose rounds have begun.
    pub begun: usize,
    /// Units from the first on whose rows are final here.
    pub ready: usize,
    pub way: Way<C>,
}

pub(super) enum Way<C: Comm> {
    Tokens(Tokens<C>),
    Rounds(Rounds<C>),
    /// All at once.
    Whole,
}

/// What members tell each other of their bands.
pub(super) struct Tokens<C: Comm> {
    /// Units that the others know to be ready here.
    pub told: usize,
    pub sent: Vec<C::Send>,
    /// By member: units that are ready there (of oneself: all, since nobody keeps
    /// parities of its own blocks), and the next word of it.
    pub theirs: Vec<(usize, Option<C::Recv>)>,
}

impl<C: Comm> Encoding<C> {
    /// Units that lie outside of these corners of each region are final here. What
    /// was ready once stays so.
    pub fn set_ready(&mut self, layout: &SegmentLayout, outside: &[Active]) {
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
    use crate::checkpoint::layout::{Geometry, RegionShape};

    fn corner() -> impl Strategy<Value = Active> {
        (0usize..50, 0usize..12).prop_map(|(row, words)| Active { row, byte: 8 * words })
    }

    proptest! {
        #[test]
        fn units_cover_what_is_active_once_and_are_ready_in_their_order(
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
            // When a stage is reached, all units before some place are ready, and the
            // first behind it are not, unless nothing of them is inside.
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
