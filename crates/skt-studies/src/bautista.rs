//! Bautista Gomez et al., "Low-overhead checkpoint for large-scale GPU-accelerated systems",
//! section 5.1: whether it is better to give a core of every node to the encoding for good, or to
//! stop all cores from time to time.

use skt_model::ModelError;
use skt_model::error::{at_least, non_negative, positive};

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Costs {
    /// Cores per node (N_cpn); the hybrid scheme gives away one of them.
    pub cores_per_node: usize,
    /// Seconds to copy the checkpoint to that core's process (t_cpy).
    pub copy_seconds: f64,
    /// Seconds to encode while the application is stopped (t_enc).
    pub encode_seconds: f64,
}

impl Costs {
    pub(crate) fn validate(&self) -> Result<(), ModelError> {
        at_least("cores_per_node", self.cores_per_node, 1, "1 or more")?;
        non_negative("copy_seconds", self.copy_seconds)?;
        non_negative("encode_seconds", self.encode_seconds)?;
        Ok(())
    }

    /// Of a helper core: `1/N_cpn + t_cpy / T`, a fraction. The paper writes `1/N_cpn + 100 t_cpy /
    /// T`, a fraction plus a percentage.
    pub fn hybrid_overhead(&self, interval_seconds: f64) -> Result<f64, ModelError> {
        self.validate()?;
        positive("interval_seconds", interval_seconds)?;
        Ok(1.0 / self.cores_per_node as f64 + self.copy_seconds / interval_seconds)
    }

    /// Overhead of stopping the application to encode: `t_enc / T`, a fraction.
    pub fn time_division_overhead(&self, interval_seconds: f64) -> Result<f64, ModelError> {
        self.validate()?;
        positive("interval_seconds", interval_seconds)?;
        Ok(self.encode_seconds / interval_seconds)
    }

    /// Below it the hybrid scheme is cheaper: `T < N_cpn (t_enc - t_cpy)`; 0 if it never is.
    pub fn break_even_seconds(&self) -> Result<f64, ModelError> {
        self.validate()?;
        let saved_seconds = (self.encode_seconds - self.copy_seconds).max(0.0);
        Ok(self.cores_per_node as f64 * saved_seconds)
    }
}
