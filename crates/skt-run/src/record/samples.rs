//! A bounded number of samples of the progress of a test.

use serde::{Deserialize, Serialize};

/// The progress of a test at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds since the first start of the timed part.
    pub elapsed_seconds: f64,
    /// Number of columns that are factored.
    pub column: usize,
}

/// Largest number of samples: enough for a line across a page.
const MOST: usize = 128;

/// Samples of the progress, evenly spread over the panels.
#[derive(Debug, Clone)]
pub(crate) struct Samples {
    kept: Vec<Sample>,
    latest: Option<Sample>,
    /// One sample is kept for this number of panels.
    stride: usize,
    seen: usize,
}

impl Default for Samples {
    fn default() -> Self {
        Self { kept: Vec::with_capacity(MOST), latest: None, stride: 1, seen: 0 }
    }
}

impl Samples {
    /// Adds the sample that `column` columns are factored after `elapsed_seconds`.
    pub(crate) fn push(&mut self, elapsed_seconds: f64, column: usize) {
        let sample = Sample { elapsed_seconds, column };
        self.latest = Some(sample);
        if self.seen.is_multiple_of(self.stride) {
            if self.kept.len() == MOST {
                let mut index = 0;
                self.kept.retain(|_| {
                    index += 1;
                    index % 2 == 1
                });
                self.stride *= 2;
            }
            // After a thinning, this sample may be between two that are kept.
            if self.seen.is_multiple_of(self.stride) {
                self.kept.push(sample);
            }
        }
        self.seen += 1;
    }

    /// The samples that are kept, and the latest.
    pub(crate) fn list(&self) -> Vec<Sample> {
        let mut list = self.kept.clone();
        list.extend(self.latest.filter(|latest| list.last() != Some(latest)));
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_few_even_and_end_with_the_last() {
        for panels in [0, 1, 2, 127, 128, 129, 200, 256, 257, 1000, 100_000] {
            let mut samples = Samples::default();
            for panel in 0..panels {
                samples.push(panel as f64, panel);
            }
            let columns: Vec<usize> = samples.list().iter().map(|sample| sample.column).collect();
            assert!(columns.len() <= MOST + 1 && columns.len() >= panels.min(MOST / 2), "{panels}");
            assert_eq!(columns.last().copied(), panels.checked_sub(1));
            let steps: Vec<usize> = columns.windows(2).map(|pair| pair[1] - pair[0]).collect();
            if let [even @ .., last] = &steps[..] {
                assert!(even.iter().all(|step| step == &steps[0]) && *last <= steps[0], "{panels}");
            }
        }
    }
}
