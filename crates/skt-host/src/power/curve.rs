//! Power over time, as far as it is known.

/// The largest number of pieces. Beyond it neighbours are joined, which keeps the total energy.
const MAX_PIECES: usize = 1 << 16;

/// Power between two moments, which changes evenly from one to the other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PowerPiece {
    /// The begin, in seconds.
    pub from: f64,
    /// The end, in seconds.
    pub to: f64,
    /// Watts at the begin and at the end.
    pub watts: [f64; 2],
}

/// Energy of a time, and the seconds of that time in which it is known.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Energy {
    /// The energy, in joules.
    pub joules: f64,
    /// The seconds that it covers.
    pub seconds: f64,
}

/// Power over time in pieces that do not overlap, in their order. Between two of them power may be
/// unknown.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Curve(Vec<PowerPiece>);

impl PowerPiece {
    fn watts_at(&self, seconds: f64) -> f64 {
        let [first, last] = self.watts;
        first + (last - first) * (seconds - self.from) / (self.to - self.from)
    }

    /// The energy between two moments, as far as they are in this piece.
    fn energy(&self, from: f64, to: f64) -> Energy {
        let (from, to) = (from.max(self.from), to.min(self.to));
        if from >= to {
            return Energy::default();
        }
        let mean = 0.5 * (self.watts_at(from) + self.watts_at(to));
        Energy { joules: mean * (to - from), seconds: to - from }
    }

    /// This piece and the next as one, with the energy of both.
    fn joined(&self, next: &Self) -> Self {
        let (from, to) = (self.from, next.to);
        let joules = self.energy(from, to).joules + next.energy(from, to).joules;
        Self { from, to, watts: [joules / (to - from); 2] }
    }
}

impl Curve {
    /// Adds a piece. One that is empty, or begins before the end of the last one, is left out.
    pub fn push(&mut self, piece: PowerPiece) {
        let begins_late = self.end().is_none_or(|end| piece.from >= end);
        if piece.to > piece.from && begins_late {
            self.0.push(piece);
        }
        if self.0.len() > MAX_PIECES {
            self.thin();
        }
    }

    /// The end of the last piece, in seconds.
    pub fn end(&self) -> Option<f64> {
        self.0.last().map(|piece| piece.to)
    }

    /// The energy between two moments, as far as it is known.
    pub fn over(&self, from: f64, to: f64) -> Energy {
        let first = self.0.partition_point(|piece| piece.to <= from);
        let pieces = self.0[first..].iter().take_while(|piece| piece.from < to);
        pieces.map(|piece| piece.energy(from, to)).fold(Energy::default(), |sum, part| Energy {
            joules: sum.joules + part.joules,
            seconds: sum.seconds + part.seconds,
        })
    }

    /// The mean watts of `parts` equal parts of the time between two moments; `None` for a part of
    /// which less than nine tenths is known.
    pub fn watts(&self, from: f64, to: f64, parts: usize) -> Vec<Option<f64>> {
        const ENOUGH: f64 = 0.9;
        let width = (to - from) / parts as f64;
        let part = |index: usize| {
            let begin = from + index as f64 * width;
            let energy = self.over(begin, begin + width);
            (energy.seconds >= ENOUGH * width).then(|| energy.joules / energy.seconds)
        };
        (0..parts).map(part).collect()
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
        assert_eq!(curve.over(0.0, 30.0), Energy { joules: 2000.0, seconds: 20.0 });
        assert_eq!(curve.over(-5.0, 5.0), Energy { joules: 625.0, seconds: 5.0 });
        assert_eq!(curve.over(5.0, 25.0), Energy { joules: 1125.0, seconds: 10.0 });
        assert_eq!(curve.over(12.0, 18.0), Energy::default());
        assert_eq!(curve.watts(0.0, 30.0, 3), [Some(150.0), None, Some(50.0)]);
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
                curve.over(0.0, middle).joules + curve.over(middle, at).joules
            };
            prop_assert!((sum(&curve) - joules).abs() < 1e-6);
            let seconds = curve.over(0.0, at).seconds;
            curve.thin();
            prop_assert!((sum(&curve) - joules).abs() < 1e-6);
            prop_assert!((curve.over(0.0, at).seconds - seconds).abs() < 1e-9);
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
        let energy = curve.over(0.0, SECONDS as f64);
        assert!((energy.joules - 100.0 * SECONDS as f64).abs() < 1.0, "{energy:?}");
        assert_eq!(energy.seconds, SECONDS as f64);
    }
}
