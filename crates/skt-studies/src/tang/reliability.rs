//! Section 5.2: the probability that a run ends without having lost its data.

use skt_model::ModelError;
use skt_model::error::{at_least, non_negative, positive};

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Run {
    /// Number of processes of the job (N_t).
    pub processes: usize,
    /// Number of processes of a group (N_g).
    pub group_size: usize,
    /// Mean time between failures of the whole system.
    pub system_mtbf_seconds: f64,
    pub checkpoint_seconds: f64,
    /// Seconds of one recovery, during which a second loss in the group is fatal.
    pub recovery_seconds: f64,
    /// Seconds from the start of a checkpoint to the start of the next.
    pub interval_seconds: f64,
    pub run_seconds: f64,
}

impl Run {
    /// The example of Tang et al., TPDS 2018, figure 12, for a run of `run_seconds`.
    pub fn figure_12(run_seconds: f64) -> Self {
        Self {
            processes: 160_000,
            group_size: 16,
            system_mtbf_seconds: 5.0 * 3600.0,
            checkpoint_seconds: 20.0,
            recovery_seconds: 20.0,
            interval_seconds: 13.6 * 60.0,
            run_seconds,
        }
    }

    pub(crate) fn validate(&self) -> Result<(), ModelError> {
        at_least("group_size", self.group_size, 2, "2 or more")?;
        at_least("processes", self.processes, self.group_size, "at least one whole group")?;
        positive("system_mtbf_seconds", self.system_mtbf_seconds)?;
        positive("interval_seconds", self.interval_seconds)?;
        non_negative("checkpoint_seconds", self.checkpoint_seconds)?;
        non_negative("recovery_seconds", self.recovery_seconds)?;
        non_negative("run_seconds", self.run_seconds)?;
        Ok(())
    }

    /// `MTBF_group = N_t / N_g MTBF_system` (eq. 12).
    pub(crate) fn group_mtbf_seconds(&self) -> f64 {
        self.processes as f64 / self.group_size as f64 * self.system_mtbf_seconds
    }

    /// The exponent alpha of eq. 13: time spent in checkpoints over the MTBF. The paper writes it
    /// with a minus sign in both equations, which cannot be meant (the probability would be
    /// negative); here alpha >= 0 and P = exp(-alpha).
    pub(crate) fn checkpoint_exponent(&self) -> f64 {
        let checkpoints = self.run_seconds / self.interval_seconds;
        self.checkpoint_seconds / self.system_mtbf_seconds * checkpoints
    }

    /// The exponent beta of eq. 14: time spent in recoveries over the group's MTBF. Its sign
    /// differs from the paper's for the same reason as that of [`Run::checkpoint_exponent`].
    pub(crate) fn recovery_exponent(&self) -> f64 {
        let failures = self.run_seconds / self.system_mtbf_seconds;
        self.recovery_seconds / self.group_mtbf_seconds() * failures
    }

    /// `P_single = exp(-alpha - beta)` (eq. 15).
    pub fn success_single(&self) -> Result<f64, ModelError> {
        self.validate()?;
        Ok((-self.checkpoint_exponent() - self.recovery_exponent()).exp())
    }

    /// `P_self = exp(-beta)` (eq. 16).
    pub fn success_self(&self) -> Result<f64, ModelError> {
        self.validate()?;
        Ok((-self.recovery_exponent()).exp())
    }
}
