//! Segments on pages that the administrator has reserved (`vm.nr_hugepages`). They have a test
//! program of their own, because these pages belong to the whole system.

#[path = "../../../tests/skipped/mod.rs"]
mod skipped;

use skt_store::store::{SegmentName, StoreKind};

const BYTES: usize = 40_000;

/// Pages reserved by the administrator, until this is dropped.
struct Pool {
    before: String,
}

impl Pool {
    const FILE: &str = "/proc/sys/vm/nr_hugepages";

    /// Reserves `pages` more; `None` if this user may not, or there is no memory for them.
    fn more(pages: u64) -> Option<Self> {
        let before = std::fs::read_to_string(Self::FILE).ok()?;
        let wanted = before.trim().parse::<u64>().ok()? + pages;
        std::fs::write(Self::FILE, wanted.to_string()).ok()?;
        let pool = Self { before };
        let now: u64 = std::fs::read_to_string(Self::FILE).ok()?.trim().parse().ok()?;
        (now >= wanted).then_some(pool)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let _ = std::fs::write(Self::FILE, &self.before);
    }
}

/// A segment on pages of the pool is mapped up to the end of its last page. Memory right after the
/// place of a shorter mapping must stay.
#[test]
fn memory_after_a_segment_on_pool_pages_stays() {
    let Some(_pool) = Pool::more(8) else {
        skipped::skipped("it takes root, and memory for vm.nr_hugepages");
        return;
    };
    let store = StoreKind::SysV { huge_pages: true }.open();
    let run = format!("test-behind-{}", std::process::id());
    let mut neighbours = Vec::new();
    for rank in 0..4 {
        // The system places mappings downwards: the next one comes right below this one.
        let neighbour = vec![0xa5u8; 1 << 20];
        let name = SegmentName::new(&run, "state", rank).unwrap();
        let segment = store.create(&name, BYTES).unwrap();
        assert!(segment.note().is_none(), "{:?}", segment.note());
        neighbours.push(neighbour);
        drop(segment);
        neighbours.push(vec![0xa5u8; 1 << 20]);
        let again = store.attach(&name).unwrap().expect("the segment");
        drop(again);
        assert!(store.remove(&name).unwrap());
        assert!(neighbours.iter().flatten().all(|&byte| byte == 0xa5), "segment {rank}");
    }
}
