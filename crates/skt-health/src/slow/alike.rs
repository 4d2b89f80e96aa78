//! How far rates of comparable things lie apart, and which of them are slow.
//!
//! Rates scatter by factors, not by sums: a thread that shares a core with three others has a
//! quarter. So their logarithms are compared. Where rates scatter widely, half of another rate may
//! be noise, but a thousandth is not.

use skt_host::median::{nonempty_median, robust_deviation};

/// The robust standard deviations below the median that noise alone hardly reaches: of a thousand
/// sound nodes with normal noise, one is that far below once in 3500 screenings.
const DEVIATIONS: f64 = 5.0;

/// Rates of things that are alike: their middle, and how far they scatter around it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Alike {
    pub count: usize,
    /// The rate with which each is compared: the median or, of two, the higher one.
    pub reference: f64,
    /// The standard deviation of their logarithms by the median absolute deviation; a small one is
    /// about a share of the reference.
    pub deviation: f64,
}

impl Alike {
    /// The spread of `rates`, positive numbers; `None` of fewer than two.
    ///
    /// Of two rates the higher one is the reference: nothing makes a sound thing too fast.
    pub fn from_rates(rates: &[f64]) -> Option<Self> {
        let reference = match rates {
            [] | [_] => return None,
            [a, b] => a.max(*b),
            _ => nonempty_median(rates.iter().copied()),
        };
        let logarithms = rates.iter().map(|rate| (rate / reference).ln());
        let deviation = if rates.len() > 2 { robust_deviation(0.0, logarithms)? } else { 0.0 };
        Some(Self { count: rates.len(), reference, deviation })
    }

    /// The share of the reference by which a rate may be lower: `tolerance`, or more where the
    /// rates scatter more.
    pub fn allowance(&self, tolerance: f64) -> f64 {
        tolerance.max(1.0 - (-DEVIATIONS * self.deviation).exp())
    }

    /// Whether `rate` is too far below the reference.
    pub fn is_slow(&self, rate: f64, tolerance: f64) -> bool {
        rate < self.reference * (1.0 - self.allowance(tolerance))
    }
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_rate_has_no_measure_and_of_two_the_lower_is_slow() {
        assert_eq!(Alike::from_rates(&[4.0]), None);
        let two = Alike::from_rates(&[4.0, 2.0]).unwrap();
        assert_eq!(
            (two.reference, two.is_slow(2.0, 0.1), two.is_slow(4.0, 0.1)),
            (4.0, true, false)
        );
    }

    #[test]
    fn what_scatters_is_not_slow() {
        let quiet = Alike::from_rates(&[100.0, 100.0, 99.0, 101.0, 80.0]).unwrap();
        assert_eq!(quiet.reference, 100.0);
        assert!(quiet.is_slow(80.0, 0.1) && !quiet.is_slow(99.0, 0.1) && !quiet.is_slow(80.0, 0.3));
        let noisy = Alike::from_rates(&[100.0, 60.0, 140.0, 130.0, 80.0]).unwrap();
        assert!(!noisy.is_slow(60.0, 0.1), "{noisy:?}");
        assert!(noisy.is_slow(1.0, 0.1), "no noise makes a hundredth: {noisy:?}");
    }

    #[test]
    fn a_few_rates_of_any_size_do_not_move_the_measure() {
        let mut rates: Vec<f64> = (0..90).map(|i| 100.0 + f64::from(i % 5)).collect();
        rates.extend([1e300, 1e-300, 1e9, 5.0, 1.0, 0.5, 1e12, 3.0, 2.0, 1.0]);
        let spread = Alike::from_rates(&rates).unwrap();
        assert!((100.0..=104.0).contains(&spread.reference), "{spread:?}");
        assert!(spread.deviation < 0.03, "{spread:?}");
    }
}
