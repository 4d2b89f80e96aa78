//! The sizes of the processors' caches.

use std::collections::BTreeMap;

use super::Root;

/// Bytes of all caches of the last level of this machine together; `None` where the system does not
/// report them.
pub fn last_level_bytes(root: &Root) -> Option<u64> {
    let mut levels: BTreeMap<u64, BTreeMap<String, u64>> = BTreeMap::new();
    for cpu in root.list("sys/devices/system/cpu/online")? {
        let folder = format!("sys/devices/system/cpu/cpu{cpu}/cache");
        for index in root.names(&folder).iter().filter(|name| name.starts_with("index")) {
            let text = |file: &str| root.text(&format!("{folder}/{index}/{file}"));
            let level = text("level").and_then(|level| level.parse().ok());
            let bytes = text("size").and_then(|size| bytes_of(&size));
            if let (Some(level), Some(bytes), Some(sharers)) =
                (level, bytes, text("shared_cpu_list"))
            {
                levels.entry(level).or_default().insert(sharers, bytes);
            }
        }
    }
    Some(levels.pop_last()?.1.values().sum())
}

/// The share of a core in the data cache of this level, in bytes, as the first CPU has it; `None`
/// where the system does not report it.
pub fn bytes_per_core(root: &Root, level: u64) -> Option<u64> {
    let cpu = *root.list("sys/devices/system/cpu/online")?.first()?;
    let folder = format!("sys/devices/system/cpu/cpu{cpu}");
    let siblings = root.list(&format!("{folder}/topology/thread_siblings_list"));
    let threads_of_core = siblings.map_or(1, |list| list.len().max(1)) as u64;
    root.names(&format!("{folder}/cache")).iter().find_map(|index| {
        let file = |name: &str| format!("{folder}/cache/{index}/{name}");
        let is_it = root.text(&file("level"))?.parse() == Ok(level)
            && root.text(&file("type"))? != "Instruction";
        let sharers = root.list(&file("shared_cpu_list"))?.len() as u64;
        let cores = (sharers / threads_of_core).max(1);
        is_it.then_some(bytes_of(&root.text(&file("size"))?)? / cores)
    })
}

/// The bytes of a size as Linux writes it: `32768K`.
fn bytes_of(size: &str) -> Option<u64> {
    let kib: u64 = size.strip_suffix('K')?.parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Tree;

    #[test]
    fn shared_caches_count_once_and_those_of_the_last_level_alone() {
        let tree = Tree::new();
        assert_eq!(last_level_bytes(&tree.root()), None);
        tree.file("sys/devices/system/cpu/online", "0-3\n");
        assert_eq!(last_level_bytes(&tree.root()), None);
        for (cpu, sharers) in [(0, "0-1"), (1, "0-1"), (2, "2-3"), (3, "2-3")] {
            for (index, level, size, sharers) in
                [(0, 1, "48K", cpu.to_string()), (3, 3, "32768K", sharers.to_owned())]
            {
                let folder = format!("sys/devices/system/cpu/cpu{cpu}/cache/index{index}");
                tree.file(&format!("{folder}/level"), &format!("{level}\n"))
                    .file(&format!("{folder}/size"), &format!("{size}\n"))
                    .file(&format!("{folder}/shared_cpu_list"), &format!("{sharers}\n"));
            }
        }
        assert_eq!(last_level_bytes(&tree.root()), Some(64 << 20));
    }

    #[test]
    fn a_core_has_its_share_whatever_threads_it_has() {
        let tree = Tree::new();
        assert_eq!(bytes_per_core(&tree.root(), 2), None);
        let cpu = "sys/devices/system/cpu";
        tree.file(&format!("{cpu}/online"), "0-7\n")
            .file(&format!("{cpu}/cpu0/topology/thread_siblings_list"), "0,4\n");
        for (index, level, kind, size, sharers) in [
            (0, 1, "Instruction", "64K", "0,4"),
            (1, 1, "Data", "32K", "0,4"),
            (2, 2, "Unified", "1024K", "0,4"),
            (3, 3, "Unified", "32768K", "0-7"),
        ] {
            let folder = format!("{cpu}/cpu0/cache/index{index}");
            tree.file(&format!("{folder}/level"), &format!("{level}\n"))
                .file(&format!("{folder}/type"), &format!("{kind}\n"))
                .file(&format!("{folder}/size"), &format!("{size}\n"))
                .file(&format!("{folder}/shared_cpu_list"), &format!("{sharers}\n"));
        }
        let shares = [1, 2, 3, 4].map(|level| bytes_per_core(&tree.root(), level));
        assert_eq!(shares, [Some(32 << 10), Some(1 << 20), Some(8 << 20), None]);
    }
}
