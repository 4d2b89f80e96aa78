//! When checkpoints are due: by the mean time between failures, and before the end of a job.

/// A checkpoint, its images and a step may take this many times as long as before; a job that ends
/// begins its last checkpoint early enough for that.
pub const SPARE: f64 = 1.5;

/// The interval that loses least, `sqrt(2 M d)` for checkpoints of d seconds and a mean time
/// between failures of M (Young, 1974).
pub fn young_seconds(mtbf_seconds: f64, checkpoint_seconds: f64) -> f64 {
    (2.0 * mtbf_seconds * checkpoint_seconds).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn youngs_interval_grows_with_the_root_of_both_times() {
        assert_eq!(young_seconds(5000.0, 1.0), 100.0);
        assert_eq!(young_seconds(5000.0, 4.0), 200.0);
        assert_eq!(young_seconds(5000.0, 0.0), 0.0);
    }
}
