//! The roles that distinguish the segments of a run.

use crate::store::SegmentInfo;

/// The beginning of the role of a mark.
pub const ENDED: &str = "ended.a";

/// Whether a segment is a mark: its presence means that a run has ended.
pub fn is_mark(info: &SegmentInfo) -> bool {
    info.name.role().starts_with(ENDED)
}

/// The role of a segment with data: of a part of a run, made by a start.
pub(super) fn part_role(part: usize, start: u64) -> String {
    format!("t{part}.a{start}")
}

/// The part and the start of a role of a segment with data; `None` for any other role.
pub fn parse_role(role: &str) -> Option<(usize, u64)> {
    let (part, start) = role.strip_prefix('t')?.split_once(".a")?;
    Some((part.parse().ok()?, start.parse().ok()?))
}
