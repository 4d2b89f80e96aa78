//! Power over time, as far as it is known, and the energy of a part of it.

use crate::record::energy::{EnergyReading, parts};

/// The longest time between two readings that power is interpolated over, in seconds.
pub(super) const LONGEST_BETWEEN: f64 = 60.0;
/// The largest number of pieces. Beyond it neighbours are joined, which keeps the total energy.
const MAX_PIECES: usize = 1 << 16;

/// Power between two moments in seconds, which changes evenly from the first watts to the last.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PowerPiece {
    pub from: f64,
    pub to: f64,
    pub watts: [f64; 2],
}

/// Power over time in pieces that do not overlap, in their order. Between two of them power may be
/// unknown.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Curve(Vec<PowerPiece>);

impl PowerPiece {
    fn watts_at(&self, seconds: f64) -> f64 {
        let [first, last] = self.watts;
        first + (last - first) * (seconds - self.from) / (self.to - self.from)
    }

    /// Joules and seconds between two moments, as far as they are in this piece.
    fn energy(&self, from: f64, to: f64) -> [f64; 2] {
        let (from, to) = (from.max(self.from), to.min(self.to));
        if from >= to {
            return [0.0; 2];
        }
        let mean = 0.5 * (self.watts_at(from) + self.watts_at(to));
        [mean * (to - from), to - from]
    }

    /// This piece and the next as one, with the energy of both.
    fn joined(&self, next: &Self) -> Self {
        let (from, to) = (self.from, next.to);
        let joules = self.energy(from, to)[0] + next.energy(from, to)[0];
        Self { from, to, watts: [joules / (to - from); 2] }
    }
}

impl Curve {
    /// Adds a piece. One that is empty, or begins before the end of the last one, is left out.
    pub(crate) fn push(&mut self, piece: PowerPiece) {
        let begins_late = self.end().is_none_or(|end| piece.from >= end);
        if piece.to > piece.from && begins_late {
            self.0.push(piece);
        }
        if self.0.len() > MAX_PIECES {
            self.thin();
        }
    }

    /// The end of the last piece, in seconds.
    pub(crate) fn end(&self) -> Option<f64> {
        self.0.last().map(|piece| piece.to)
    }

    /// Joules between two moments, and the seconds of that time in which they are known.
    pub(crate) fn over(&self, from: f64, to: f64) -> [f64; 2] {
        let first = self.0.partition_point(|piece| piece.to <= from);
        let pieces = self.0[first..].iter().take_while(|piece| piece.from < to);
        let sum = |[joules, seconds]: [f64; 2], [more_joules, more_seconds]: [f64; 2]| {
            [joules + more_joules, seconds + more_seconds]
        };
        pieces.map(|piece| piece.energy(from, to)).fold([0.0; 2], sum)
    }

    /// The energy of the `seconds` before `end` by `source`, as far as it is known; `None` if
    /// nothing is. `covers` describes what the source covers.
    pub(crate) fn reading(
        &self,
        end: f64,
        seconds: f64,
        source: &str,
        covers: &str,
    ) -> Option<EnergyReading> {
        /// The least share of a part that must be known for its mean watts.
        const ENOUGH: f64 = 0.9;
        let begin = end - seconds;
        let [joules, known_seconds] = self.over(begin, end);
        let parts = parts(seconds);
        let width = seconds / parts as f64;
        let watts = |part: usize| {
            let from = begin + part as f64 * width;
            let [joules, seconds] = self.over(from, from + width);
            (seconds >= ENOUGH * width).then(|| joules / seconds)
        };
        (known_seconds > 0.0).then(|| EnergyReading {
            measured_seconds: known_seconds.min(seconds),
            watts: (0..parts).map(watts).collect(),
            ..EnergyReading::new(source, covers, joules, known_seconds)
        })
    }

    /// Joins each second piece with its neighbour, if nothing is unknown between them.
    fn thin(&mut self) {
        let mut kept: Vec<PowerPiece> = Vec::with_capacity(self.0.len() / 2 + 1);
        let mut may_join = false;
        for piece in &self.0 {
            match kept.last_mut().filter(|last| may_join && last.to == piece.from) {
                Some(last) => {
                    *last = last.joined(piece);
                    may_join = false;
                }
                None => {
                    kept.push(*piece);
                    may_join = true;
                }
            }
        }
        self.0 = kept;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ramp(from: f64, to: f64, first: f64, last: f64) -> PowerPiece {
        PowerPiece { from, to, watts: [first, last] }
    }

    #[test]
    fn trapezoids_are_exact_and_what_is_unknown_is_not_counted() {
        let mut curve = Curve::default();
        curve.push(ramp(0.0, 10.0, 100.0, 200.0));
        curve.push(ramp(20.0, 30.0, 50.0, 50.0));
        curve.push(ramp(29.0, 31.0, 9e9, 9e9));
        curve.push(ramp(31.0, 31.0, 9e9, 9e9));
        assert_eq!(curve.over(0.0, 30.0), [2000.0, 20.0]);
        assert_eq!(curve.over(-5.0, 5.0), [625.0, 5.0]);
        assert_eq!(curve.over(5.0, 25.0), [1125.0, 10.0]);
        assert_eq!(curve.over(12.0, 18.0), [0.0, 0.0]);
        let reading = curve.reading(30.0, 30.0, "meter", "all").unwrap();
        assert_eq!((reading.mean_watts, reading.measured_seconds), (100.0, 20.0));
        assert_eq!(reading.watts[9..12], [Some(195.0), None, None]);
        assert_eq!(curve.reading(18.0, 6.0, "meter", "all"), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        /// Whatever the pieces, the parts of a time have the energy of the whole, also after pieces
        /// have been joined.
        #[test]
        fn parts_have_the_energy_of_the_whole(
            steps in prop::collection::vec((0.1f64..3.0, prop::bool::ANY, 0f64..500.0), 1..80),
            cut in 0f64..1.0,
        ) {
            let (mut curve, mut at, mut watts, mut joules) = (Curve::default(), 5.0, 10.0, 0.0);
            for (seconds, is_known, next) in steps {
                if is_known {
                    curve.push(ramp(at, at + seconds, watts, next));
                    joules += 0.5 * (watts + next) * seconds;
                }
                (at, watts) = (at + seconds, next);
            }
            let middle = 5.0 + cut * (at - 5.0);
            let sum = |curve: &Curve| {
                curve.over(0.0, middle)[0] + curve.over(middle, at)[0]
            };
            prop_assert!((sum(&curve) - joules).abs() < 1e-6);
            let [_, seconds] = curve.over(0.0, at);
            curve.thin();
            prop_assert!((sum(&curve) - joules).abs() < 1e-6);
            prop_assert!((curve.over(0.0, at)[1] - seconds).abs() < 1e-9);
        }
    }

    #[test]
    fn a_month_is_kept_in_bounded_memory() {
        let mut curve = Curve::default();
        const SECONDS: usize = 30 * 86_400;
        for second in 0..SECONDS {
            curve.push(ramp(second as f64, second as f64 + 1.0, 100.0, 100.0));
        }
        assert!(curve.0.len() <= MAX_PIECES);
        let [joules, seconds] = curve.over(0.0, SECONDS as f64);
        assert!((joules - 100.0 * SECONDS as f64).abs() < 1.0, "{joules}");
        assert_eq!(seconds, SECONDS as f64);
    }
}
