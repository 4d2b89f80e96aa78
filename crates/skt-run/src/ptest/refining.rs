//! The line about a refinement of HPL-MxP while it is in progress.

use crate::record::{MxpRecord, RefinementStep};
use skt_config::Refinement;
use skt_terms::units;

/// The progress of a refinement, counted in corrections: each takes a pass over A and one over its
/// factors.
pub(super) struct RefinementProgress {
    n: usize,
    /// The corrections of earlier starts.
    earlier: usize,
    /// The corrections of this start.
    here: usize,
    /// Seconds of the timed part when this start began to refine.
    begun_seconds: f64,
}

impl RefinementProgress {
    /// At `begun_seconds` of the timed part, after these steps of earlier starts.
    pub fn begin(n: usize, earlier: &[RefinementStep], begun_seconds: f64) -> Self {
        let earlier = earlier.iter().map(|step| step.corrections).sum();
        Self { n, earlier, here: 0, begun_seconds }
    }

    /// Counts a correction that is computed.
    pub fn count(&mut self) {
        self.here += 1;
    }

    /// The line at `seconds` of the timed part. `steps` are those that have ended; the present or
    /// next one is by `refinement`.
    pub fn line(&self, steps: &[RefinementStep], refinement: Refinement, seconds: f64) -> String {
        let (n, done) = (self.n, self.earlier + self.here);
        let each_seconds = (seconds - self.begun_seconds) / self.here.max(1) as f64;
        let reached = steps.last().map_or_else(String::new, |step| {
            format!(", scaled residual {:.3e}", step.scaled_residual)
        });
        let eta = match self.corrections_left(steps, refinement) {
            Some(left) => units::span(left * each_seconds),
            None => {
                let left = MxpRecord::MAX_STEPS.saturating_sub(done) as f64;
                format!("{} at most", units::span(left * each_seconds))
            }
        };
        format!("N={n}: refinement by {}, correction {done}{reached}, ETA {eta}", refinement.name())
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
        let mut progress = RefinementProgress::begin(10_000, &[], 100.0);
        progress.count();
        let line = |steps: &[_], progress: &RefinementProgress, seconds| {
            progress.line(steps, Refinement::Classic, seconds)
        };
        let first = line(&[], &progress, 102.0);
        assert_eq!(first, "N=10000: refinement by classic, correction 1, ETA 1 min 38 s at most");
        let second = line(&[step(1, 2.9e7)], &progress, 104.0);
        let want =
            "N=10000: refinement by classic, correction 1, scaled residual 2.900e7, ETA 12 s";
        assert_eq!(second, want, "three more, of 4 s each");
    }

    #[test]
    fn corrections_of_gmres_have_a_bound_alone() {
        let earlier = [step(1, 1e9), step(1, 9e8)];
        let mut progress = RefinementProgress::begin(10_000, &earlier, 50.0);
        (0..8).for_each(|_| progress.count());
        let line = progress.line(&earlier, Refinement::Gmres, 66.0);
        let want = "N=10000: refinement by gmres, correction 10, scaled residual 9.000e8, ETA 1 min \
                    20 s at most";
        assert_eq!(line, want);
    }
}
