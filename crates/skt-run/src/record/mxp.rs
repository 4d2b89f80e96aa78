//! The result of a test of HPL-MxP, in addition to what it shares with one of HPL.

use serde::{Deserialize, Serialize};

use skt_config::Refinement;

/// The factorization in low precision and its refinement. Times are the longest of any rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MxpRecord {
    /// Seconds of the factorization, within the timed part.
    pub factor_seconds: f64,
    /// Seconds from the end of the factorization to the end of the timed part.
    pub refine_seconds: f64,
    /// How the solution was refined in the end.
    pub refinement: Refinement,
    /// The steps, in order; at most `Self::MAX_STEPS`.
    pub steps: Vec<RefinementStep>,
    /// Whether the last solution is as accurate as one in double precision.
    pub has_converged: bool,
    /// Why the refinement ended early; `None` if it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// A step of the refinement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RefinementStep {
    /// How this step computed its correction.
    pub refinement: Refinement,
    /// The corrections of x that it computed: 1, or the inner steps of a cycle of GMRES.
    pub corrections: usize,
    /// Seconds from the start of the timed part to the end of this step.
    pub end_seconds: f64,
    /// `||b - Ax||_oo / (eps (||A||_oo ||x||_oo + ||b||_oo) N)` of the solution after it.
    pub scaled_residual: f64,
}

impl MxpRecord {
    /// The most corrections, and so steps, of a refinement: as many as the rules of HPL-MxP allow
    /// for GMRES.
    pub(crate) const MAX_STEPS: usize = 50;
}
