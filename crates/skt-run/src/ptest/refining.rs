//! How long a refinement of HPL-MxP still takes, by what it has measured and gained.

use crate::record::{MxpRecord, RefinementStep};
use skt_config::Refinement;
use skt_host::units;

/// What is left of a refinement that continues.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RefinementLeft {
    /// Seconds of the last correction, with its share of the residuals, if one was measured.
    pub correction_seconds: Option<f64>,
    /// The corrections if each gains as much as those so far, at least one; `None` if nothing is
    /// known of their gain.
    pub corrections: Option<f64>,
    /// The most corrections.
    pub corrections_max: f64,
}

/// The progress of a refinement, counted in corrections: each takes a pass over A and one over its
/// factors.
pub(super) struct RefinementProgress {
    n: usize,
    /// The corrections of earlier starts.
    earlier: usize,
    /// The corrections of this start.
    here: usize,
    /// The corrections of the present step.
    in_step: usize,
    /// Seconds of the timed part when the present correction began.
    begun_seconds: f64,
    /// Seconds of the last correction.
    correction_seconds: Option<f64>,
}

impl RefinementProgress {
    /// After these steps of earlier starts, which have measured `correction_seconds`.
    pub(crate) fn begin(
        n: usize,
        earlier: &[RefinementStep],
        correction_seconds: Option<f64>,
    ) -> Self {
        let earlier = earlier.iter().map(|step| step.corrections).sum();
        Self { n, earlier, here: 0, in_step: 0, begun_seconds: 0.0, correction_seconds }
    }

    /// A step begins at `seconds` of the timed part.
    pub(crate) fn begin_step(&mut self, seconds: f64) {
        (self.in_step, self.begun_seconds) = (0, seconds);
    }

    /// Whether the present step has had a correction.
    pub(crate) fn is_within_step(&self) -> bool {
        self.in_step > 0
    }

    /// A correction and the product with A that goes with it have ended at `seconds` of the timed
    /// part.
    pub(crate) fn measure(&mut self, seconds: f64) {
        self.correction_seconds = Some(seconds - self.begun_seconds);
        self.begun_seconds = seconds;
    }

    /// What is left of a refinement that has not converged after `steps`; the next one is by
    /// `refinement`.
    pub(crate) fn left(&self, steps: &[RefinementStep], refinement: Refinement) -> RefinementLeft {
        let corrections = self.corrections_left(steps, refinement);
        RefinementLeft {
            correction_seconds: self.correction_seconds,
            corrections: corrections.map(|left| left.max(1.0)),
            corrections_max: self.corrections_max(),
        }
    }

    /// Counts a correction that is computed.
    pub(crate) fn count(&mut self) {
        self.here += 1;
        self.in_step += 1;
    }

    /// The line at `seconds` of the timed part. `steps` are those that have ended; the present or
    /// next one is by `refinement`.
    pub(crate) fn line(
        &self,
        steps: &[RefinementStep],
        refinement: Refinement,
        seconds: f64,
    ) -> String {
        let (n, done) = (self.n, self.earlier + self.here);
        let each_seconds = self.correction_seconds.unwrap_or(seconds - self.begun_seconds);
        let reached = steps.last().map_or_else(String::new, |step| {
            format!(", scaled residual {:.3e}", step.scaled_residual)
        });
        let eta = match self.corrections_left(steps, refinement) {
            Some(left) => units::span(left * each_seconds),
            None => format!("{} at most", units::span(self.corrections_max() * each_seconds)),
        };
        format!("N={n}: refinement by {}, correction {done}{reached}, ETA {eta}", refinement.name())
    }

    fn corrections_max(&self) -> f64 {
        MxpRecord::MAX_STEPS.saturating_sub(self.earlier + self.here) as f64
    }

    /// The corrections that are left if each gains as much as those so far; `None` if nothing is
    /// known of their gain.
    fn corrections_left(&self, steps: &[RefinementStep], refinement: Refinement) -> Option<f64> {
        let last = steps.last().filter(|_| refinement == Refinement::Classic)?;
        let corrections: usize = steps.iter().map(|step| step.corrections).sum();
        // The scaled residuals of x = 0 and of a converged x: 1 / (n eps) and about 1 / sqrt(n).
        let n = self.n as f64;
        let (first, target) = (2.0 / (n * f64::EPSILON), 1.0 / n.sqrt());
        let gain_each = (first / last.scaled_residual).ln() / corrections as f64;
        let left = ((last.scaled_residual / target).ln() / gain_each).ceil();
        (gain_each > 0.0 && left.is_finite()).then_some(left.max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(corrections: usize, scaled_residual: f64) -> RefinementStep {
        let refinement = Refinement::Classic;
        RefinementStep { refinement, corrections, end_seconds: 0.0, scaled_residual }
    }

    #[test]
    fn the_rest_of_a_refinement_follows_from_its_gain() {
        // From 2^53 / 10^4 = 9.0e11 to 10^-2 by factors of 3.1e4.
        let mut progress = RefinementProgress::begin(10_000, &[], None);
        progress.begin_step(100.0);
        progress.count();
        let line = |steps: &[_], progress: &RefinementProgress, seconds| {
            progress.line(steps, Refinement::Classic, seconds)
        };
        let first = line(&[], &progress, 102.0);
        assert_eq!(first, "N=10000: refinement by classic, correction 1, ETA 1 min 38 s at most");
        progress.measure(104.0);
        let second = line(&[step(1, 2.9e7)], &progress, 104.0);
        let want =
            "N=10000: refinement by classic, correction 1, scaled residual 2.900e7, ETA 12 s";
        assert_eq!(second, want, "three more, of 4 s each");
        let steps = [step(1, 2.9e7)];
        let left = RefinementLeft {
            correction_seconds: Some(4.0),
            corrections: Some(3.0),
            corrections_max: 49.0,
        };
        assert_eq!(progress.left(&steps, Refinement::Classic), left);
        let by_gmres = progress.left(&steps, Refinement::Gmres);
        assert_eq!(by_gmres, RefinementLeft { corrections: None, ..left });
        // Below the predicted end, but not converged.
        let left = progress.left(&[step(1, 1e-3)], Refinement::Classic);
        assert_eq!(left.corrections, Some(1.0));
    }

    #[test]
    fn corrections_of_gmres_have_a_bound_alone() {
        let earlier = [step(1, 1e9), step(1, 9e8)];
        let mut progress = RefinementProgress::begin(10_000, &earlier, None);
        progress.begin_step(50.0);
        for correction in 1..=8 {
            assert_eq!(progress.is_within_step(), correction > 1);
            progress.count();
            // The last ones are slower.
            progress.measure(50.0 + 0.25 * f64::from(correction * correction - correction));
        }
        let line = progress.line(&earlier, Refinement::Gmres, 64.0);
        let want = "N=10000: refinement by gmres, correction 10, scaled residual 9.000e8, ETA 2 min \
                    20 s at most";
        assert_eq!(line, want);
    }
}
