//! The roles that distinguish the segments of a run.

use crate::checkpoint::store::SegmentInfo;

/// The beginning of the role of a mark ([`super::ended`]).
pub(super) const ENDED: &str = "ended.a";

/// Whether a segment is a mark, which says that a run has ended ([`super::ended`]).
pub fn is_mark(info: &SegmentInfo) -> bool {
    info.name.role().starts_with(ENDED)
}

/// The role of a segment of an attempt at a test.
pub(super) fn of_test(test: usize, attempt: u64) -> String {
    format!("t{test}.a{attempt}")
}

/// The test and the attempt of a role that [`of_test`] has made.
pub(super) fn parse_role(role: &str) -> Option<(usize, u64)> {
    let (test, attempt) = role.strip_prefix('t')?.split_once(".a")?;
    Some((test.parse().ok()?, attempt.parse().ok()?))
}
