//! Closed forms for coordinated checkpointing that need no first-order
//! assumption, for exponential failures of the whole platform.
//!
//! Failures strike at any time, during downtime and recovery too: a recovery that is
//! struck starts over. With the platform's MTBF mu and an attempt that needs L seconds
//! without a failure, the expected number of failures before it succeeds is `e^(L/mu) -
//! 1`, and the expected time it takes, without what the failures cost besides, is `mu
//! (e^(L/mu) - 1)`. (The building block is in Bougeret et al., "Checkpointing
//! strategies for parallel jobs", INRIA RR-7520, 2011, which lets no failure strike in
//! a downtime.)

use super::bosilca::WasteModel;

/// Expected time of an attempt of `length_seconds` that is repeated until no
/// failure strikes: `mu (e^(L/mu) - 1)`.
pub fn peaceful_seconds(length_seconds: f64, mtbf_seconds: f64) -> f64 {
    mtbf_seconds * (length_seconds / mtbf_seconds).exp_m1()
}

/// Expected time of a segment of `length_seconds` where every failure also
/// costs an outage (downtime and recovery, itself struck by failures):
/// `(e^(L/mu) - 1) mu e^(V/mu)`.
pub fn segment_seconds(length_seconds: f64, outage_seconds: f64, mtbf_seconds: f64) -> f64 {
    peaceful_seconds(length_seconds, mtbf_seconds) * (outage_seconds / mtbf_seconds).exp()
}

/// Expected time of one period of coordinated checkpointing, of T seconds and
/// `T - (1 - alpha) C` of work.
///
/// The first attempt takes T. One that follows a failure must also redo the
/// work that overlapped the last checkpoint: T + alpha C. With V = D + R:
/// `E = (1 - e^(-T/mu)) (mu + mu (e^(V/mu) - 1) + (e^((T + alpha C)/mu) - 1) mu e^(V/mu))
///    = (1 - e^(-T/mu)) mu e^((V + T + alpha C)/mu)`.
pub fn coordinated_period_seconds(
    model: &WasteModel,
    period_seconds: f64,
    mtbf_seconds: f64,
) -> f64 {
    let outage_seconds = model.downtime_seconds + model.recovery_seconds;
    let redo_seconds = model.overlap_fraction * model.checkpoint_seconds;
    let struck = -(-period_seconds / mtbf_seconds).exp_m1();
    struck * mtbf_seconds * ((outage_seconds + period_seconds + redo_seconds) / mtbf_seconds).exp()
}

/// Waste of coordinated checkpointing: `1 - WORK / E`, between 0 and 1 for any
/// period; eq. 5 of Bosilca et al. is its first order in T/mu.
pub fn coordinated_waste(model: &WasteModel, period_seconds: f64, mtbf_seconds: f64) -> f64 {
    1.0 - model.work_seconds(period_seconds)
        / coordinated_period_seconds(model, period_seconds, mtbf_seconds)
}
