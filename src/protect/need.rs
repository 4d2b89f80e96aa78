//! How much memory a test needs, with its checkpoints.

use super::{Settings, segment_bytes};
use crate::checkpoint::group;
use crate::checkpoint::layout::Geometry;
use crate::checkpoint::methods::Method;
use crate::config::TestSpec;
use crate::ptest;

/// Shape of the smallest group among ranks in these failure domains, whose
/// members need most memory; `None` without checkpoints. What is wrong with the
/// groups is said when they are formed.
pub fn geometry(settings: &Settings, domains: &[String]) -> Option<Geometry> {
    let (members, parities) = (settings.group_size, settings.parities);
    if settings.method_for(domains.len()) == Method::None {
        return None;
    }
    let groups = group::form(domains, members, parities, settings.allow_shared_domains).ok()?;
    let smallest = groups.members.iter().map(Vec::len).min()?;
    Some(Geometry { members: smallest, parities })
}

/// Bytes that the largest rank of a test needs: matrix and work space, and what
/// checkpoints in groups of `geometry` add.
pub fn rank_bytes(test: &TestSpec, settings: &Settings, geometry: Option<Geometry>) -> u64 {
    // Process row 0 has most rows; b may lie in any process column.
    let cols = [0, (test.n / test.nb) % test.q];
    let bytes = cols.map(|mycol| match geometry {
        None => ptest::rank_bytes(test, 0, mycol),
        Some(geometry) => {
            ptest::work_bytes(test, 0, mycol)
                + segment_bytes(test, settings, settings.method, geometry)
        }
    });
    bytes.into_iter().max().unwrap_or(0)
}
