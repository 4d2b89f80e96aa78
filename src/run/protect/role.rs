//! The roles by which the segments of a run are told apart.

use crate::checkpoint::store::SegmentInfo;

/// What the role of a mark begins with, see [`super::ended`].
pub(super) const ENDED: &str = "ended.a";

/// Whether a segment only says that a run has ended, see [`super::ended`].
pub fn is_mark(info: &SegmentInfo) -> bool {
    info.name.role().starts_with(ENDED)
}

/// The role of a segment of an attempt at a test.
pub(super) fn of_test(test: usize, attempt: u64) -> String {
    format!("t{test}.a{attempt}")
}

/// Test and attempt of a role that [`of_test`] has made.
pub(super) fn parse_role(role: &str) -> Option<(usize, u64)> {
    let (test, attempt) = role.strip_prefix('t')?.split_once(".a")?;
    Some((test.parse().ok()?, attempt.parse().ok()?))
}
