//! A job that cannot run.

use crate::heartbeat::UnfitHost;

/// Why a job cannot run.
pub(crate) struct Refused {
    /// The reason, in words.
    pub why: String,
    /// Whether the same start can succeed later, because the obstacle is temporary.
    pub passes: bool,
    /// The hosts without which a start can succeed.
    pub unfit: Vec<UnfitHost>,
}

impl Refused {
    /// A refusal that holds until something is changed.
    pub(super) fn for_good(why: String) -> Self {
        Self { why, passes: false, unfit: Vec::new() }
    }
}
