//! The border between rounding errors and silent errors.

use super::super::local::Local;

/// Deviations above this number of units are not rounding. In random systems of order 384 to 1536
/// the largest deviation is 0.6.
const ALARM_UNITS: f64 = 32.0;

/// Whether rounding with this unit explains a deviation. It never explains NaN or infinity.
pub(super) fn is_rounding(deviation: f64, unit: f64) -> bool {
    deviation.abs() <= (ALARM_UNITS * unit).min(f64::MAX)
}

pub(super) fn are_rounding(deviations: impl Iterator<Item = f64>, unit: f64) -> bool {
    // Checking all takes less time than stopping at the first.
    deviations.fold(true, |are, by| are & is_rounding(by, unit))
}

/// The largest deviation, in units; infinite if one is NaN or infinite.
pub(super) fn max_units(deviations: impl Iterator<Item = f64>, unit: f64) -> f64 {
    let units = |by: f64| if by.is_finite() { by.abs() / unit } else { f64::INFINITY };
    deviations.map(units).fold(0.0, f64::max)
}

/// The unit of rounding where elements are as large as `largest`.
pub(super) fn unit(local: &Local, largest: f64) -> f64 {
    f64::EPSILON / 2.0 * largest * local.params.n as f64
}
