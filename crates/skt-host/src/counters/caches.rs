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
}
