//! Whether the store of a node can keep the segments of a run: a run asks each of its hosts, and
//! `skt-hpl launch` each node, before anything is computed.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use serde::{Deserialize, Serialize};

use crate::store::{SegmentInfo, Store, StoreHazard, StoreKind, SysvLimits, host};
use skt_comm::pages::PAGE_BYTES;
use skt_host::units::{bytes_unlike, counted};

/// Segments of each rank: its data, and its hold on the run.
const SEGMENTS_A_RANK: u64 = 2;
/// More segments of a node: results of tests, while they are rewritten.
const SEGMENTS_A_NODE: u64 = 2;

/// Room on the file system of a store that is a folder.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreRoom {
    /// The store's folder.
    pub folder: String,
    /// Bytes that are free there.
    pub free_bytes: u64,
    /// Bytes of the whole file system and where it is mounted, if it is a tmpfs, which root can
    /// enlarge.
    pub tmpfs: Option<(u64, String)>,
}

impl StoreRoom {
    /// The room in a folder; `None` if it is unknown or has no bound: hugetlbfs mounted without a
    /// size.
    fn measure(folder: &Path) -> Option<Self> {
        let stat = statfs(folder).ok().filter(|stat| stat.blocks() > 0)?;
        let device = |path: &Path| path.metadata().ok().map(|meta| meta.dev());
        let is_same = |path: &&Path| device(path) == device(folder);
        let mount = folder.ancestors().take_while(is_same).last().unwrap_or(folder);
        let [all_bytes, free_bytes] =
            [stat.blocks(), stat.blocks_available()].map(|it| it * stat.block_size() as u64);
        let is_tmpfs = stat.filesystem_type() == TMPFS_MAGIC;
        let tmpfs = is_tmpfs.then(|| (all_bytes, mount.display().to_string()));
        Some(Self { folder: folder.display().to_string(), free_bytes, tmpfs })
    }

    /// What to do if `lacking_bytes` are missing for the segments of `ranks` ranks.
    fn remedy(&self, lacking_bytes: u64, ranks: u64) -> String {
        // The store's own pages and the results of tests take a little more.
        let mib = |bytes: u64| bytes.div_ceil(1 << 20).saturating_add(ranks + 1);
        match &self.tmpfs {
            Some((bytes, mount)) => format!(
                "enlarge it (as root: mount -o remount,size={}M {mount}), or take another store \
                 (--store sysv)",
                mib(bytes.saturating_add(lacking_bytes))
            ),
            None => "make room there, or take another store (--store sysv)".to_owned(),
        }
    }
}

/// A node's report about its store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeStore {
    /// Bytes of the run's segments that exist.
    pub run_bytes: u64,
    /// The room, if the store is a folder of a file system that has a bound.
    pub room: Option<StoreRoom>,
    /// The limits of a store of System V segments, and how much of them other runs use.
    pub sysv: Option<SysvLimits>,
    /// Why nothing in the store outlives its processes, if so.
    pub void: Option<String>,
    /// Settings of the node by which a run may lose its segments.
    pub warnings: Vec<String>,
}

impl NodeStore {
    /// This node's report for a run that has these `segments` in the store
    /// ([`super::run_segments`]).
    pub fn ask(kind: &StoreKind, store: &dyn Store, segments: &[SegmentInfo]) -> Self {
        let is_sysv = matches!(kind, StoreKind::SysV { .. });
        let (void, warnings): (Vec<StoreHazard>, Vec<StoreHazard>) =
            store.hazards().into_iter().partition(|hazard| hazard.voids_store);
        Self {
            run_bytes: super::sum_bytes(segments),
            room: kind.folder().and_then(StoreRoom::measure),
            sysv: is_sysv.then(|| others_of_sysv(segments)),
            void: void.into_iter().next().map(|hazard| hazard.words),
            warnings: warnings.into_iter().map(|hazard| hazard.words).collect(),
        }
    }

    /// What the store lacks for `ranks` ranks with segments of `rank_bytes` each, in words.
    pub fn lack(&self, ranks: u64, rank_bytes: u64) -> Option<String> {
        if rank_bytes == 0 {
            return None;
        }
        if let Some(why) = &self.void {
            return Some(format!("its store keeps nothing: {why}"));
        }
        if let Some(low) = self.low_limit(ranks, rank_bytes) {
            return Some(format!("its limits of shared memory do not suffice: {low}"));
        }
        let need_bytes = ranks.saturating_mul(rank_bytes);
        let (room, have_bytes) = (self.room.as_ref()?, self.room_bytes()?);
        (have_bytes < need_bytes).then(|| {
            format!(
                "its store {} has {} free, and the segments of {} need {}: {}",
                room.folder,
                bytes_unlike(have_bytes, need_bytes),
                counted(ranks as usize, "rank"),
                bytes_unlike(need_bytes, have_bytes),
                room.remedy(need_bytes - have_bytes, ranks)
            )
        })
    }

    /// Bytes that the segments of the run may take together, if the store has a bound.
    pub fn room_bytes(&self) -> Option<u64> {
        Some(self.room.as_ref()?.free_bytes.saturating_add(self.run_bytes))
    }

    /// The limit of System V segments that the ranks would exceed, if any, in words.
    fn low_limit(&self, ranks: u64, rank_bytes: u64) -> Option<String> {
        let limits = self.sysv?;
        let segments = ranks.saturating_mul(SEGMENTS_A_RANK).saturating_add(SEGMENTS_A_NODE);
        let pages = limits.pages_of(rank_bytes).saturating_mul(ranks);
        let largest_bytes = rank_bytes.saturating_add(2 * PAGE_BYTES as u64);
        let (limit, value, enough) = limits.too_low(segments, pages, largest_bytes)?;
        Some(format!("{limit} = {value}, {enough} is needed: sysctl -w {limit}={enough}"))
    }
}

/// The limits of System V segments, and how much of them runs other than this one use.
fn others_of_sysv(segments: &[SegmentInfo]) -> SysvLimits {
    let mut limits = host::Host::this().sysv_limits();
    for info in segments {
        let pages = limits.pages_of(info.bytes as u64);
        limits.used_pages = limits.used_pages.saturating_sub(pages);
        limits.segments = limits.segments.saturating_sub(1);
    }
    limits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segments::run_segments;
    use crate::store::SegmentName;

    #[test]
    fn what_a_run_has_of_system_v_memory_is_not_held_against_it() {
        let store = StoreKind::SysV { huge_pages: false }.open();
        let run = format!("probe-{}", std::process::id());
        let name = SegmentName::new(&run, "state", 0).unwrap();
        drop(store.create(&name, 1 << 20).unwrap());
        // Segments of other tests come and go.
        let is_left_out = (0..1000).any(|_| {
            let all = host::Host::this().sysv_limits();
            let others = others_of_sysv(&run_segments(&*store, &run).unwrap());
            let pages = all.used_pages.checked_sub(others.used_pages);
            pages >= Some(257) && all.segments.checked_sub(others.segments) == Some(1)
        });
        store.remove(&name).unwrap();
        assert!(is_left_out);
    }
}
