//! In-memory checkpoints with m parities, abort-and-restart and spares, for the protocols that
//! [`Protocol`] names: the quantities of Tang et al. section 5 and of Bosilca et al.
//!
//! A failure stops the whole job. It is detected, a spare replaces the lost node, all processes
//! start again and the lost members are rebuilt: an *outage* of V seconds, which starts over
//! whenever another node fails during it. The data are lost when more than m members of a group are
//! missing at once, and, with the single protocol, when a failure strikes while the only copy is
//! updated. Failures are exponential.
//!
//! With checksums in the elimination ([`Protocol::Abft`]) the same formulas hold: a checkpoint
//! takes no time, the interval is one step, which is all that a failure destroys, and the group is
//! a process row.

use super::error::{at_least, fraction, non_negative, positive};
use super::exact::Coordinated;
use super::optimum::minimize_log;
use super::tang::memory::Protocol;
use super::{Group, ModelError, exact};

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct InMemoryJob {
    pub protocol: Protocol,
    pub group: Group,
    pub nodes: usize,
    /// Number of spare nodes; `None` for as many as needed.
    pub spares: Option<usize>,
    pub node_mtbf_seconds: f64,
    /// Time of the computation without checkpoints and failures.
    pub work_seconds: f64,
    pub checkpoint_seconds: f64,
    /// The share of full speed at which work continues during a checkpoint.
    pub overlap_fraction: f64,
    /// Time for detection and relaunch after a failure.
    pub downtime_seconds: f64,
    pub recovery_seconds: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Expectation {
    /// Between two checkpoints, or of a step ([`Protocol::Abft`]); infinite without protection.
    pub interval_seconds: f64,
    /// Expected seconds from start to end, if no data are lost.
    pub time_seconds: f64,
    /// The work's time over the expected time.
    pub efficiency: f64,
    /// Expected number of failures in that time.
    pub failures: f64,
    /// That no data are lost (for [`Protocol::None`]: that nothing fails at all).
    pub keeps_data_probability: f64,
    /// If no data are lost; 1 for [`Protocol::None`], where no loss of data means no failure.
    pub spares_suffice_probability: f64,
}

impl Expectation {
    pub fn finish_probability(&self) -> f64 {
        self.keeps_data_probability * self.spares_suffice_probability
    }
}

impl InMemoryJob {
    pub(crate) fn validate(&self) -> Result<(), ModelError> {
        // Without a protocol there are no groups, so any number of nodes is legal.
        let least = if self.protocol == Protocol::None { 1 } else { self.group.size() };
        at_least("nodes", self.nodes, least, "at least one whole group")?;
        positive("node_mtbf_seconds", self.node_mtbf_seconds)?;
        positive("work_seconds", self.work_seconds)?;
        non_negative("checkpoint_seconds", self.checkpoint_seconds)?;
        fraction("overlap_fraction", self.overlap_fraction)?;
        non_negative("downtime_seconds", self.downtime_seconds)?;
        non_negative("recovery_seconds", self.recovery_seconds)?;
        Ok(())
    }

    pub(crate) fn system_mtbf_seconds(&self) -> f64 {
        self.node_mtbf_seconds / self.nodes as f64
    }

    pub(crate) fn outage_seconds(&self) -> f64 {
        self.downtime_seconds + self.recovery_seconds
    }

    fn coordinated(&self) -> Coordinated {
        Coordinated {
            checkpoint_seconds: self.checkpoint_seconds,
            recovery_seconds: self.recovery_seconds,
            downtime_seconds: self.downtime_seconds,
            overlap_fraction: self.overlap_fraction,
        }
    }

    /// Probability that a failure, once it has struck, ends in the loss of data because m more
    /// members of its group fail before the outage is over.
    ///
    /// With j members missing, one of the n-j others fails at the rate `g = (n-j)/mu`, and any node
    /// at `L = nodes/mu`. An outage of V seconds is struck with probability `q = 1 - e^(-L V)`, and
    /// then starts over; during it, the next member of the group is lost with probability `p_j = q
    /// g/L / (1 - q (1 - g/L))`, and the result is the product over j = 1..m. For m = 1 and small V
    /// it is `(n-1) V / mu`, which is Tang et al. eq. 14 with N_g - 1 in place of N_g.
    pub fn loss_probability_per_failure(&self) -> f64 {
        let all_rate = 1.0 / self.system_mtbf_seconds();
        let struck = -(-all_rate * self.outage_seconds()).exp_m1();
        (1..=self.group.parities())
            .map(|lost| {
                let share = (self.group.size() - lost) as f64 / self.nodes as f64;
                struck * share / (1.0 - struck * (1.0 - share))
            })
            .product()
    }

    /// Between failures that end in a loss of data.
    pub(crate) fn data_loss_mtbf_seconds(&self) -> f64 {
        self.system_mtbf_seconds() / self.loss_probability_per_failure()
    }

    /// `interval_seconds` of pure computation, and the work that continues during the checkpoint.
    pub(crate) fn cut_seconds(&self, interval_seconds: f64) -> f64 {
        interval_seconds + self.overlap_fraction * self.checkpoint_seconds
    }

    /// Without failures: one after each interval but the last. Fractions of intervals count, too.
    pub(crate) fn checkpoints(&self, interval_seconds: f64) -> f64 {
        if interval_seconds >= self.work_seconds {
            return 0.0;
        }
        (self.work_seconds - interval_seconds) / self.cut_seconds(interval_seconds)
    }

    /// Of least expected time, found numerically; infinite for [`Protocol::None`].
    pub fn best_interval_seconds(&self) -> Result<f64, ModelError> {
        self.validate()?;
        if self.protocol == Protocol::None {
            return Ok(f64::INFINITY);
        }
        let mtbf_seconds = self.system_mtbf_seconds();
        let longest_seconds = self.work_seconds.min(30.0 * mtbf_seconds);
        // More than a million checkpoints per run is no sensible answer even if they cost nothing.
        let shortest_seconds = (1e-6 * self.work_seconds).min(longest_seconds);
        let best = minimize_log(shortest_seconds, longest_seconds, |interval_seconds| {
            self.time_seconds(interval_seconds)
        });
        Ok(best.at)
    }

    /// Expected with a checkpoint after each interval but the last, without loss of data.
    fn time_seconds(&self, interval_seconds: f64) -> f64 {
        let mtbf_seconds = self.system_mtbf_seconds();
        if self.protocol == Protocol::None || interval_seconds >= self.work_seconds {
            return exact::segment_seconds(self.work_seconds, self.outage_seconds(), mtbf_seconds);
        }
        let period_seconds = interval_seconds + self.checkpoint_seconds;
        let model = self.coordinated();
        let per_work_second =
            exact::coordinated_period_seconds(&model, period_seconds, mtbf_seconds)
                / model.work_seconds(period_seconds);
        per_work_second * (self.work_seconds - interval_seconds)
            + exact::segment_seconds(interval_seconds, self.outage_seconds(), mtbf_seconds)
    }

    pub fn expect(&self, interval_seconds: f64) -> Result<Expectation, ModelError> {
        self.validate()?;
        if interval_seconds != f64::INFINITY {
            positive("interval_seconds", interval_seconds)?;
        }
        let mtbf_seconds = self.system_mtbf_seconds();
        let time_seconds = self.time_seconds(interval_seconds);
        let failures = time_seconds / mtbf_seconds;
        Ok(Expectation {
            interval_seconds,
            time_seconds,
            efficiency: self.work_seconds / time_seconds,
            failures,
            keeps_data_probability: self.keeps_data(interval_seconds, time_seconds),
            spares_suffice_probability: self.spares_suffice(interval_seconds),
        })
    }

    fn keeps_data(&self, interval_seconds: f64, time_seconds: f64) -> f64 {
        let mtbf_seconds = self.system_mtbf_seconds();
        if self.protocol == Protocol::None {
            return (-self.work_seconds / mtbf_seconds).exp();
        }
        let losses = time_seconds / mtbf_seconds * self.loss_probability_per_failure();
        // Tang et al., eq. 13: a failure during an update of the single copy is fatal.
        let exposed_seconds = match self.protocol {
            Protocol::Single => self.checkpoints(interval_seconds) * self.checkpoint_seconds,
            _ => 0.0,
        };
        (-losses - exposed_seconds / mtbf_seconds).exp()
    }

    fn spares_suffice(&self, interval_seconds: f64) -> f64 {
        match (self.protocol, self.spares) {
            (Protocol::None, _) | (_, None) => 1.0,
            (_, Some(spares)) => self.failures_in_a_run(interval_seconds).at_most(spares),
        }
    }

    /// The smallest number of spares that suffices with `probability`; `None` if 100,000 do not.
    pub fn fewest_spares(
        &self,
        interval_seconds: f64,
        probability: f64,
    ) -> Result<Option<usize>, ModelError> {
        self.expect(interval_seconds)?;
        if self.protocol == Protocol::None {
            return Ok(Some(0));
        }
        Ok(self.failures_in_a_run(interval_seconds).quantile(probability))
    }

    /// The distribution of the number of nodes that fail in a run.
    ///
    /// Failures are not Poisson over a run: a run with more failures lasts longer and so has still
    /// more. In one segment of L seconds (L + alpha C after a failure) the number of interruptions
    /// is 0 with probability `p1 = e^(-L/mu)`, and otherwise geometric with `p2 = e^(-(L + alpha
    /// C)/mu)`. Each interruption brings a geometric number of failures with `pv = e^(-V/mu)`,
    /// because outages are struck, too. Mean and variance add up over the segments, and a negative
    /// binomial law takes that mean and variance.
    fn failures_in_a_run(&self, interval_seconds: f64) -> NegativeBinomial {
        let mtbf_seconds = self.system_mtbf_seconds();
        let peace = |seconds: f64| (-seconds / mtbf_seconds).exp();
        let outage = peace(self.outage_seconds());
        // Mean and variance of the number of failures in one segment.
        let segment = |first: f64, again: f64| {
            let interruptions = (1.0 - first) / again;
            let squares = (1.0 - first) * (2.0 - again) / (again * again);
            let variance = squares - interruptions * interruptions;
            (
                interruptions / outage,
                interruptions * (1.0 - outage) / (outage * outage) + variance / (outage * outage),
            )
        };
        if interval_seconds >= self.work_seconds {
            let whole = peace(self.work_seconds);
            let (mean, variance) = segment(whole, whole);
            return NegativeBinomial { mean, variance };
        }
        let period_seconds = interval_seconds + self.checkpoint_seconds;
        let redo_seconds = self.overlap_fraction * self.checkpoint_seconds;
        let periods = self.checkpoints(interval_seconds);
        let (mean, variance) = segment(peace(period_seconds), peace(period_seconds + redo_seconds));
        let (last_mean, last_variance) = segment(peace(interval_seconds), peace(interval_seconds));
        NegativeBinomial {
            mean: periods * mean + last_mean,
            variance: periods * variance + last_variance,
        }
    }
}

/// A negative binomial law; Poisson if the variance is not larger than the mean.
///
/// With p = mean/variance and r = mean p/(1-p) the probability of k is
/// `p^r (1-p)^k r (r+1) ... (r+k-1) / k!`.
#[derive(Debug, Clone, Copy)]
struct NegativeBinomial {
    mean: f64,
    variance: f64,
}

impl NegativeBinomial {
    /// The probabilities of at most 0, 1, 2, ..., until they no longer grow.
    fn cumulated(self) -> impl Iterator<Item = f64> {
        let Self { mean, variance } = self;
        let excess = if mean > 0.0 { (variance - mean) / mean } else { 0.0 };
        let poisson = excess < 1e-9;
        let p = 1.0 / (1.0 + excess.max(0.0));
        let r = mean / excess;
        // Logarithms are used because the first term may be far below the smallest float.
        let mut log_term = if poisson { -mean } else { r * p.ln() };
        let (mut sum, mut k) = (0.0, 0.0);
        std::iter::from_fn(move || {
            let term = log_term.exp();
            if k > mean && term < 1e-18 * sum {
                return None;
            }
            sum += term;
            k += 1.0;
            log_term +=
                if poisson { (mean / k).ln() } else { ((1.0 - p) * (r + k - 1.0) / k).ln() };
            Some(sum.min(1.0))
        })
    }

    fn is_finite(self) -> bool {
        self.mean.is_finite() && self.variance.is_finite()
    }

    fn at_most(self, limit: usize) -> f64 {
        if !self.is_finite() {
            return 0.0;
        }
        self.cumulated().take(limit.saturating_add(1)).last().expect("at least P(0)")
    }

    /// The smallest number that is not exceeded with `probability`; `None` if it is above 100,000.
    fn quantile(self, probability: f64) -> Option<usize> {
        const MOST: usize = 100_000;
        if !self.is_finite() {
            return None;
        }
        self.cumulated().take(MOST + 1).position(|sum| sum >= probability)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poisson_and_negative_binomial_at_known_points() {
        let at_most = |k, mean, variance| NegativeBinomial { mean, variance }.at_most(k);
        // Poisson with mean 2: P(<= 3) = 0.857123.
        assert!((at_most(3, 2.0, 2.0) - 0.857_123_46).abs() < 1e-7);
        // Geometric with p = 1/3 (r = 1): mean 2, variance 6, P(<= 3) = 1 - (2/3)^4.
        let want = 1.0 - (2.0f64 / 3.0).powi(4);
        assert!((at_most(3, 2.0, 6.0) - want).abs() < 1e-12);
        assert_eq!(at_most(0, 0.0, 0.0), 1.0);
        assert!((at_most(12_000, 1e4, 1e4) - 1.0).abs() < 1e-9);
        assert!((at_most(10_000, 1e4, 1e4) - 0.502_66).abs() < 1e-4);
        assert_eq!(at_most(5, f64::INFINITY, f64::INFINITY), 0.0);
    }

    #[test]
    fn quantiles_are_the_least_that_suffice() {
        let quantile = |p, mean, variance| NegativeBinomial { mean, variance }.quantile(p);
        // Poisson with mean 2: 0.8571 up to 3, 0.9473 up to 4.
        assert_eq!(quantile(0.857, 2.0, 2.0), Some(3));
        assert_eq!(quantile(0.86, 2.0, 2.0), Some(4));
        assert_eq!(quantile(0.99, 0.0, 0.0), Some(0));
        assert_eq!(quantile(0.99, 1e6, 1e6), None);
    }
}
