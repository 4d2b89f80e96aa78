//! Measured runs.

use skt_terms::phases::Phases;

use super::RunParams;

/// A test that ran to its end, with its time by phase.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeasuredTest {
    /// The parameters of the run.
    pub run: RunParams,
    /// Seconds of the timed part.
    pub time_seconds: f64,
    /// The mean over ranks of each phase, in seconds.
    pub mean: Phases,
    /// Whether ranks read panels or rows in each other's memory. The walk covers messages only.
    pub shared: bool,
}

/// The fastest of all tests of each run, in the order in which the runs first appear: other load on
/// a machine can only add to a time.
pub fn fastest(tests: &[MeasuredTest]) -> Vec<MeasuredTest> {
    let mut best: Vec<MeasuredTest> = Vec::new();
    for test in tests {
        let same = |other: &&mut MeasuredTest| other.run == test.run && other.shared == test.shared;
        match best.iter_mut().find(same) {
            Some(other) if other.time_seconds <= test.time_seconds => {}
            Some(other) => *other = *test,
            None => best.push(*test),
        }
    }
    best
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn the_fastest_test_of_each_run_counts() {
        let run = RunParams::new(100, 10, (2, 3));
        let mean = Phases::default();
        let slow = MeasuredTest { run, time_seconds: 1.5, mean, shared: false };
        let fast = MeasuredTest { time_seconds: 1.0, ..slow };
        let other = MeasuredTest { run: RunParams { depth: 0, ..slow.run }, ..slow };
        assert_eq!(fastest(&[slow, other, fast, slow]), [fast, other]);
    }
}
