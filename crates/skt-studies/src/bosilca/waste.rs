//! Section 3: the waste of coordinated and hierarchical checkpointing.

use skt_model::ModelError;
use skt_model::error::{at_least, check, fraction, non_negative, positive};
use skt_model::exact::{Coordinated, coordinated_waste};
use skt_model::levels::{VALID_PERIOD_SHARE, Validity};
use skt_model::optimum::{Minimum, minimize_log};

/// A protocol with its costs; G = 1 is the coordinated protocol.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WasteModel {
    /// Number of groups that checkpoint one after the other (G).
    pub groups: usize,
    /// Seconds for the checkpoint of one group, without logged messages (C_0(q)).
    pub checkpoint_seconds: f64,
    /// Of one group, without logged messages (R_0(q)); it grows with the checkpoint.
    pub recovery_seconds: f64,
    /// Seconds of downtime after a failure (D).
    pub downtime_seconds: f64,
    /// Of full speed, at which work continues during a checkpoint (alpha): 0 blocks, 1 hides it.
    pub overlap_fraction: f64,
    /// The speed of work with message logging (lambda), above 0 and at most 1.
    pub logging_speed: f64,
    /// The speed of re-execution from the logs (rho), at least 1.
    pub replay_speed: f64,
    /// The growth of the checkpoint per second of work (beta), as a share of its size.
    pub growth_per_second: f64,
}

impl WasteModel {
    pub fn coordinated(
        checkpoint_seconds: f64,
        recovery_seconds: f64,
        downtime_seconds: f64,
        overlap_fraction: f64,
    ) -> Self {
        Self {
            groups: 1,
            checkpoint_seconds,
            recovery_seconds,
            downtime_seconds,
            overlap_fraction,
            logging_speed: 1.0,
            replay_speed: 1.0,
            growth_per_second: 0.0,
        }
    }

    pub(crate) fn validate(&self) -> Result<(), ModelError> {
        at_least("groups", self.groups, 1, "1 or more")?;
        non_negative("checkpoint_seconds", self.checkpoint_seconds)?;
        non_negative("recovery_seconds", self.recovery_seconds)?;
        non_negative("downtime_seconds", self.downtime_seconds)?;
        fraction("overlap_fraction", self.overlap_fraction)?;
        positive("logging_speed", fraction("logging_speed", self.logging_speed)?)?;
        let replay = self.replay_speed;
        check("replay_speed", replay, replay >= 1.0, "a finite number, 1 or above")?;
        non_negative("growth_per_second", self.growth_per_second)?;
        Ok(())
    }

    /// G C_0(q): seconds of all checkpoints in a period, without logged messages.
    fn all_checkpoints_seconds(&self) -> f64 {
        self.groups as f64 * self.checkpoint_seconds
    }

    /// `C(q) = C_0(q) (1 + beta lambda T) / (1 + G C_0(q) beta lambda (1 - alpha))` (eq. 17).
    pub fn grown_checkpoint_seconds(&self, period_seconds: f64) -> f64 {
        let growth = self.growth_per_second * self.logging_speed;
        let stall_seconds = self.all_checkpoints_seconds() * (1.0 - self.overlap_fraction);
        self.checkpoint_seconds * (1.0 + growth * period_seconds) / (1.0 + stall_seconds * growth)
    }

    /// R(q), which grows as the checkpoint does.
    pub fn grown_recovery_seconds(&self, period_seconds: f64) -> f64 {
        if self.checkpoint_seconds == 0.0 {
            return self.recovery_seconds;
        }
        let growth = self.grown_checkpoint_seconds(period_seconds) / self.checkpoint_seconds;
        self.recovery_seconds * growth
    }

    /// `WORK = T - (1 - alpha) G C(q)` (eq. 7), in seconds of full speed.
    pub(crate) fn work_seconds(&self, period_seconds: f64) -> f64 {
        let checkpoints_seconds =
            self.groups as f64 * self.grown_checkpoint_seconds(period_seconds);
        period_seconds - (1.0 - self.overlap_fraction) * checkpoints_seconds
    }

    /// RE-EXEC in closed form, by which eq. 13 sums up eq. 8 to 12: `[T^2 + G C ((alpha - 1) T + (2
    /// alpha - 1) C) + T (alpha + 1) C + (1 - 2 alpha) C^2] / (2 T)`.
    pub fn reexecution_seconds(&self, period_seconds: f64) -> f64 {
        let (t, g, a) = (period_seconds, self.groups as f64, self.overlap_fraction);
        let c = self.grown_checkpoint_seconds(t);
        let bracket = t * t
            + g * c * ((a - 1.0) * t + (2.0 * a - 1.0) * c)
            + t * (a + 1.0) * c
            + (1.0 - 2.0 * a) * c * c;
        bracket / (2.0 * t)
    }

    /// RE-EXEC summed over all positions of a failure (eq. 8 to 12), to verify the closed form.
    pub fn reexecution_seconds_summed(&self, period_seconds: f64) -> f64 {
        let (t, groups, a) = (period_seconds, self.groups, self.overlap_fraction);
        let (g_all, c) = (groups as f64, self.grown_checkpoint_seconds(t));
        let work_only_seconds = t - g_all * c;
        let mut in_work = 0.0;
        let mut in_checkpoint = 0.0;
        for g in 1..=groups {
            in_work += (groups - g + 1) as f64 * a * c + work_only_seconds / 2.0; // (8)
            for s in 0..g - 1 {
                in_checkpoint += (groups - g + s + 2) as f64 * a * c + work_only_seconds; // (10)
            }
            in_checkpoint += g_all * a * c + work_only_seconds + c / 2.0; // (11)
            for s in 1..=groups - g {
                in_checkpoint += (s + 1) as f64 * a * c; // (12)
            }
        }
        work_only_seconds / t * in_work / g_all + g_all * c / t * in_checkpoint / (g_all * g_all)
    }

    /// `WASTE = (T - lambda WORK)/T + (D + R(q) + RE-EXEC/rho)/mu_p` (eq. 15; eq. 13 for lambda =
    /// rho = 1, beta = 0; eq. 5 if also G = 1). From 1 on the application makes no progress.
    pub fn waste(&self, period_seconds: f64, platform_mtbf_seconds: f64) -> f64 {
        self.failure_free_waste(period_seconds)
            + self.failure_waste(period_seconds, platform_mtbf_seconds)
    }

    /// `(T - lambda WORK)/T`, the first term of eq. 15.
    pub fn failure_free_waste(&self, period_seconds: f64) -> f64 {
        (period_seconds - self.logging_speed * self.work_seconds(period_seconds)) / period_seconds
    }

    /// `(D + R(q) + RE-EXEC/rho)/mu_p`, the second term of eq. 15.
    pub fn failure_waste(&self, period_seconds: f64, platform_mtbf_seconds: f64) -> f64 {
        let per_failure_seconds = self.downtime_seconds
            + self.grown_recovery_seconds(period_seconds)
            + self.reexecution_seconds(period_seconds) / self.replay_speed;
        per_failure_seconds / platform_mtbf_seconds
    }

    /// The two terms of eq. 15 composed instead of added: `1 - (1 - WASTE_free) (1 - WASTE_fail)`.
    ///
    /// Failures strike the overhead of failure-free time, too: of a time E, failures take E x/mu
    /// and periods take the rest, E (1 - x/mu), of which only the share 1 - WASTE_free is work. The
    /// sum in eq. 15 counts the product of the two terms twice; the simulator agrees with the
    /// composition.
    pub fn composed_waste(&self, period_seconds: f64, platform_mtbf_seconds: f64) -> f64 {
        let free = self.failure_free_waste(period_seconds);
        let failing = self.failure_waste(period_seconds, platform_mtbf_seconds);
        1.0 - (1.0 - free) * (1.0 - failing).max(0.0)
    }

    /// The waste of the coordinated protocol with the same costs, [exactly](skt_model::exact).
    pub fn exact_coordinated_waste(&self, period_seconds: f64, platform_mtbf_seconds: f64) -> f64 {
        let protocol = Coordinated {
            checkpoint_seconds: self.checkpoint_seconds,
            recovery_seconds: self.recovery_seconds,
            downtime_seconds: self.downtime_seconds,
            overlap_fraction: self.overlap_fraction,
        };
        coordinated_waste(&protocol, period_seconds, platform_mtbf_seconds)
    }

    /// The shortest period that has room for its checkpoints: `T >= G C_0(q) / (1 - G C_0(q) beta
    /// lambda alpha)`, or `None` if the log grows faster than it can be written (eq. 18).
    pub fn shortest_period_seconds(&self) -> Option<f64> {
        let all_seconds = self.all_checkpoints_seconds();
        let room =
            1.0 - all_seconds * self.growth_per_second * self.logging_speed * self.overlap_fraction;
        (room > 0.0).then(|| all_seconds / room)
    }

    /// Whether the formula holds for a period (eq. 14, 18).
    pub fn validity(&self, period_seconds: f64, platform_mtbf_seconds: f64) -> Validity {
        match self.shortest_period_seconds() {
            None => Validity::NoPeriod,
            Some(shortest) if period_seconds < shortest * (1.0 - 1e-9) => Validity::NoPeriod,
            _ if period_seconds > VALID_PERIOD_SHARE * platform_mtbf_seconds * (1.0 + 1e-9) => {
                Validity::FirstOrderDoubtful
            }
            _ => Validity::Valid,
        }
    }

    /// Of least waste among all periods with room for their checkpoints, up to ten MTBFs.
    pub fn best_period(&self, platform_mtbf_seconds: f64) -> Result<BestPeriod, ModelError> {
        self.search(platform_mtbf_seconds, 10.0 * platform_mtbf_seconds)
    }

    /// Of least waste among those of at most a tenth of the MTBF (eq. 14), as in the figures.
    pub fn best_valid_period(&self, platform_mtbf_seconds: f64) -> Result<BestPeriod, ModelError> {
        self.search(platform_mtbf_seconds, VALID_PERIOD_SHARE * platform_mtbf_seconds)
    }

    fn search(
        &self,
        platform_mtbf_seconds: f64,
        longest_seconds: f64,
    ) -> Result<BestPeriod, ModelError> {
        self.validate()?;
        positive("platform_mtbf_seconds", platform_mtbf_seconds)?;
        let none = BestPeriod { period_seconds: None, waste: 1.0, validity: Validity::NoPeriod };
        let Some(shortest_seconds) = self.shortest_period_seconds() else { return Ok(none) };
        // If checkpoints cost nothing, any short period will do; T = 0 is avoided.
        let shortest_seconds = shortest_seconds.max(1e-6 * platform_mtbf_seconds);
        if shortest_seconds > longest_seconds {
            return Ok(none);
        }
        let Minimum { at, value } = minimize_log(shortest_seconds, longest_seconds, |t| {
            self.waste(t, platform_mtbf_seconds)
        });
        Ok(BestPeriod {
            period_seconds: Some(at),
            waste: value.min(1.0),
            validity: self.validity(at, platform_mtbf_seconds),
        })
    }

    /// `T* = sqrt(2 mu_p C (1 - alpha))` for the coordinated protocol (section
    /// 3.2; Young's formula for alpha = 0), whether or not it is admissible.
    pub fn young_period_seconds(&self, platform_mtbf_seconds: f64) -> f64 {
        (2.0 * platform_mtbf_seconds
            * self.all_checkpoints_seconds()
            * (1.0 - self.overlap_fraction))
            .sqrt()
    }

    /// At which the longest valid period, a tenth of it, has a waste of exactly 1, for the
    /// coordinated protocol: `[10 (1 - alpha) C + D + R + alpha C] / 0.95`, from eq. 5 with T =
    /// mu_p/10. This is where section 5 sees a machine begin to progress (4.32 h on Titan); it
    /// disregards T >= C.
    pub fn progress_limit_seconds(&self) -> f64 {
        let (c, a) = (self.all_checkpoints_seconds(), self.overlap_fraction);
        ((1.0 - a) * c / VALID_PERIOD_SHARE + self.downtime_seconds + self.recovery_seconds + a * c)
            / (1.0 - VALID_PERIOD_SHARE / 2.0)
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BestPeriod {
    /// The period, or `None` if none is admissible.
    pub period_seconds: Option<f64>,
    /// The waste of the period, at most 1; 1 if there is no period.
    pub waste: f64,
    pub validity: Validity,
}
