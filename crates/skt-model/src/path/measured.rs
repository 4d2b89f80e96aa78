//! Measured runs.

use skt_terms::phases::Phases;

use super::Run;

/// A test that ran to its end, with its time by phase.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// The parameters of the run.
    pub run: Run,
    /// Seconds of the timed part.
    pub time_seconds: f64,
    /// The mean over ranks of each phase, in seconds.
    pub mean: Phases,
    /// Whether ranks read panels or rows in each other's memory. The walk covers messages only.
    pub shared: bool,
}

/// The fastest of all tests of each run, in the order in which the runs first appear: other load on
/// a machine can only add to a time.
pub fn fastest(tests: &[Measured]) -> Vec<Measured> {
    let mut best: Vec<Measured> = Vec::new();
    for test in tests {
        let same = |other: &&mut Measured| other.run == test.run && other.shared == test.shared;
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
    use skt_terms::choice::{Bcast, Swap};

    use super::*;

    #[test]
    fn the_fastest_test_of_each_run_counts() {
        let run = Run {
            n: 100,
            nb: 10,
            p: 2,
            q: 3,
            threads: 1,
            depth: 1,
            bcast: Bcast::OneRing,
            swap: Swap::Mix,
            swap_threshold: 64,
            halves: false,
        };
        let mean = Phases::default();
        let slow = Measured { run, time_seconds: 1.5, mean, shared: false };
        let fast = Measured { time_seconds: 1.0, ..slow };
        let other = Measured { run: Run { depth: 0, ..slow.run }, ..slow };
        assert_eq!(fastest(&[slow, other, fast, slow]), [fast, other]);
    }
}
