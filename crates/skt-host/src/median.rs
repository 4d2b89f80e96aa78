//! The median, and how far values scatter around it.

/// The middle two of `values`, the lower one first; of an odd number of them both are the median.
/// `None` without values.
pub fn middle_two(values: impl IntoIterator<Item = f64>) -> Option<[f64; 2]> {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    Some([sorted[last / 2], sorted[last.div_ceil(2)]])
}

/// The median of `values`; of an even number of them the mean of the middle two. `None` without
/// values.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let [low, high] = middle_two(values)?;
    Some(if low == high { low } else { (low + high) / 2.0 })
}

/// [`median`] of values of which there is one at least.
///
/// # Panics
/// Without values.
pub fn nonempty_median(values: impl IntoIterator<Item = f64>) -> f64 {
    median(values).expect("there are values")
}

/// The standard deviation of `values` around `middle`, if they are normal: by their median absolute
/// deviation, which a few values of any size do not move. `None` without values.
pub fn robust_deviation(middle: f64, values: impl IntoIterator<Item = f64>) -> Option<f64> {
    /// The standard deviation of normal values, in their median absolute deviations.
    const OF_MAD: f64 = 1.4826;
    Some(OF_MAD * median(values.into_iter().map(|value| (value - middle).abs()))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_an_even_number_averages_the_middle_two() {
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median([1e308]), Some(1e308));
        assert_eq!(median([]), None);
        assert_eq!(middle_two([4.0, 1.0, 3.0, 2.0]), Some([2.0, 3.0]));
        assert_eq!(middle_two([3.0, 1.0, 2.0]), Some([2.0, 2.0]));
        assert_eq!(robust_deviation(3.0, [1.0, 3.0, 4.0]), Some(1.4826));
    }
}
