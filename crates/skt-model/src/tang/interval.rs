//! Section 5.1: how often to checkpoint, and what failures then cost.

use crate::ModelError;
use crate::error::{non_negative, positive};
use skt_host::checkpoint_times;

/// The interval between checkpoints to first order, in seconds: `sqrt(2 M delta)` (Young, 1974).
pub fn young_seconds(mtbf_seconds: f64, checkpoint_seconds: f64) -> Result<f64, ModelError> {
    positive("mtbf_seconds", mtbf_seconds)?;
    non_negative("checkpoint_seconds", checkpoint_seconds)?;
    Ok(checkpoint_times::young_seconds(mtbf_seconds, checkpoint_seconds))
}

/// The interval from the end of a checkpoint to the start of the next, in seconds: `tau = sqrt(2 M
/// d) [1 + 1/3 (d/2M)^(1/2) + 1/9 (d/2M)] - d`, Tang et al., TPDS 2018, eq. 9, after Daly, FGCS 22,
/// 2006; and `tau = M` if `d >= 2M`, as in Daly's paper; Tang et al. leave this case out.
pub fn daly_seconds(mtbf_seconds: f64, checkpoint_seconds: f64) -> Result<f64, ModelError> {
    let young_seconds = young_seconds(mtbf_seconds, checkpoint_seconds)?;
    let ratio = checkpoint_seconds / (2.0 * mtbf_seconds);
    if ratio >= 1.0 {
        return Ok(mtbf_seconds);
    }
    Ok(young_seconds * (1.0 + ratio.sqrt() / 3.0 + ratio / 9.0) - checkpoint_seconds)
}

/// The efficiency relative to a run without failures and checkpoints: `eff = T_h M / ((T_h + T_c)
/// (M + D + d))`, Tang et al., TPDS 2018, eq. 10, with `T_c = T_h d / tau` and tau from
/// [`daly_seconds`].
///
/// The paper's text has a recovery cost R + d in addition to the equation's D + d; `outage_seconds`
/// is all that a failure costs besides one checkpoint time: detection, relaunch, rebuild. The
/// equation leaves out the work that is lost at each failure (half an interval), which
/// [`crate::exact`] includes.
pub fn efficiency(
    mtbf_seconds: f64,
    checkpoint_seconds: f64,
    outage_seconds: f64,
) -> Result<f64, ModelError> {
    non_negative("outage_seconds", outage_seconds)?;
    let tau_seconds = daly_seconds(mtbf_seconds, checkpoint_seconds)?;
    let stretch =
        if checkpoint_seconds == 0.0 { 1.0 } else { 1.0 + checkpoint_seconds / tau_seconds };
    Ok(mtbf_seconds / (stretch * (mtbf_seconds + outage_seconds + checkpoint_seconds)))
}
