//! Positions of data on an axis, and the positions of its ticks.

/// The scale of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Linear: equal differences have equal distances.
    Linear,
    /// Logarithmic: equal ratios have equal distances; for values above zero.
    Log,
}

/// An axis with fixed ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ruler {
    scale: Scale,
    low: f64,
    high: f64,
}

impl Ruler {
    /// The axis from `low` to `high`; equal ends are moved apart.
    pub(super) fn new(scale: Scale, low: f64, high: f64) -> Self {
        if high > low {
            return Self { scale, low, high };
        }
        match scale {
            Scale::Linear => Self { scale, low: low - 0.5, high: low + 0.5 },
            Scale::Log => Self { scale, low: low / 2.0, high: low * 2.0 },
        }
    }

    /// The smallest ruler around `values`; on a linear scale, its ends are ticks. Values that are
    /// not finite, or not above zero on a log scale, are ignored.
    pub(super) fn around(scale: Scale, values: impl Iterator<Item = f64>) -> Self {
        let usable = values.filter(|v| v.is_finite() && (scale == Scale::Linear || *v > 0.0));
        let (low, high) =
            usable.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
        if low > high {
            return Self::new(scale, 1.0, 10.0);
        }
        let raw = Self::new(scale, low, high);
        if scale == Scale::Log {
            return raw;
        }
        let step = raw.linear_step();
        // A zero line near the data is part of the chart.
        let low = if low > 0.0 && low < 0.5 * high { 0.0 } else { (low / step).floor() * step };
        Self::new(scale, low, (raw.high / step).ceil() * step)
    }

    /// The position on the axis, 0 at its low end and 1 at its high end; `None` if the value has
    /// none (NaN, or zero or less on a log scale).
    pub(super) fn place(&self, value: f64) -> Option<f64> {
        let place = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log if value <= 0.0 => return None,
            Scale::Log => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        place.is_finite().then_some(place)
    }

    fn linear_step(&self) -> f64 {
        let rough = (self.high - self.low) / 5.0;
        let power = 10f64.powf(rough.log10().floor());
        let steps = [1.0, 2.0, 2.5, 5.0, 10.0];
        power * steps.into_iter().find(|s| s * power >= rough * 0.999).unwrap_or(10.0)
    }

    /// The values that get a label.
    pub(super) fn ticks(&self) -> Vec<f64> {
        let inside =
            |v: &f64| self.place(*v).is_some_and(|place| (-1e-9..=1.0 + 1e-9).contains(&place));
        match self.scale {
            Scale::Linear => {
                let step = self.linear_step();
                let first = (self.low / step).floor() as i64;
                let last = (self.high / step).ceil() as i64;
                (first..=last).map(|i| i as f64 * step).filter(inside).collect()
            }
            Scale::Log => {
                let (first, last) =
                    (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
                let decades = (self.high / self.low).log10();
                let marks: &[f64] = if decades <= 3.05 { &[1.0, 2.0, 5.0] } else { &[1.0] };
                let every = ((decades / 8.0).ceil() as i32).max(1);
                (first..=last)
                    .filter(|e| e.rem_euclid(every) == 0)
                    .flat_map(|e| marks.iter().map(move |m| m * 10f64.powi(e)))
                    .filter(inside)
                    .collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        let ruler = Ruler::around(Scale::Linear, [0.13, 0.97].into_iter());
        let ticks = ruler.ticks();
        assert_eq!(ticks.first(), Some(&0.0));
        assert!(ticks.len() >= 4 && (ticks.last().unwrap() - 1.0).abs() < 1e-12, "{ticks:?}");
        let log = Ruler::new(Scale::Log, 1.0, 100.0).ticks();
        assert_eq!(log, [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
        assert!(Ruler::new(Scale::Log, 1e-9, 1e15).ticks().len() <= 13);
    }

    #[test]
    fn places_and_values_without_one() {
        let log = Ruler::new(Scale::Log, 1.0, 100.0);
        assert!((log.place(10.0).unwrap() - 0.5).abs() < 1e-12);
        assert_eq!(log.place(0.0), None);
        assert_eq!(log.place(f64::NAN), None);
        let flat = Ruler::around(Scale::Linear, [2.0, 2.0].into_iter());
        assert!(flat.place(2.0).is_some());
        assert!(Ruler::around(Scale::Log, std::iter::empty()).place(2.0).is_some());
    }
}
