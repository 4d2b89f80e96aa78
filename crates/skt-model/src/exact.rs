//! Closed forms for coordinated checkpointing that need no first-order
//! assumption, for exponential failures of the whole platform.
//!
//! Failures strike at any time, also during downtime and recovery: a recovery that is struck starts
//! over. With the platform's MTBF mu and an attempt that needs L seconds without a failure, the
//! expected number of failures before it succeeds is `e^(L/mu) - 1`, and its expected time, without
//! the outages after the failures, is `mu (e^(L/mu) - 1)`. (The building block is in Bougeret et
//! al., "Checkpointing strategies for parallel jobs", INRIA RR-7520, 2011, in which no failure
//! strikes during a downtime.)

/// Checkpoints that all nodes take at the same time: the coordinated protocol of Bosilca et al.,
/// INRIA RR-7950, section 3.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Coordinated {
    /// Seconds of a checkpoint (C).
    pub checkpoint_seconds: f64,
    /// Seconds of a recovery (R).
    pub recovery_seconds: f64,
    /// Seconds of downtime after a failure (D).
    pub downtime_seconds: f64,
    /// The share of full speed at which work continues during a checkpoint (alpha).
    pub overlap_fraction: f64,
}

impl Coordinated {
    /// `WORK = T - (1 - alpha) C`, in seconds of full speed.
    pub(crate) fn work_seconds(&self, period_seconds: f64) -> f64 {
        period_seconds - (1.0 - self.overlap_fraction) * self.checkpoint_seconds
    }
}

/// Of an attempt that is repeated until no failure strikes: `mu (e^(L/mu) - 1)`.
pub fn peaceful_seconds(length_seconds: f64, mtbf_seconds: f64) -> f64 {
    mtbf_seconds * (length_seconds / mtbf_seconds).exp_m1()
}

/// Expected seconds of a segment of `length_seconds` where every failure also costs an outage
/// (downtime and recovery, which failures may strike, too): `(e^(L/mu) - 1) mu e^(V/mu)`.
pub(crate) fn segment_seconds(length_seconds: f64, outage_seconds: f64, mtbf_seconds: f64) -> f64 {
    peaceful_seconds(length_seconds, mtbf_seconds) * (outage_seconds / mtbf_seconds).exp()
}

/// Of coordinated checkpointing, with T seconds and `T - (1 - alpha) C` of work.
///
/// The first attempt takes T. An attempt after a failure must also redo the work that overlapped
/// the last checkpoint, so it takes T + alpha C. With V = D + R:
///
/// ```text
/// E = (1 - e^(-T/mu)) (mu + mu (e^(V/mu) - 1) + (e^((T + alpha C)/mu) - 1) mu e^(V/mu))
///   = (1 - e^(-T/mu)) mu e^((V + T + alpha C)/mu)
/// ```
pub(crate) fn coordinated_period_seconds(
    model: &Coordinated,
    period_seconds: f64,
    mtbf_seconds: f64,
) -> f64 {
    let outage_seconds = model.downtime_seconds + model.recovery_seconds;
    let redo_seconds = model.overlap_fraction * model.checkpoint_seconds;
    let struck = -(-period_seconds / mtbf_seconds).exp_m1();
    struck * mtbf_seconds * ((outage_seconds + period_seconds + redo_seconds) / mtbf_seconds).exp()
}

/// The waste of coordinated checkpointing: `1 - WORK / E`, between 0 and 1 for any period; eq. 5 of
/// Bosilca et al. is its first order in T/mu.
pub fn coordinated_waste(model: &Coordinated, period_seconds: f64, mtbf_seconds: f64) -> f64 {
    1.0 - model.work_seconds(period_seconds)
        / coordinated_period_seconds(model, period_seconds, mtbf_seconds)
}
